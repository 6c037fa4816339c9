"""Files that repeat runs: what ``ncfbench sweep`` reads out of them is those runs, no more and no fewer."""

from __future__ import annotations

import itertools
import shlex
from pathlib import Path
from typing import Any

import pytest
from folders import write_run

from ncfbench import sweeps, tuning
from ncfbench.config import RunConfig, complete
from ncfbench.report.page import page
from ncfbench.report.repetition import Repetition, repetitions
from ncfbench.report.results import collect


def runs(seeds: int = 1, **axes: Any) -> list[RunConfig]:
    """All possible runs of a grid."""
    grid = {name: value if isinstance(value, list) else [value] for name, value in axes.items()}
    return list(sweeps.expand({"seed": range(seeds), **grid}).cells)


def cells_of(found: list[Repetition], folder: Path) -> list[RunConfig]:
    cells: list[RunConfig] = []
    for number, each in enumerate(found):
        path = folder / f"{number}.toml"
        path.write_text(each.toml(), encoding="utf-8")
        own = sweeps.expand(sweeps.read(str(path)).axes).cells
        assert len(own) == each.runs
        cells += own
    return cells


FIVE = ["iid", "neg", "strat", "ns", "strat-ns"]
SETS = {
    "the paper's speedups": (1, runs(3, encoder="cnn", sampler=FIVE, epochs=10)),
    "all losses and two encoders, whose k differ": (
        1, runs(3, encoder=["cnn", "lstm"], loss=["sg", "mse", "hinge", "log"], sampler=FIVE),
    ),
    "strata of one sampler beside the others": (2, runs(2, sampler=FIVE) + runs(2, sampler="strat-ns", stratum_size=[1, 2, 8])),
    "strata of all that have them": (1, runs(2, sampler=FIVE, stratum_size=[1, 2, 4, 8])),
    "k with its own seeds": (2, runs(3, sampler=FIVE) + runs(1, sampler=["iid", "neg"], negatives=[5, 20])),
    "s and k": (3, runs(1, sampler="strat", stratum_size=[1, 4], negatives=[5, 10]) + runs(1, sampler="ns", dataset="mind") +
                runs(1, sampler="strat", stratum_size=16, negatives=20)),
    "unlike in everything": (
        2,
        [complete({"sampler": "strat-ns", "strata": "user", "lambda": 3e-7, "mask": False, "noise": "0.75", "seed": 9}),
            complete({"sampler": "mixed-ns", "uniform_items": 7, "loss": "softmax", "user_l2": 1e-8, "batch_size": 64})],
    ),
    "where the usual size of strata does not go": (1, runs(1, sampler=["ns", "iid"], batch_size=6)),
}  # fmt: skip


@pytest.mark.parametrize("name", SETS)
def test_the_files_give_exactly_the_runs(name: str, tmp_path: Path) -> None:
    files, wanted = SETS[name]
    found = repetitions(wanted)
    assert len(found) == files
    cells = cells_of(found, tmp_path)
    assert sorted(map(sweeps.identity, cells)) == sorted(map(sweeps.identity, wanted)), "each once"
    assert all(len(each.toml().splitlines()) <= 10 for each in found)


def test_tuned_runs_are_tuned_again(tmp_path: Path) -> None:
    budget = tuning.Budget(4, 2, ("learning_rate", "word_dropout"))
    own = {"learning_rate": 0.02, "word_dropout": 0.3, "tuned": budget.label}
    plain = runs(2, sampler=["ns", "iid"], epochs=6)
    chosen = [
        complete(config.to_dict() | own | ({"learning_rate": 0.5} if config.sampler == "ns" else {})) for config in plain
    ]
    (found,) = repetitions(chosen)
    assert sorted(map(sweeps.identity, cells_of([found], tmp_path))) == sorted(map(sweeps.identity, plain))
    assert shlex.join(found.words("a b.toml")) == (
        "ncfbench sweep 'a b.toml' --tune 4 --tune-epochs 2 --tune-over learning_rate,word_dropout"
    )
    assert len(repetitions([*plain, *chosen])) == 2


def test_sixty_runs_are_repeated_in_a_few_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ncfbench.report.page._figures", lambda results: "")
    for seed, sampler, epochs in itertools.product(range(3), FIVE, (1, 2, 3)):
        write_run(tmp_path / "r", sampler, [9, 4], 20, seed=seed, epochs=epochs)
    for seed, size in itertools.product(range(3), (1, 2, 8, 16, 32)):
        write_run(tmp_path / "r", "strat-ns", [9, 4], 20, seed=seed, stratum_size=size)
    results = collect(tmp_path / "r", tmp_path, allow_mixed=False, places={})
    wanted = [run.config for run in results.records]
    assert len(wanted) == 60
    found = repetitions(wanted)
    assert sorted(map(sweeps.identity, cells_of(found, tmp_path))) == sorted(map(sweeps.identity, wanted))
    text = page(results, {"--runs-dir": "my runs"})
    shown = text[text.index('id="repeat"') :]
    assert len(shown.splitlines()) < 30
    assert "ncfbench sweep sweep-1.toml --runs-dir &#x27;my runs&#x27;" in shown
    assert shown.count("ncfbench run") == shown.partition("missing cells")[2].count("ncfbench run") == 4
