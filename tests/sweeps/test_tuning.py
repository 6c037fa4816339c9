"""Tuning: equal trials for every arm, the best is trained, and tuned arms are compared."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from folders import write_run
from hypothesis import given, settings
from hypothesis import strategies as st
from invoked import check, invoke

from ncfbench.config import TUNABLE, complete
from ncfbench.data.sources import synthetic
from ncfbench.data.store import prepare_dataset
from ncfbench.errors import UsageError
from ncfbench.reporting import frames
from ncfbench.reporting.labels import unusual_label
from ncfbench.reporting.rows import compare
from ncfbench.reporting.views.results import speedup_tables
from ncfbench.runs import folder as runs
from ncfbench.runs.trials import FOLDER, MOST_TRIALS, Budget
from ncfbench.sweeps import tuning
from ncfbench.sweeps.cells import Cell, group_cells

BUDGET = Budget(4, 2)


DATASET: Any = SimpleNamespace(ranks_known_items=False)


def cells(**more: Any) -> list[Cell]:
    return [
        Cell(complete({"sampler": sampler, "seed": seed} | more))
        for sampler in ("iid", "ns")
        for seed in (0, 1)
    ]


@given(
    count=st.integers(2, 20),
    names=st.lists(st.sampled_from(TUNABLE), min_size=1, max_size=3, unique=True),
    loss=st.sampled_from(["sg", "mse"]),
)
@settings(deadline=None, max_examples=20)
def test_every_arm_has_the_same_trials(count: int, names: list[str], loss: str) -> None:
    budget = Budget(count, 3, tuple(names))
    arms = cells(loss=loss)
    trials = tuning.add_trials(arms, budget)
    points = set()
    for cell in arms:
        own = [trial.config for trial in cell.trials]
        first = dataclasses.replace(cell.config, seed=tuning.SEED, epochs=3)
        assert own[0] == first, "the arm's own settings are the first trial"
        assert len(set(own)) == len(own) == count
        shared = {(trial.sampler, trial.seed, trial.epochs, trial.tuned) for trial in own}
        assert shared == {(cell.config.sampler, tuning.SEED, 3, "")}
        points.add(tuple(tuple(getattr(trial, name) for name in names) for trial in own))
        if "learning_rate" in names:
            rates = [trial.learning_rate / cell.config.learning_rate for trial in own]
            assert all(0.1 <= rate <= 10 for rate in rates)
            assert count < 5 or (min(rates) < 0.5 and max(rates) > 2), "they reach to both sides"
        assert all(0 <= trial.word_dropout <= 0.8 for trial in own)
    assert len(points) == 1
    assert len(trials) == len({trial.config for trial in trials}) == 2 * count, "seeds share them"


@pytest.mark.parametrize("name", TUNABLE)
@pytest.mark.parametrize("rate", [1e-30, 1.0, 9.99])
def test_a_setting_has_values_for_all_trials(name: str, rate: float) -> None:
    """The most trials that are allowed differ, with three digits: making them ends."""
    config = complete({"sampler": "ns", "learning_rate": rate})
    trials = tuning.make_trials(config, Budget(MOST_TRIALS, 1, (name,)))
    assert len(set(trials)) == MOST_TRIALS


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (lambda: Budget(1, 1), "trials = 1: it must be at least 2 and at most 200"),
        (lambda: Budget(201, 1), "trials = 201: it must be"),
        (lambda: Budget(2, 0), "epochs = 0: it must be at least 1"),
        (lambda: Budget(2, 1, ("lambda",)), "settings = 'lambda'. Valid: learning_rate"),
        (lambda: Budget(2, 1, ()), "at most once, and one or more"),
        (
            lambda: tuning.add_trials([*cells(), *cells(learning_rate=0.5)], BUDGET),
            "several values of learning_rate",
        ),
        (
            lambda: tuning.require_validation(cells(encoder="mf"), {"citeulike": DATASET}),
            "mf has no vector",
        ),
    ],
)
def test_what_cannot_be_tuned_is_refused(wanted: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        wanted()


def tuned(*states: tuple[str, float | None]) -> tuple[Cell, list[str], dict[Cell, str]]:
    """Return an arm whose trials have these states and recalls, when it has chosen."""
    (cell,) = arm = [Cell(complete({"sampler": "ns"}))]
    for trial, (trial.status, recall) in zip(tuning.add_trials(arm, BUDGET), states, strict=True):
        trial.summary = {tuning.MEASURE: recall}
    return cell, *tuning.choose(arm, BUDGET)


def test_the_best_finished_trial_is_chosen() -> None:
    states = [("done", 0.3), ("done", 0.5), ("done", 0.5), ("diverged", 0.9)]
    cell, (sentence,), missing = tuned(*states)
    rate = cell.trials[1].config.learning_rate
    assert (cell.config.learning_rate, cell.config.seed, cell.config.epochs) == (rate, 0, 30)
    assert (cell.config.tuned, cell.config.tuned_settings) == (
        "learning_rate:4x2",
        ("learning_rate",),
    )
    assert f"learning_rate = {rate:g} (validation recall@50 0.5000, 3 trials)" in sentence
    assert missing == {}
    cell, sentences, missing = tuned(*states[:3], ("interrupted", None))
    assert (sentences, missing) == ([], {cell: "1 of its 4 trials did not end"})
    cell, _, missing = tuned(*[("diverged", None)] * 4)
    assert missing == {cell: "none of its 4 trials has a recall of validation links"}


def test_the_label_of_tuned_runs_is_checked() -> None:
    assert complete({"tuned": "learning_rate+item_dropout:4x2"}).tuned_settings == (
        "learning_rate",
        "item_dropout",
    )
    for text in ("yes", "lambda:4x2", "learning_rate:4", "learning_rate"):
        with pytest.raises(UsageError, match="ncfbench sweep --tune"):
            complete({"tuned": text})


def test_arms_tuned_apart_are_compared(tmp_path: Path) -> None:
    for seed in (0, 1):
        own: dict[str, Any] = {"seed": seed, "tuned": "learning_rate:4x2"}
        write_run(tmp_path, "iid", [9, 5, 3], 200, [0.1, 0.2, 0.3], learning_rate=0.02, **own)
        write_run(tmp_path, "ns", [9, 4, 2], 20, [0.1, 0.3, 0.4], learning_rate=0.005, **own)
    write_run(tmp_path, "ns", [9, 4, 2], 20)
    comparisons = compare(frames.group(runs.read_all(tmp_path)[0]))
    found = {one.runs[0].config.tuned: one for one in comparisons}
    assert set(found) == {"", "learning_rate:4x2"}, "tuned runs are not mixed with others"
    tuned = found["learning_rate:4x2"]
    assert unusual_label(tuned.runs[0].config) == "tuned=learning_rate:4x2"
    status = {row["sampler"]: (row["status"], row.get("command")) for row in tuned.speedups}
    assert status["ns"] == ("reached", None)
    assert status["strat-ns"] == ("missing", None), "no command by itself can choose its settings"
    table, *_ = speedup_tables([tuned])
    note = (
        "CNN: learning_rate tuned on validation recall, 4 trials of 2 epochs: iid"
        " learning_rate=0.02; ns"
    )
    assert any(
        text.startswith(note) and text.endswith("learning_rate=0.005.") for text in table.notes
    )
    other = {"dataset": "other", "fingerprint": "e" * 64, "tuned": "learning_rate:4x2"}
    write_run(tmp_path / "o", "iid", [9, 5, 3], 200, [0.1, 0.2, 0.3], learning_rate=0.1, **other)
    others = compare(frames.group(runs.read_all(tmp_path / "o")[0]))
    table, *_ = speedup_tables([tuned, *others])
    for name, rate in (("citeulike", "0.02"), ("other", "0.1")):
        begin, own = f"{name} CNN: learning_rate tuned on", f"iid learning_rate={rate}"
        assert any(text.startswith(begin) and own in text for text in table.notes)
    members = [Cell(run.config) for run in runs.read_all(tmp_path)[0] if run.config.tuned]
    assert [len(group) for group in group_cells(members)] == [2, 2], "they take turns"


SMALL = ("sampler=ns,strat-ns", "loss=sg", "batch_size=64", "dimension=8", "filters=8")
WORDS = [
    *("sweep", "smoke", "--dataset", "tiny", "--epochs", "2", "--quiet", "--json"),
    *(word for text in (*SMALL, "word_dimension=8") for word in ("--set", text)),
]


@pytest.mark.long
def test_the_command_tunes_and_trains_once(data_dir: Path, tmp_path: Path) -> None:
    def tune(*words: str) -> dict[str, Any]:
        locations = ["--data-dir", data_dir, "--runs-dir", tmp_path]
        result = invoke(*WORDS, *locations, "--tune", "2", "--tune-epochs", "1", *words)
        check(result, 0)
        document: dict[str, Any] = json.loads(result.stdout)
        return document

    plan = tune("--dry-run")
    assert [cell["status"] for cell in plan["trials"]] == ["left"] * 4
    assert all(cell["predicted_bytes"] > 0 for cell in plan["trials"] + plan["cells"])
    assert plan["memory_bytes"] > 0
    trained = tune()
    trials, _ = runs.read_all(tmp_path / FOLDER)
    cells, _ = runs.read_all(tmp_path)
    assert (len(trials), len(cells)) == (4, 2)
    for record in cells:
        own = [trial for trial in trials if trial.config.sampler == record.config.sampler]
        recalls = {
            trial.config.learning_rate: max(
                row["validation_recall_at_50"] or 0 for row in trial.curve
            )
            for trial in own
        }
        assert record.config.tuned == "learning_rate:2x1"
        assert recalls[record.config.learning_rate] == max(recalls.values())
        assert len({trial.config.learning_rate for trial in own}) == 2
    assert [cell["status"] for cell in trained["cells"]] == ["done", "done"]
    again = tune("--dry-run")
    assert [cell["status"] for cell in again["cells"] + again["trials"]] == ["done"] * 6


def test_held_out_links_choose_settings(
    tmp_path: Path, tiny_options: synthetic.Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vectors of items are tuned by known items, and nothing speaks of held-out ones."""
    options = dataclasses.replace(tiny_options, hold_out="links")
    dataset = prepare_dataset("synthetic", name="tiny", data_dir=tmp_path, **vars(options))
    words = ["sweep", "smoke", "--dataset", "tiny", "--epochs", "1", "--tune", "2"]
    words += ["--tune-epochs", "1", "--set", "sampler=ns", "--set", "encoder=mf"]
    words += ["--set", "batch_size=64", "--set", "loss=sg", "--set", "dimension=4"]
    words += ["--data-dir", str(tmp_path), "--runs-dir", str(tmp_path / "runs")]
    swept = invoke(*words)
    check(swept, 0, "Tuned: ", "validation recall@50")
    assert not re.search("(test|validation|held-out) items", swept.output)
    (record,), _ = runs.read_all(tmp_path / "runs")
    trials, _ = runs.read_all(tmp_path / "runs" / FOLDER)
    best = max(trials, key=lambda trial: trial.summary["validation_recall_at_50"])
    assert record.config.learning_rate == best.config.learning_rate
    monkeypatch.setattr(tuning, "COMPARED", dataset.n_items - 1)
    (warning,) = tuning.require_validation([Cell(record.config)], {"tiny": dataset})
    n_own = dataset.graph.user_degrees[dataset.links("validation")[0]].min()
    assert warning.startswith(f"tiny has {dataset.n_items - n_own} items to rank for validation")


def test_tuning_needs_validation_items(data_dir: Path, tmp_path: Path) -> None:
    words = "prepare synthetic --name bare --users 120 --items 200 --links 900"
    check(invoke(*words.split(), "--validation-fraction", "0", "--data-dir", tmp_path), 0)
    locations = ["--data-dir", tmp_path, "--runs-dir", tmp_path / "runs"]
    check(invoke(*WORDS, "--dataset", "bare", *locations, "--tune", "2"), 3, "bare has none")
    check(invoke(*WORDS, *locations, "--tune-epochs", "2"), 2, "belongs to --tune N")
