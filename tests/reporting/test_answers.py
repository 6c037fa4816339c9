"""The answer of a report: one target, the baseline at its best, ties, recall."""

import json
from typing import Any

import pytest
from folders import change, floor_row, write_run
from invoked import check, invoke

from ncfbench.reporting.answers import find_answers
from ncfbench.reporting.frames import group
from ncfbench.reporting.quality import Quality
from ncfbench.reporting.results import collect
from ncfbench.reporting.views import answers as views
from ncfbench.reporting.views.answer_rows import as_rows
from ncfbench.reporting.views.run import run_table
from ncfbench.runs.folder import read, read_all
from ncfbench.runs.quality import CERTAIN
from ncfbench.storage import schemas, tables


def answers_of(folder, **options):
    return find_answers(group(read_all(folder)[0]), **options)


def answer_of(folder, **options):
    (found,) = answers_of(folder, **options)
    return found


def statuses(answer):
    return {each.name: each.status for each in answer.arms}


def test_the_baseline_is_taken_at_its_best(tmp_path):
    """Probes every 100 iterations. iid comes to 3 at iteration 200 in 100 ms (b=512: 20 s), or in
    20 ms with b=128: 4 s; at 2.9 the slow one ends, where b=128 never is.
    """
    write_run(tmp_path, "iid", [9, 5, 3, 2.9], 100)
    write_run(tmp_path, "iid", [9, 5, 3, 3.1], 20, batch_size=128)
    write_run(tmp_path, "strat-ns", [9, 3, 2, 1.9], 10)
    write_run(tmp_path, "ns", [9, 6, 4, 3.5], 10)
    answer = answer_of(tmp_path)
    assert answer.baseline.name == "iid b=128"
    assert answer.target == 3
    best = answer.best
    assert best.name == "strat-ns b=512"
    assert (best.iterations, best.seconds) == (100, 1.0)
    assert best.sooner.total.value == pytest.approx(4.0)
    assert statuses(answer) == {
        "strat-ns b=512": "best",
        "iid b=128": "slower",
        "iid b=512": "slower",
        "ns b=512": "never",
    }
    by_name = {each.name: each for each in answer.arms}
    slow = by_name["iid b=512"].sooner
    assert slow.total.value == pytest.approx(4 / 20)
    never = by_name["ns b=512"].sooner
    assert never.total_at_most == pytest.approx(200 * 20 / (300 * 10))


def test_the_paragraph_says_what_and_why(tmp_path):
    for seed in range(2):
        taken: dict[str, Any] = {"seed": seed, "interleaved": ["a"]}
        write_run(tmp_path, "iid", [9, 5, 3, 3], 40, [0, 0.1, 0.2, 0.25], **taken)
        write_run(tmp_path, "strat-ns", [9, 3, 2, 2], 10, [0, 0.1, 0.3, 0.4], **taken)
    answer = answer_of(tmp_path)
    text = views.headline(answer)
    assert text.startswith(
        "Use --loss sg --sampler strat-ns --batch-size 512 --set stratum_size=4 --learning-rate"
        " 0.01."
    )
    assert "smallest loss of iid (3) 8 times sooner (95 %: 8 to 8, 2 seeds): in 1 s" in text
    assert "10 ms instead of 40, and it needs 100 iterations instead of 200." in text
    assert text.endswith(
        "Recall@50 of test links: 0.400 at epoch 3, the baseline's 0.250 at epoch 3."
    )
    assert not any("take turns" in each for each in views.trust(answer, {}))
    ours = {"--runs-dir": str(tmp_path)}
    assert "one batch size and one learning rate" in views.trust(answer, ours)[-1]
    row = as_rows([answer], ours)[0]
    assert [arm["status"] for arm in row["arms"]] == ["best", "slower"]
    assert row["arms"][0]["times_sooner"] == pytest.approx(8.0)


def test_an_arm_has_one_recall_of_one_epoch(tmp_path):
    """Validation chose 0.42 at epoch 2 of ns; it ends at 0.4, and ridge is between. Seeds may
    report other epochs: 2 and 3 of iid are 2.5 in the mean. All tables and sentences say so.
    """
    errors = (0.001, 0.001)
    tables.write_rows(tmp_path / "floors.parquet", [floor_row("ridge", 0.405, 1.0)], schemas.FLOOR)
    for seed in range(2):
        more: dict[str, Any] = {"seed": seed, "errors": errors}
        rises = [0, 0.1, 0.2 + seed / 10, 0.25]
        recalls = [0, 0.3, 0.3, 0.32]
        write_run(tmp_path, "iid", [9, 5, 4, 3], 200, recalls, validation=rises, **more)
        own = [0, 0.3, 0.42, 0.4]
        write_run(tmp_path, "ns", [9, 5, 2, 1], 20, own, validation=[0, 0.1, 0.3, 0.2], **more)
    (found,) = json.loads(invoke("report", tmp_path, "--json").stdout)["answers"]
    answer = answer_of(tmp_path)
    arms = {arm.name: arm for arm in answer.arms}
    assert [arms[name].chosen.recall for name in ("ns", "iid")] == pytest.approx([0.42, 0.31])
    assert [arms[name].epoch for name in ("ns", "iid")] == [2, 2.5]
    (floor,) = found["floors"]
    assert (floor["best_arm"], floor["above_by"]) == ("passes", pytest.approx(0.42 - 0.405))
    assert "Recall@50 of test links: 0.420 ± 0.001 at epoch 2" in found["headline"]
    assert "the baseline's 0.310 ± 0.010 at epoch 2.5" in found["headline"]
    table = views.answer_tables([answer], {})[0]
    shown = {row[0].text: [cell.text for cell in row[-2:]] for row in table.rows}
    assert shown == {"ns": ["0.420 ± 0.001", "2"], "iid": ["0.310 ± 0.010", "2.5"]}
    assert any(note.startswith("its: iterations. recall@50: of test") for note in table.notes)
    recall = {row["sampler"]: row for row in collect(tmp_path, tmp_path).recall}
    assert recall["ns"]["test_recall_at_50"] == pytest.approx(0.42)
    assert recall["iid"]["reported_epoch"] == 2.5
    check(invoke("report", tmp_path, "--verify"), 0, "0 do not match")


@pytest.mark.parametrize(
    ("losses", "sentence"),
    [
        (None, "No run of the baseline, iid, is finished, so there is no ratio."),
        ([9, 3, 5, 5, 5, 5, 5, 5, 5], "No ratio: iid has not trained: its smallest loss comes at"),
    ],
)
def test_without_a_baseline_there_is_no_ratio(tmp_path, losses, sentence):
    if losses is not None:
        write_run(tmp_path, "iid", losses, 10)
    write_run(tmp_path, "ns", [9, 5, 3], 10)
    write_run(tmp_path, "strat-ns", [9, 5, 3], 10)
    answer = answer_of(tmp_path)
    assert answer.best is None
    assert views.headline(answer).startswith(sentence)
    assert set(statuses(answer).values()) == {"no target"}
    is_table = "Speedup over iid" in invoke("report", tmp_path).stdout
    assert is_table == (losses is not None), "a table without any ratio is left out"


def test_losses_that_only_rise_give_no_answer(tmp_path):
    """The rate was too high, and there are few probes: each arm is at its best before training."""
    for sampler in ("iid", "ns"):
        write_run(tmp_path, sampler, [3, 4, 5], 10, [0, 0.1, 0.1])
    answer = answer_of(tmp_path)
    said = "No ratio: iid has not trained: its loss was never below the 3 before training."
    assert views.headline(answer).startswith(said)
    for words in (["--full", "--paper"], ["--json"], ["--verify"]):
        check(invoke("report", tmp_path, *words), 0)


def test_a_baseline_without_times_is_no_diverged_one(tmp_path):
    base = write_run(tmp_path, "iid", [9, 5, 3], 10)
    write_run(tmp_path, "ns", [9, 5, 3], 10)
    change(base, "timing", lambda rows: rows.clear())
    change(base, "summary", lambda rows: rows[0].update(full_iteration_seconds=None))
    assert views.headline(answer_of(tmp_path)) == "No ratio: iid has no times."
    change(base, "summary", lambda rows: rows[0].update(status="diverged"))
    assert views.headline(answer_of(tmp_path)) == "No ratio: iid diverged."


def test_revisions_of_an_encoder_have_answers_of_their_own(tmp_path):
    """iid and ns of another LSTM than strat-ns, which is no rival of theirs."""
    for sampler, ms, revision in (("iid", 200, 2), ("ns", 20, 2), ("strat-ns", 1, 1)):
        folder = write_run(tmp_path, sampler, [9, 5, 3], ms, encoder="lstm")
        path = folder / "config.json"
        tables.write_json(path, tables.read_json(path) | {"revisions": {"encoder": revision}})
    old, new = sorted(answers_of(tmp_path), key=lambda answer: -len(answer.arms))
    assert statuses(old) == {"ns": "best", "iid": "slower"}
    assert statuses(new) == {"strat-ns": "no target"}
    assert old.named("answer") != new.named("answer")
    assert "encoder revision 2" in views.answer_tables([old], {})[0].title
    check(invoke("report", tmp_path), 0)
    check(invoke("report", tmp_path, "--verify"), 0, "0 do not match")


def test_another_baseline(tmp_path):
    """Where iid is too dear: ns comes to its smallest loss, 3, at iteration 300 after 9 s, strat-ns
    at iteration 200 after 2 s. What is kept beside the runs has the usual baseline.
    """
    write_run(tmp_path, "ns", [9, 6, 4, 3], 30)
    write_run(tmp_path, "strat-ns", [9, 6, 3, 2], 10)
    usual = invoke("report", tmp_path)
    assert "To measure against another sampler: --baseline ns." in " ".join(usual.stdout.split())
    kept = (tmp_path / "speedup.parquet").read_bytes()
    found = json.loads(invoke("report", tmp_path, "--baseline", "ns", "--json").stdout)
    rows = {row["sampler"]: row for row in found["speedup"] if row["runs"]}
    assert {row["baseline"] for row in rows.values()} == {"ns"}
    assert rows["ns"]["status"] == "baseline"
    parts = ("per_iteration_speedup", "iterations_speedup", "total_speedup")
    assert [rows["strat-ns"][part] for part in parts] == pytest.approx([3.0, 1.5, 4.5])
    assert found["answers"][0]["best"] == "strat-ns"
    assert (tmp_path / "speedup.parquet").read_bytes() == kept
    for more in (["--export", tmp_path / "out"], ["--paper"], ["--verify"]):
        check(invoke("report", tmp_path, "--baseline", "ns", *more), 2)
    refused = invoke("report", tmp_path, "--baseline", "iid")
    check(refused, 2, "No run has the sampler 'iid'")


def test_one_arm_has_an_answer_without_a_choice(tmp_path):
    """After a first run the report says what is missing, not that this arm is the best."""
    write_run(tmp_path, "iid", [9, 5, 3], 10, [0, 0.2, 0.3], dimension=20)
    write_run(tmp_path / "k", "iid", [9, 5, 3], 10, negatives=2)
    assert answer_of(tmp_path / "k").subject == "citeulike, CNN, SG, b=512, seed 0"
    answer = answer_of(tmp_path)
    assert answer.subject == "citeulike, CNN, SG, b=512, k=10, dimension=20, seed 0"
    assert answer.best is None
    assert views.headline(answer) == "iid is the only arm so far: there is nothing to compare."
    command = "ncfbench advise citeulike --runs-dir 'my runs'"
    assert views.trust(answer, {"--runs-dir": "my runs"})[-1] == command
    printed = invoke("report", tmp_path).stdout
    assert printed.startswith("Which sampler trains soonest: citeulike")
    assert "0.300" in printed


def test_the_newest_environment_counts(tmp_path):
    """Three older runs of another machine lose to two newer ones."""
    for sampler, ms in (("iid", 100), ("ns", 10)):
        write_run(tmp_path, sampler, [9, 5, 3], ms, time="2026-02-01")
    for sampler in ("iid", "ns", "strat-ns"):
        write_run(tmp_path, sampler, [9, 5, 3], 1, key="other", time="2026-01-31", seed=1)
    write_run(tmp_path, "neg", [9, 5, 3], 1, status="diverged", time="2026-02-01")
    answer = answer_of(tmp_path)
    assert statuses(answer) == {"ns": "best", "iid": "slower", "neg": "diverged"}
    reasons = " ".join(caveat.sentence for caveat in answer.reasons)
    assert "3 runs of another machine or environment left out" in reasons


def test_longer_runs_replace_shorter_ones_of_an_arm(tmp_path):
    for epochs, losses in ((2, [9, 5, 4]), (3, [9, 5, 4, 3])):
        write_run(tmp_path, "iid", losses, 100, epochs=epochs)
    write_run(tmp_path, "ns", [9, 5, 4, 3], 10, epochs=3)
    answer = answer_of(tmp_path)
    assert len(answer.arms) == 2
    assert answer.target == 3
    reason = "1 run left out: a longer one has its arm and seed."
    assert [*answer.reasons] == [("shorter_runs", reason)]


@pytest.mark.parametrize(
    ("setting", "values"),
    [
        ("patience", (3, 10)),
        ("probe_every", (0, 50)),
        ("item_block", (0, 64)),
    ],
)
def test_arms_differ_in_any_setting(tmp_path, setting, values):
    """Runs of one seed that differ in a setting alone are two arms, with names of their own."""
    for value in values:
        for sampler, ms in (("iid", 100), ("ns", 10)):
            write_run(tmp_path, sampler, [9, 5, 3], ms, **{setting: value})
    answer = answer_of(tmp_path)
    assert len(statuses(answer)) == 4
    found = {(each.config.sampler, getattr(each.config, setting)) for each in answer.arms}
    assert found == {(sampler, value) for sampler in ("iid", "ns") for value in values}


def test_other_objectives_and_models_have_other_answers(tmp_path):
    for more in ({}, {"loss": "mse"}, {"encoder": "lstm"}, {"dimension": 20}):
        for sampler in ("iid", "ns"):
            write_run(tmp_path, sampler, [9, 5, 3], 10, **more)
    found = answers_of(tmp_path)
    assert len(found) == 4
    assert [each.settings for each in found].count("dimension=20") == 1
    assert len({each.named("answer") for each in found}) == 4


def add_recall(run, **ends):
    """Add to the last test recall@50 of a run, for example its error."""
    added = {f"test_recall_at_50_{end}": value for end, value in ends.items()}
    for table in ("curve", "summary"):
        change(run, table, lambda rows: rows[-1].update(added))


def test_a_certain_recall_is_marked_where_it_stands(tmp_path):
    """With as many test items as M or fewer, recall@M is 1 whatever was learned."""
    for sampler in ("iid", "ns"):
        run = write_run(tmp_path, sampler, [9, 5, 3], 10, [0, 1.0, 1.0])
        add_recall(run, chance=1.0)
    text = invoke("report", tmp_path).stdout
    assert text.lower().count("recall@50 is 1 by construction") == 3  # paragraph, both tables
    summary = {**read(run).summary, "train_seconds": 1.0}
    assert CERTAIN in [row[1].text for row in run_table(summary, []).rows]


def test_one_meaning_of_plus_minus(tmp_path):
    """Errors of 0.03 over users and 0.04 over items in each seed; recalls of 0.3 and 0.5, whose
    variance is 0.02: sqrt(0.0009 + 0.0016 + 0.02 / 2) = 0.1118.
    """
    for sampler in ("iid", "ns"):
        for seed, recall in enumerate((0.3, 0.5)):
            run = write_run(tmp_path, sampler, [9, 5, 3], 10, [0, 0.2, recall], seed=seed)
            add_recall(run, error=0.03, item_error=0.04, chance=0.1)
    text = invoke("report", tmp_path, "--full").stdout
    assert text.count("0.400 ± 0.112") == 6  # the block, the paragraph, two arms, their quality
    assert text.count("0.4000 ± 0.1118 (2)") == 2
    assert text.count("±: standard error over users and items, and over seeds") == 4


def test_details_are_folded_until_they_are_wanted(tmp_path):
    for s in (1, 2, 4):
        write_run(tmp_path, "strat-ns", [9, 4, 2], 20 * s * s, [0, 0.2, 0.3], stratum_size=s)
    write_run(tmp_path, "iid", [9, 5, 3], 300, [0, 0.2, 0.3])
    brief, full = (invoke("report", tmp_path, *more).stdout for more in ([], ["--full", "--paper"]))
    titles = ["All arms", "What the ratios"]
    assert brief.startswith("Which sampler trains soonest")
    assert not any(title in brief for title in titles)
    assert all(title in full for title in titles)
    assert "beside the paper's" in full
    assert "with details (--full)" in brief
    assert "--table arms-citeulike-cnn-sg-ffffff" in brief
    named = invoke("report", tmp_path, "--table", "arms").stdout
    assert named.startswith("All arms")


def test_an_answer_names_easier_targets(tmp_path):
    """iid comes to 7 after a quarter of its 400 iterations, and to 5 after half; ns, whose
    iterations take a tenth of the time, after 33.3 and 66.7.
    """
    write_run(tmp_path, "iid", [9, 7, 5, 4, 3.9], 100)
    write_run(tmp_path, "ns", [9, 3, 2], 10)
    answer = answer_of(tmp_path)
    found = [(share, each.value) for share, each in answer.easier(answer.best)]
    assert found == [(0.25, pytest.approx(30)), (0.5, pytest.approx(30))]
    assert (
        "At easier targets it is 30 times sooner to the loss that iid has after a quarter, and 30"
        " to that after half of those iterations." in views.headline(answer)
    )


def test_the_errors_of_new_and_known_items_are_named():
    values = {
        f"recall_at_50_{part}{end}": value
        for part, value in (("new_items", 0.1), ("known_items", 0.2))
        for end, value in (("", value), ("_error", value / 10))
    }
    text = "new items 0.100 ± 0.010, known items 0.200 ± 0.020"
    assert Quality(3, values).kinds == f"{text}, with errors over users alone"
