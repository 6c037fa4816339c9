"""``ncfbench race`` from beginning to end, of commands that print lines in virtual time."""

import json
import os
import signal
from itertools import product
from pathlib import Path

import pytest
from support.cli import check, invoke
from support.processes import COUNT, FakeProcess, V, by_name, counted, race

from ncfbench.racing import arm as arms
from ncfbench.racing import pipeline
from ncfbench.racing.commands import make_commands
from ncfbench.racing.metric import HINT

ENDLESS = {"pace 1": counted(9000), "pace 2": counted(9000, 0.02)}
PACES = (*V, "--try", "pace=1,2", "pace {pace}")


def test_every_combination_is_an_arm():
    parameters = {"lr": ["1e-4", "1e-3"], "batch": ["8", "16", "32"]}
    commands = make_commands(["train --lr {lr} -b {batch} {other}"], parameters=parameters)
    wanted = {f"train --lr {lr} -b {b} {{other}}" for lr, b in product(*parameters.values())}
    assert {arm.filled() for arm in commands} == wanted
    assert commands[1].name == "lr=1e-4 batch=16"
    assert [arm.learning_rate for arm in commands[::3]] == [1e-4, 1e-3]
    assert make_commands(["a {seed}", "b"])[0].filled(3) == "a 3"
    commands = make_commands(["a {x}", "b"], names=["first"], parameters={"x": ["1", "2"]})
    assert [arm.name for arm in commands] == ["first x=1", "first x=2", "b x=1", "b x=2"]


def test_real_programs_race():
    done = invoke("race", *V, "-n", "few", COUNT.format(count=5), COUNT.format(count=9))
    check(done, 0, "Use n=0;", "times later (95 %)", "How far to trust it", "To train it", "few")


def test_curves_race_to_their_answer(tmp_path, world):
    """The quick one reaches 0.475 of 0.5 after 0.095 s, the slow one after 0.38 s."""
    world.scripts = {
        f"play {name}": [
            (1 + t / 100, f'{{"value": {min(0.5, 0.5 * t / 100 / whole)}, "step": {t}}}')
            for t in range(2, 60, 2)
        ]
        for name, whole in (("quick", 0.1), ("slow", 0.4), ("low", 3.0))
    }
    words = ["--try", "arm=slow,quick,low", "--markdown", tmp_path / "answer.md"]
    answer = race("play {arm}", *words)
    arms = by_name(answer)
    assert answer["recommended"] == "arm=quick"
    assert answer["level"] == pytest.approx(0.475)
    assert arms["arm=quick"]["startup_seconds"] == pytest.approx(1)
    assert arms["arm=quick"]["seconds"] == pytest.approx(0.095, abs=0.003)
    assert arms["arm=slow"]["times_later"] == pytest.approx(4, rel=0.03)
    assert answer["next"][0]["command"] == arms["arm=quick"]["command"] == "play quick"
    assert "Use arm=quick" in (tmp_path / "answer.md").read_text()
    assert not any(process.is_alive for process in world.processes)
    assert answer["spent_seconds"] < 9, "all have ended by themselves"


def test_every_end_of_an_arm_is_told(world):
    world.scripts = {
        "good": counted(20),
        "crash": [(0.1, "v=1"), (0.1, "bad luck"), (0.2, 3)],
        "silent": [(900, 0)],
        "stuck": [(0.1, "v=1"), (900, 0)],
        "mute": [(0.1, "nothing to see"), (0.1, 0)],
        "nan": [(0.1, "v=0.1"), (0.2, "v=nan"), (900, 0)],
    }
    answer = race("--budget", "8m", "--metric", "v=([0-9.]+|nan)", *world.scripts)
    ends = {name: (arm["status"], arm["reason"]) for name, arm in by_name(answer).items()}
    assert ends == {
        "good": ("recommended", "by itself"),
        "crash": ("failed", "ended with exit code 3, last lines: bad luck"),
        "silent": ("failed", f"no metric in 160 s of running, it printed nothing. {HINT}"),
        "stuck": ("failed", "no metric in 160 s of running, since its last one"),
        "mute": ("failed", f"ended and printed no metric, last lines: nothing to see. {HINT}"),
        "nan": ("diverged", "its metric became nan"),
    }


def test_a_name_says_how_a_process_ended():
    """Of real-time signals only the first and the last one have names."""
    ends = dict.fromkeys((None, -9), "was killed, perhaps for want of memory")
    ends |= {-15: "was ended by SIGTERM", 3: "ended with exit code 3"}
    ends |= {-signal.SIGRTMIN - 1: f"was ended by signal {signal.SIGRTMIN + 1}"}
    assert {code: arms._end(code) for code in ends} == ends


def test_a_loss_is_minimised_by_its_name(world):
    """Where a name says nothing and numbers fall, no arm is chosen, and no finished race is left:
    that is a question.
    """

    def ask(name, *more):
        for arm, most in (("low", 35), ("high", 20)):
            falling = counted(most, text="{}")
            world.scripts[arm] = [(at, f"{name}={40 - int(number)}") for at, number in falling]
        return "--metric", f"{name}=([0-9.]+)", *more, "low", "high"

    answer = race(*ask("val_loss"))
    said = "Less val_loss is better, by its name; --maximize if not."
    assert (answer["recommended"], answer["trust"][0]) == ("low", said)
    for _ in range(2):
        done = invoke("race", *ask("v"))
        check(done, 2, "The values of v fall", "race again with --minimize, or with --maximize")
        assert ("Use " in done.stdout, "finished" in done.stderr) == (False, False)
    assert race(*ask("v", "--minimize"))["recommended"] == "low"
    answer = race(*ask("v", "--maximize"))
    assert (answer["is_less_better"], answer["arms"][0]["best"]) == (False, 39)


def test_lines_of_several_series_bring_a_warning(world):
    form = '{"mode": "%s", "recall": %g}'
    for arm, training, validation in (("a", 2, 1), ("b", 1, 4)):
        world.scripts[arm] = [
            (0.01 * n, form % (mode, begin + n // pace / 100))
            for n in range(1, 41)
            for mode, begin, pace in (("train", 0.5, training), ("val", 0.1, validation))
        ]
    (said,) = (text for text in race("a", "b")["trust"] if "several series" in text)
    assert "since values jump to and fro, and all count." in said
    assert said.endswith(" So are those of 1 more.")
    narrowed = r"^(?=.*\bWORD\b).*?recall\W+([0-9.]+)"
    assert f"--metric '{narrowed}'" in said
    answer = race("--metric", narrowed.replace("WORD", "val"), "a", "b")
    assert [arm["best"] for arm in answer["arms"]] == pytest.approx([0.5, 0.2])


def test_a_finished_race_keeps_its_answer(world):
    """Asked again, it is raced in a folder of its own; one that was not finished is begun anew."""
    world.scripts = {"a": counted(5), "b": counted(9)}
    words = [*V, "a", "b"]
    first = Path(race(*words)["folder"])
    kept = {path: path.read_bytes() for path in first.iterdir() if path.is_file()}
    printed = invoke("race", *words)
    check(printed, 0, f"its answer: ncfbench report {first})", f"{first}-2")
    assert invoke("report", f"{first}-2").stdout == printed.stdout
    assert kept == {path: path.read_bytes() for path in kept}
    assert race(*words)["folder"] == f"{first}-3"
    file = Path(f"{first}-3") / "answer.json"
    file.write_text(file.read_text().replace('"is_over": true', '"is_over": false'))
    assert race(*words)["folder"] == f"{first}-3"


def test_lines_that_are_no_metric_are_shown_early(world):
    world.scripts = {"a": counted(9000, 0.05, "value {}"), "b": counted(5)}
    done = invoke("race", *V, "--budget", "1m", "a", "b")
    said = "has printed no metric yet, but: value "
    check(done, 0, said, "--metric is the name of a number")
    assert done.stderr.index(said) < done.stderr.index("no metric in 30 s of running")


def test_a_race_without_an_answer_has_its_own_code(world):
    world.scripts = {"a": counted(5), "b": counted(6)}
    answer = race(*V, "--target", "99", "a", "b", code=6)
    assert answer["recommended"] is None
    assert [arm["status"] for arm in answer["arms"]] == ["slower"] * 2
    assert "No arm reached v 99: the best value is 6" in answer["headline"]
    world.scripts = {name: [(0.1, name), (0.1, 0)] for name in "ab"}
    said = "No arm printed a metric. a: ended and printed no metric, last lines: a."
    check(invoke("race", "a", "b"), 6, said)


def test_finalists_are_repeated_with_their_seeds(world):
    for k, seed in product((1, 9), range(2)):
        world.scripts[f"k{k} {seed}"] = counted(15, k / 100)
    answer = race("k{k} {seed}", *V, "--try", "k=1,9", "--budget", "20s", "--seeds", "2")
    assert answer["recommended"] == "k=1"
    assert world.begun == ["k1 0", "k9 0", "k1 1", "k9 1"]


def test_the_field_is_limited_by_memory(monkeypatch, world):
    world.scripts = ENDLESS
    monkeypatch.setattr(arms, "available_memory", lambda: FakeProcess.MEMORY)
    answer = race(*PACES, "--budget", "10s", code=6)
    first, second = by_name(answer).values()
    assert (first["status"], second["status"]) == ("alone", "not begun")
    assert first["memory_bytes"] == FakeProcess.MEMORY
    assert second["reason"].startswith("no memory")
    assert any("1 arm did not begin" in text for text in answer["trust"])


def send(number):
    return lambda: os.kill(os.getpid(), number)


def test_a_race_that_is_cut_short_answers(world, tmp_path, monkeypatch):
    """By Ctrl-C with the answer so far; when it is killed, that of the last rung is there. Other
    programs are at work.
    """
    monkeypatch.setattr(pipeline.OtherPrograms, "cores", lambda _: 64.0)
    kept = []

    def look():
        kept.extend(tmp_path.glob("runs/race/*/answer.json"))
        answer = json.loads(kept[0].read_text())
        assert (answer["recommended"], answer["is_over"]) == ("pace=1", False)

    cut = [*counted(2500), (25, look), (25, send(signal.SIGINT)), (900, 0)]
    world.scripts = ENDLESS | {"pace 1": cut}
    done = invoke("race", *PACES, "--budget", "1m")
    check(done, 130, "Use pace=1", "Interrupted; this is the answer so far.")
    check(done, 130, "other programs use 64.0 of", "Meanwhile other programs used 64.0 of")
    assert len(kept) == 1
    assert not any(process.is_alive for process in world.processes)


def test_no_time_passes_while_a_race_is_suspended(monkeypatch, world):
    kill, paused = os.kill, []

    def stop(process, number):
        if number == signal.SIGSTOP:
            paused.append([process.is_paused for process in world.processes])
            world.now += 5000
        else:
            kill(process, number)

    world.scripts = {"a": [*counted(99), (1.0, send(signal.SIGTSTP)), (2.0, "v=100")]}
    world.scripts["b"] = counted(9)
    monkeypatch.setattr(os, "kill", stop)
    answer = race(*V, "a", "b")
    assert paused == [[True, True]]
    assert answer["spent_seconds"] < 20
    assert by_name(answer)["a"]["running_seconds"] == pytest.approx(2)
