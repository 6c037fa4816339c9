"""Several iterations in one dispatch: the same numbers, the same records, the same clocks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from stopping import StopAt

from ncfbench.config import Locations, complete, resolve
from ncfbench.data.store import Dataset
from ncfbench.errors import CheckFailedError, UsageError
from ncfbench.models import device
from ncfbench.models.towers import Content
from ncfbench.rng import Streams
from ncfbench.runs import folder as runs
from ncfbench.runs.folder import RunRecord
from ncfbench.runs.progress import Progress
from ncfbench.sampling import make_sampler
from ncfbench.training import run as training
from ncfbench.training.loop import IN_FLIGHT, TimedLoop
from ncfbench.training.step import Trainer

SMALL: dict[str, Any] = {
    "dataset": "tiny",
    "batch_size": 64,
    "dimension": 8,
    "filters": 8,
    "word_dimension": 8,
    "lstm_units": 8,
    "negatives": 2,
}


def loop_for(
    dataset: Dataset, per_dispatch: int, *, slots: int = 200, **settings: Any
) -> TimedLoop:
    config = complete(SMALL | {"sampler": "ns", "iterations_per_dispatch": per_dispatch} | settings)
    trainer, state = Trainer.create(config, dataset)
    return TimedLoop(
        trainer, state, Content.of(dataset), make_sampler(dataset.graph, config, Streams(0)), slots
    )


def counting_dispatches(loop: TimedLoop) -> list[int]:
    """Iterations of each dispatch from now on."""
    log: list[int] = []
    one, many = loop.trainer.step, loop.trainer.steps

    def step(*arguments: Any) -> Any:
        log.append(1)
        return one(*arguments)

    def steps(state: Any, batches: tuple[Any, ...], content: Content) -> Any:
        log.append(len(batches))
        return many(state, batches, content)

    loop.trainer.step, loop.trainer.steps = step, steps
    return log


@pytest.mark.long_cases(r"lstm")
@pytest.mark.parametrize(
    ("encoder", "sampler", "loss"),
    [
        ("mf", "iid", "sg"),
        ("mf", "strat-ns", "hinge"),
        ("cnn", "ns", "mse"),
        ("lstm", "neg", "log"),
    ],
)
def test_losses_and_parameters_are_those_of_one_at_a_time(
    tiny: Dataset, encoder: str, sampler: str, loss: str
) -> None:
    """Blocks with remainders, for free vectors from a capacity that must grow; dropout on."""
    losses, leaves = [], []
    slots = 50 if encoder == "mf" else 400
    for per_dispatch in (1, 4):
        with loop_for(
            tiny, per_dispatch, encoder=encoder, sampler=sampler, loss=loss, slots=slots
        ) as loop:
            losses.append([value for count in (9, 1, 13) for value in loop.full_block(count)])
            assert loop.iteration == int(loop.state.iteration) == 23
            leaves.append(jax.tree.leaves(loop.state.parameters))
    assert len(losses[1]) == 23
    if encoder == "mf":
        assert losses[0] == losses[1]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-6)
    for one, many in zip(*leaves, strict=True):
        assert one.dtype == many.dtype
        np.testing.assert_allclose(many, one, atol=0 if encoder == "mf" else 2e-6)


def test_batches_go_together_and_remainders_one_by_one(tiny: Dataset) -> None:
    with loop_for(tiny, 4, encoder="mf") as loop:
        loop.full_block(1)
        log = counting_dispatches(loop)
        loop.full_block(10)
        assert log == [4, 4, 1, 1]
        log.clear()
        loop.step_block(9)
        assert log == [4, 4, 1]
        log.clear()
        loop.step_block()
        assert log == [4, 4, 1, 1, 1], "the eleven batches so far"


def test_a_change_of_capacity_is_compiled_off_the_clock_and_goes_one_by_one(
    growing: Dataset,
) -> None:
    with loop_for(growing, 4, encoder="mf", slots=8) as loop:
        loop.full_block(40)
        compiles = [sample for sample in loop.samples if sample.kind == "compile"]
        assert len(compiles) > 1
        assert loop.trainer.traces == 2 * len(compiles)
        (full,) = (sample for sample in loop.samples if sample.kind == "full")
        assert full.iterations == 40
        assert full.seconds < min(sample.seconds for sample in compiles), (
            "a compilation is on the clock"
        )


def test_the_step_account_takes_batches_of_several_capacities(growing: Dataset) -> None:
    with loop_for(growing, 4, encoder="mf", slots=8) as loop:
        while len({len(batch.items) for batch in loop._recent}) < 2:
            loop.full_block(5)
        loop.full_block(4)
        log = counting_dispatches(loop)
        loop.step_block(20)
        assert sum(log) == 20
        assert set(log) == {1, 4}


def test_any_other_compilation_is_an_error(tiny: Dataset) -> None:
    for count in (4, 3):  # of several iterations, of one
        with loop_for(tiny, 4, encoder="cnn") as loop:
            loop.full_block(4)
            loop.content = Content(loop.content.tokens[:, :4], loop.content.lengths)
            with pytest.raises(CheckFailedError, match="compiled during timed work"):
                loop.full_block(count)


def test_a_stop_is_soon_and_loses_no_batch(tiny: Dataset) -> None:
    """Asked for once for each iteration; the dispatch it falls into is done, and no more than two
    are in flight.
    """
    with loop_for(tiny, 4, encoder="mf") as whole:
        expected = whole.full_block(30)
    with loop_for(tiny, 4, encoder="mf") as loop:
        loop.full_block(4)
        many, waiting = loop.trainer.steps, []
        most = 0

        def steps(*arguments: Any) -> Any:
            nonlocal most
            result = many(*arguments)
            waiting.append(result[1])
            return result

        def stop() -> bool:
            nonlocal most
            most = max(most, sum(losses.size for losses in waiting if not losses.is_ready()))
            return loop.iteration >= 14

        loop.trainer.steps = steps
        found = loop.full_block(100, stop=stop)
        assert loop.iteration == 16
        assert most <= max(IN_FLIGHT, 2 * 4)
        assert expected[4:16] == found
        assert loop.full_block(1, stop=lambda: True) == expected[16:17], "one iteration at least"
        assert loop.full_block(100, stop=lambda: True) == expected[17:18]
        assert loop.full_block(12) == expected[18:30]


def train(
    data_dir: Path,
    runs_dir: Path,
    *,
    resume: bool = False,
    progress: Progress | None = None,
    **more: Any,
) -> RunRecord:
    settings = SMALL | {"epochs": 2, "encoder": "mf"} | more
    return training.run(
        complete(settings), Locations(data_dir, runs_dir), resume=resume, progress=progress
    )


def figures(record: RunRecord) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in row.items() if key != "train_seconds"} for row in record.curve
    ]


def test_a_run_has_the_same_curve_also_when_it_was_interrupted(
    data_dir: Path, tmp_path: Path
) -> None:
    one = train(data_dir, tmp_path / "one", iterations_per_dispatch=1)
    four = train(data_dir, tmp_path / "four", iterations_per_dispatch=4)
    assert figures(four) == figures(one)
    assert [row["iteration"] for row in four.curve] == [row["iteration"] for row in one.curve]
    assert (
        json.loads((four.folder / "environment.json").read_text())["iterations_per_dispatch"] == 4
    )
    assert one.environment["key"] == four.environment["key"], (
        "it is a setting, and recorded with them"
    )
    for place, at in enumerate((2, 17)):
        with pytest.raises(KeyboardInterrupt):
            train(
                data_dir,
                tmp_path / "cut",
                iterations_per_dispatch=4,
                resume=place > 0,
                progress=StopAt(at),
            )
        (folder,) = (tmp_path / "cut").iterdir()
        stopped = runs.read(folder).summary["iterations"]
        assert at <= stopped < at + 4
    cut = train(data_dir, tmp_path / "cut", iterations_per_dispatch=4, resume=True)
    assert figures(cut) == figures(one)
    assert (
        sum(row["iterations"] for row in cut.timing if row["kind"] == "full")
        == one.summary["iterations"]
    )


def test_the_backend_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [device.iterations_per_dispatch(asked) for asked in (0, 3)] == [1, 3]
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert [device.iterations_per_dispatch(asked) for asked in (0, 3)] == [8, 3]
    assert (
        resolve({}, ["iterations_per_dispatch=4"], environment={})[0].iterations_per_dispatch == 4
    )
    with pytest.raises(UsageError, match="the backend's choice"):
        complete({"iterations_per_dispatch": -1})
