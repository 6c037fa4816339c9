"""``ncfbench race`` from beginning to end, with programs that print lines and what can go wrong."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.cli import check, invoke
from support.processes import COUNT, ENDLESS, RACE_LIMIT_SECONDS, V, by_name, race, wait

from ncfbench.errors import UsageError
from ncfbench.racing import arm as arms_module
from ncfbench.racing import pipeline

PLAYER = Path(__file__).parents[1] / "support" / "play_curve.py"
pytestmark = pytest.mark.usefixtures("quick")


def left_behind(token):
    """Return the command lines that hold a text."""
    found = []
    for each in psutil.process_iter():
        try:
            words = each.cmdline()
        except psutil.Error:
            continue
        if any(str(token) in word for word in words) and each.status() != psutil.STATUS_ZOMBIE:
            found.append(words)
    return found


def cmdline(process):
    with suppress(psutil.Error):
        return process.cmdline()
    return [""]


def test_played_curves_race_to_their_answer(tmp_path):
    """The quick one reaches 0.475 of 0.5 after 0.1 s, the other one after 0.4 s."""
    curves = {
        name: [[t / 100, min(0.5, 0.5 * t / 100 / whole)] for t in range(2, 60, 2)]
        for name, whole in (("quick", 0.1), ("slow", 0.4), ("low", 3.0))
    }
    file = tmp_path / "curves.json"
    file.write_text(json.dumps(curves))
    command = f"{sys.executable} -S {PLAYER} {file} {{arm}}"
    words = ["--markdown", str(tmp_path / "answer.md")]
    found = race(command, "--try", "arm=slow,quick,low", *words)
    assert found["recommended"] == "arm=quick"
    arms = by_name(found)
    assert arms["arm=slow"]["times_later"] > 1
    assert found["level"] == pytest.approx(0.475)
    assert "Use arm=quick" in (tmp_path / "answer.md").read_text()
    assert arms["arm=quick"]["command"] == command.replace("{arm}", "quick")
    assert found["next"][0]["command"] == arms["arm=quick"]["command"]
    assert left_behind(file) == []


def test_the_answer_is_printed():
    words = ["race", *V, "-n", "few", COUNT.format(count=5)]
    done = invoke(*words, COUNT.format(count=9))
    check(done, 0, "Use n=0;", "times later (95 %)", "How far to trust it", "To train it", "few")


def test_every_end_of_an_arm_is_told(monkeypatch):
    """Crash, silence, no metric, a metric that is no number, a good one."""
    arms = {
        "good": COUNT.format(count=20),
        "crash": "echo v=1; echo bad luck >&2; exit 3",
        "silent": "sleep 60",
        "stuck": "echo v=1; sleep 60",
        "mute": "echo nothing to see",
        "nan": "echo v=0.1; echo v=nan; sleep 60",
    }
    monkeypatch.setattr(pipeline, "SILENCE", (0.3, 0.0))
    metric = ("--metric", "v=([0-9.]+|nan)")
    words = [word for name, command in arms.items() for word in ("-n", name, command)]
    found = race("--budget", "20s", *metric, *words)
    told = {name: (arm["status"], arm["reason"]) for name, arm in by_name(found).items()}
    assert told["good"] == ("recommended", "by itself")
    assert told["crash"] == ("failed", "ended with exit code 3, last lines: bad luck")
    assert told["silent"][0] == "failed"
    assert "no metric in 0 s of running, it printed nothing" in told["silent"][1]
    assert "since its last one" in told["stuck"][1]
    assert told["mute"][1] == "ended and printed no metric, last lines: nothing to see"
    assert told["nan"] == ("diverged", "its metric became nan")


FALLING = "n={top}; while [ $n -gt {low} ]; do n=$((n-1)); echo {name}=$n; sleep 0.01; done"


def test_a_loss_is_minimised_by_its_name():
    """The lower one is recommended, and the answer says why."""
    arms = [FALLING.format(top=40, low=low, name="val_loss") for low in (5, 20)]
    found = race("--metric", "val_loss=([0-9.]+)", "-n", "low", "-n", "high", *arms)
    assert (found["recommended"], found["is_less_better"]) == ("low", True)
    assert found["trust"][0] == "Less val_loss is better, by its name; --maximize if not."
    more = ["--metric", "val_loss=([0-9.]+)", "--maximize", "-n", "low", "-n", "high", *arms]
    assert race(*more)["is_less_better"] is False


def test_a_number_that_falls_is_a_question():
    """Where its name says nothing no arm is chosen, and no finished race is left."""
    arms = [FALLING.format(top=40, low=low, name="v") for low in (5, 20)]
    words = ["race", *V, "-n", "low", "-n", "high", *arms]
    for _ in range(2):
        done = invoke(*words)
        check(done, 2, "The values of v fall", "race again with --minimize, or with --maximize")
        assert "Use " not in done.stdout
        assert "finished" not in done.stderr
    assert race(*V, "--minimize", *words[3:])["recommended"] == "low"
    found = race(*V, "--maximize", *words[3:])
    assert (found["is_less_better"], {arm["best"] for arm in found["arms"]}) == (False, {39})


def test_lines_of_several_series_bring_a_warning():
    """Training and validation under one name, and how to choose one of them."""
    text = """for n in $(seq 1 40); do
    echo '{"mode": "train", "recall": '0.$((50 + n / %d))'}'
    echo '{"mode": "val", "recall": '0.$((10 + n / %d))'}'; sleep 0.01; done"""
    words = ["-n", "a", "-n", "b", text % (2, 1), text % (1, 4)]
    (said,) = (text for text in race(*words)["trust"] if "several series" in text)
    assert "seem to be of several series, since values jump to and fro, and all count." in said
    assert said.endswith(" So are those of 1 more.")
    assert r"--metric '^(?=.*\bWORD\b).*?recall\W+([0-9.]+)'" in said
    found = race("--metric", r"^(?=.*\bval\b).*?recall\W+([0-9.]+)", *words)
    assert [arm["best"] for arm in found["arms"]] == pytest.approx([0.5, 0.2])


def test_a_finished_race_keeps_its_answer():
    """Asked again, it is raced in a folder of its own; one that was not finished is begun anew."""
    words = [*V, "-n", "a", "-n", "b", COUNT.format(count=5), COUNT.format(count=9)]
    first = Path(race(*words)["folder"])
    kept = {path: path.read_bytes() for path in first.iterdir() if path.is_file()}
    done = invoke("race", *words)
    check(done, 0, f"its answer is {first}/answer.json", f"{first}-2")
    assert kept == {path: path.read_bytes() for path in kept}
    assert race(*words)["folder"] == f"{first}-3"
    file = Path(f"{first}-3") / "answer.json"
    file.write_text(file.read_text().replace('"is_over": true', '"is_over": false'))
    assert race(*words)["folder"] == f"{first}-3"


@pytest.mark.parametrize(("budget", "seconds"), [("1m", 30), ("10m", 200)])
def test_arms_may_be_silent_for_a_third_of_the_time(monkeypatch, budget, seconds):
    """Their start-up counts, and an evaluation each 70 s is no fault within ten minutes."""
    given: list[float] = []

    def stopped(*_, silence_seconds, **__):
        given.append(silence_seconds)
        raise UsageError("enough")

    monkeypatch.setattr(pipeline, "Field", stopped)
    words = ["race", "--budget", budget, "echo a", "echo b"]
    check(invoke(*words), 2, "enough")
    assert given == [seconds]


def test_no_metric_at_all_is_a_failure():
    done = invoke("race", "echo a", "echo b")
    check(done, 6, "No arm printed a metric. echo a: ended and printed no metric, last lines: a.")


def test_lines_that_are_no_metric_are_shown_early(monkeypatch):
    monkeypatch.setattr(pipeline, "SILENCE", (1.0, 0.0))
    words = ["race", *V, "--budget", "3s"]
    done = invoke(*words, "while :; do echo value 0.3; sleep 0.05; done", COUNT.format(count=5))
    said = "has printed no metric yet, but: value 0.3"
    check(done, 0, said, "--metric is the name of a number")
    assert done.stderr.index(said) < done.stderr.index("no metric in 1 s of running")


def test_a_target_that_nobody_reaches_has_its_own_code():
    words = [*V, "--target", "99", COUNT.format(count=5), COUNT.format(count=6)]
    found = race(*words, code=6)
    assert found["recommended"] is None
    assert "No arm reached v 99: the best value is 6" in found["headline"]


def test_finalists_are_repeated_with_their_seeds(tmp_path):
    log = tmp_path / "log"
    count = COUNT.format(count=15).replace("0.01", "0.0{k}")
    command = f"echo k{{k}} {{seed}} >> {log}; {count}"
    found = race(command, *V, "--try", "k=1,9", "--budget", "20s", "--seeds", "2")
    assert found["recommended"] == "k=1"
    assert sorted(log.read_text().splitlines()) == ["k1 0", "k1 1", "k9 0", "k9 1"]


def test_the_field_is_limited_by_memory(monkeypatch):
    """There is memory for one: the second would take as much."""
    monkeypatch.setattr(arms_module, "available_memory", lambda: 1000)
    found = race(*V, "--budget", "1.5s", "--try", "pace=1,2", ENDLESS, code=6)
    first, second = by_name(found).values()
    assert (first["status"], second["status"]) == ("alone", "not begun")
    assert second["reason"].startswith("no memory")
    assert first["memory_bytes"] > 1000
    assert any("1 arm did not begin" in each for each in found["trust"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["echo"], "There is one arm, so there is no race."),
        (["echo {x}", "--try", "x"], "give a name and its values"),
        (["echo {x}", "--try", "x=,"], "give a name and its values"),
        (["echo {x}", "--try", "x=1,2", "--try", "x=3"], "given twice"),
        (["echo {x}", "--try", "x=1,2", "--seeds", "2"], "Write {seed} where"),
        (["echo {x}", "--try", "x=1,2", "--seeds", "0"], "must be at least 1"),
        (["echo {x}", "--try", "x=1,2", "--budget", "0s"], "must be positive"),
        (["echo {x}", "--try", "x=1,2", "--target", "nan"], "give a number"),
        (["echo {x}", "--try", "x=1,2", "--metric", "("], "no regular expression"),
    ],
)
def test_impossible_races_are_refused(tmp_path, words, said):
    """Before anything is written."""
    done = invoke("race", *words)
    check(done, 2, said)
    assert not (tmp_path / "runs").exists()


def test_a_file_that_cannot_be_written_is_refused_first(tmp_path):
    words = ["race", "echo a", "echo b"]
    done = invoke(*words, "--markdown", tmp_path / "none" / "arms.md")
    check(done, 3, "Make the folder first: mkdir -p")
    assert not (tmp_path / "runs").exists()


def start(tmp_path, *words, **more):
    """Start a race of two endless arms that name the folder."""
    command = f"T={tmp_path} && {ENDLESS}"
    all_words = ["race", *V, "--try", "pace=1,2"]
    program = [sys.executable, "-m", "ncfbench", *all_words, *words, command]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(program, **pipes, **more)


def outputs(tmp_path):
    return [log.read_text() for log in tmp_path.glob("runs/race/*/*.log")]


def both_run(tmp_path):
    return sum("v=" in text for text in outputs(tmp_path)) == 2


def test_an_interrupted_race_answers_and_leaves_nothing(tmp_path):
    process = start(tmp_path)
    wait(lambda: both_run(tmp_path))
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=RACE_LIMIT_SECONDS)
    assert process.returncode == 130, err
    assert "Use pace=" in out
    assert "Interrupted; this is the answer so far." in err
    assert left_behind(f"T={tmp_path}") == []


def test_a_suspended_race_suspends_its_arms(tmp_path):
    """By Ctrl-Z; continued, it goes on."""
    process = start(tmp_path, "--budget", "60s")
    wait(lambda: both_run(tmp_path))
    process.send_signal(signal.SIGTSTP)
    wait(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
    logs = [*tmp_path.glob("runs/race/*/*.log")]
    size = sum(log.stat().st_size for log in logs)
    arms = [each for each in psutil.process_iter() if f"T={tmp_path}" in " ".join(cmdline(each))]
    shells = [each for each in arms if cmdline(each)[0] == "/bin/sh"]
    assert len(shells) >= 2, "a shell that is about to start a program counts twice"
    time.sleep(0.3)
    status = {each.status() for each in shells}
    waits = psutil.STATUS_DISK_SLEEP  # A shell whose new process is stopped before it has begun.
    assert psutil.STATUS_STOPPED in status <= {psutil.STATUS_STOPPED, waits}
    assert sum(log.stat().st_size for log in logs) == size
    process.send_signal(signal.SIGCONT)
    wait(lambda: sum(log.stat().st_size for log in logs) > size)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=RACE_LIMIT_SECONDS)


def test_a_killed_race_leaves_nothing_but_its_answer(tmp_path):
    """That of the last rung. The same command begins again in its folder."""
    process = start(tmp_path, "--budget", "10s")
    wait(lambda: any(tmp_path.glob("runs/race/*/answer.json")))
    process.kill()
    process.communicate()
    wait(lambda: left_behind(f"T={tmp_path}") == [])
    (file,) = tmp_path.glob("runs/race/*/answer.json")
    found = json.loads(file.read_text())
    assert (found["recommended"], found["is_over"]) == ("pace=1", False)
    words = ["--try", "pace=1,2", f"T={tmp_path} && {ENDLESS}"]
    assert race(*V, "--budget", "3s", *words)["folder"] == str(file.parent)


@pytest.mark.long
@pytest.mark.parametrize("kill", range(8))
def test_random_kills_leave_nothing(tmp_path, kill):
    """Of the race, its terminal's process group, an arm, or a keeper, at a random moment."""
    draw = random.Random(kill)
    process = start(tmp_path, "--budget", "20s", start_new_session=True)
    wait(lambda: bool(outputs(tmp_path)))
    time.sleep(draw.uniform(0, 2))
    keepers, arms = [], []
    for each in psutil.Process(process.pid).children(recursive=True):
        with suppress(psutil.Error):
            (keepers if "keeper.py" in " ".join(each.cmdline()) else arms).append(each)
    kind = kill % 4
    if kind == 0:
        process.kill()
    elif kind == 1:
        os.killpg(process.pid, draw.choice([signal.SIGKILL, signal.SIGHUP]))
    else:
        with suppress(psutil.Error, IndexError):
            draw.choice(keepers if kind == 2 else arms).kill()
        process.send_signal(signal.SIGINT)
    process.communicate(timeout=RACE_LIMIT_SECONDS)
    wait(lambda: left_behind(f"T={tmp_path}") == [])
