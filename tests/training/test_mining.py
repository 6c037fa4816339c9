"""Mined negatives: which items they are, when they are found, what that costs, and refusals."""

from __future__ import annotations

import time
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from numpy.typing import NDArray
from trial import Trial

from ncfbench.auditing.audit import audit_samplers
from ncfbench.auditing.tables import bias_tables
from ncfbench.config import Locations, RunConfig, complete
from ncfbench.data.store import Dataset
from ncfbench.errors import UsageError
from ncfbench.profiling.profile import profile
from ncfbench.rng import Streams
from ncfbench.sampling import make_sampler, plan_capacity
from ncfbench.sampling.batch import Batch, Listed
from ncfbench.sampling.listed import NegativeSampler
from ncfbench.training import inference
from ncfbench.training.carry import MinedItems
from ncfbench.training.inference import Embedder
from ncfbench.training.loop import TimedLoop
from ncfbench.training.plan import RunPlan
from ncfbench.training.state import Parameters, copy_state

COUNT, SKIP = 9, 3


def configure(**more: Any) -> RunConfig:
    small = {"sampler": "neg", "encoder": "mf", "dimension": 8, "batch_size": 32, "negatives": 3}
    return complete(small | {"mined": COUNT, "mine_every": 5, "mine_skip": SKIP} | more)


def unmined(loss: str) -> RunConfig:
    return configure(loss=loss, mined=0, mine_skip=0, mine_every=100)


def best(dataset: Dataset, scores: NDArray[np.floating]) -> list[list[int]]:
    """Return each user's items by sorting, behind the first SKIP of those without a link."""
    graph, found = dataset.graph, []
    for user, row in enumerate(scores):
        linked = set(graph.link_item[graph.link_user == user].tolist())
        order = [v for v in np.argsort(-row, kind="stable").tolist() if v not in linked]
        in_use = [v for v in order if graph.item_degrees[v] > 0]
        found.append(in_use[SKIP : SKIP + COUNT])
    return found


def scores_of(dataset: Dataset, embedder: Embedder, parameters: Parameters) -> Any:
    every = np.arange(dataset.n_items, dtype=np.int32)
    users = np.asarray(embedder.users(parameters).scored, np.float64)
    return users @ np.asarray(embedder.items(parameters, every), np.float64).T


def loop_for(dataset: Dataset, **more: Any) -> TimedLoop:
    trial = Trial(dataset, configure(**more))
    slots = plan_capacity(dataset.graph, trial.config)
    return TimedLoop(trial.trainer, trial.state, trial.content, trial.sampler, slots)


def negatives_of(batch: Batch) -> list[tuple[int, int]]:
    """The user and the item of each negative link."""
    assert isinstance(batch.negatives, Listed)
    users = np.asarray(batch.users)[np.asarray(batch.negatives.user)]
    items = np.asarray(batch.items)[np.asarray(batch.negatives.item)]
    return list(zip(users.ravel().tolist(), items.ravel().tolist(), strict=True))


@pytest.mark.parametrize("cells", [2**22, 3000])
def test_the_best_unlinked_items_are_found(
    tiny: Dataset, monkeypatch: pytest.MonkeyPatch, cells: int
) -> None:
    """By sorting all scores; with all users at once, and with a few at a time."""
    monkeypatch.setattr(inference, "BLOCK_SCORES", cells)
    trial = Trial(tiny, configure())
    miner, made = trial.trainer.carry, trial.sampler
    assert isinstance(miner, MinedItems)
    found = miner.refreshed(trial.parameters, trial.embedder)
    assert found.tolist() == best(tiny, scores_of(tiny, trial.embedder, trial.parameters))
    popular = np.broadcast_to(tiny.graph.item_degrees, (tiny.n_users, tiny.n_items))
    assert isinstance(made, NegativeSampler)
    assert made.popular_items.tolist() == best(tiny, popular)


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
def test_batches_draw_from_the_last_mining(
    tiny: Dataset, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    """Every negative is one of its user's best items at the last multiple of five iterations, and
    so never linked; all of these come up. Beside an accelerator a thread builds batches ahead.
    """
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    rows: list[list[int]] = []
    used: set[tuple[int, int]] = set()
    pairs = set(zip(tiny.graph.link_user.tolist(), tiny.graph.link_item.tolist(), strict=True))
    with loop_for(tiny) as loop:
        embedder = loop.trainer.embedder(loop.content)
        while loop.iteration < 16:
            if loop.iteration % 5 == 0:
                rows = best(tiny, scores_of(tiny, embedder, copy_state(loop.state).parameters))
            first = loop.iteration
            loop.full_block(1)
            for batch in list(loop._recent)[first - loop.iteration :]:
                for user, item in negatives_of(batch):
                    assert item in rows[user]
                    assert (user, item) not in pairs
                    used.add((user, rows[user].index(item)))
        assert isinstance(loop.sampler, NegativeSampler)
        assert loop.sampler.hard_items is not None
        assert loop.sampler.hard_items.tolist() == loop.state.carry.tolist()
    assert {rank for _, rank in used} == set(range(COUNT))


def test_a_run_resumed_at_a_mining_draws_from_it(
    tiny: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though a thread builds batches ahead, none is built before the mining."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    with loop_for(tiny) as loop:
        loop.full_block(5)
        embedder = loop.trainer.embedder(loop.content)
        rows = best(tiny, scores_of(tiny, embedder, copy_state(loop.state).parameters))
        made = make_sampler(tiny.graph, loop.trainer.config, Streams(0))
        state, slots = loop.state, loop.item_slots
    with TimedLoop(loop.trainer, state, loop.content, made, slots, start=5) as resumed:
        resumed._feed.resume()
        time.sleep(0.05)
        resumed.full_block(5)
        for batch in resumed._recent:
            assert all(item in rows[user] for user, item in negatives_of(batch))


def test_batches_are_built_ahead_up_to_the_next_mining(
    tiny: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a thread, and with the only embedder of the run; the items stay on the host."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    with loop_for(tiny) as loop:
        for count, built in ((1, 5), (5, 10)):
            loop.full_block(count)
            loop._feed.resume()
            done, _ = wait(loop._feed._ready, timeout=20)
            assert loop._feed._taken + len(done) == built


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
@pytest.mark.parametrize("loss", ["sg", "softmax"])
def test_a_warm_start_draws_as_without_mining(
    tiny: Dataset, monkeypatch: pytest.MonkeyPatch, loss: str, backend: str
) -> None:
    """Seven iterations; then the first mining, of the parameters by then, and one every fifth. The
    batches behind it have the ranks that they would have had without a warm start.
    """
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    plain = make_sampler(tiny.graph, unmined(loss), Streams(0))
    mined = make_sampler(tiny.graph, configure(loss=loss), Streams(0))
    with loop_for(tiny, loss=loss, warm_start=7) as loop:
        embedder = loop.trainer.embedder(loop.content)
        for number in range(14):
            if number == 7:
                parameters = copy_state(loop.state).parameters
            if number in (7, 12):
                rows = best(tiny, scores_of(tiny, embedder, copy_state(loop.state).parameters))
            loop.full_block(1)
            batch, other = loop._recent[-1], (plain if number < 7 else mined).draw(number, 1)[0]
            users = tiny.graph.link_user[other.links]
            weight = np.asarray(batch.negatives.weight)
            if number < 7:
                expected = plain.assemble(other)
                assert [item for _, item in negatives_of(batch)] == other.items.ravel().tolist()
                np.testing.assert_array_equal(weight, expected.negatives.weight)
                continue
            ranks = zip(users.repeat(3), other.items.ravel(), strict=True)
            items = [rows[user][rank] for user, rank in ranks]
            assert [item for _, item in negatives_of(batch)] == items
            assert weight.min() == weight.max()
        firsts = [each.first_iteration for each in loop.samples if each.kind == "refresh"]
    assert firsts == [7, 12]
    assert rows != best(tiny, scores_of(tiny, embedder, parameters))


def test_a_warm_start_has_slots_of_its_own(tiny: Dataset) -> None:
    """As many as without mining; the batches after it have no more than they need, and their own
    reserve.
    """
    few, own = {"negatives": 9, "batch_size": 16}, {"mined": 2, "mine_skip": 0, "mine_every": 5}
    planned = plan_capacity(tiny.graph, configure(**few, **own, warm_start=7))
    assert planned == plan_capacity(
        tiny.graph, configure(**few, **own | {"mine_every": 100, "mined": 0})
    )
    with loop_for(tiny, **few, **own, warm_start=7) as loop:
        loop.full_block(7)
        assert {len(batch.items) for batch in loop._recent} == {planned}
        loop.full_block(10)
        assert max(len(batch.items) for batch in list(loop._recent)[-9:]) < planned


def test_a_run_resumed_in_a_warm_start_goes_on(tiny: Dataset) -> None:
    """No mining before its end, and the same batches."""
    with loop_for(tiny, warm_start=7) as loop:
        loop.full_block(4)
        state, slots = copy_state(loop.state), loop.item_slots
        losses = loop.full_block(5)
    made = make_sampler(tiny.graph, loop.trainer.config, Streams(0))
    with TimedLoop(loop.trainer, state, loop.content, made, slots, start=4) as resumed:
        assert resumed.full_block(5) == losses
        firsts = [each.first_iteration for each in resumed.samples if each.kind == "refresh"]
    assert firsts == [7]


def test_mining_is_on_both_clocks(tiny: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each iteration pays a fifth of a mining of 100 planted seconds, wherever its block ends."""

    def planted(self: TimedLoop) -> Any:
        assert self.embedder is not None
        self._refresh_seconds.append(100.0)
        return self.trainer.carry.refreshed(self.state.parameters, self.embedder)

    monkeypatch.setattr(TimedLoop, "_refreshed", planted)
    with loop_for(tiny, warm_start=7) as loop:
        loop.full_block(3)
        loop.full_block(6)
        loop.step_block(9)
        loop.step_block(20)  # twice seven of the warm start, and thrice two
        warm, mixed, *again = (each for each in loop.samples if each.kind in ("full", "step"))
        assert warm.seconds < 20
        assert 0 < mixed.seconds - 2 * 20 < 20
        assert 0 < again[0].seconds - 2 * 20 < 20
        assert 0 < again[1].seconds - 4 * 20 < 20
    with loop_for(tiny) as loop:
        for count in (2, 1, 9):
            loop.full_block(count)
        loop.step_block(3)
        kinds = [(sample.kind, sample.first_iteration) for sample in loop.samples]
        assert [first for kind, first in kinds if kind == "refresh"] == [0, 5, 10]
        for sample in loop.samples:
            if sample.kind in ("full", "step"):
                assert 0 < sample.seconds - 20 * sample.iterations < 20, sample


@pytest.mark.parametrize(("loss", "each"), [("sg", 1.0), ("log", 1.0), ("softmax", float(COUNT))])
def test_weights_are_a_mean_over_the_mined(tiny: Dataset, loss: str, each: float) -> None:
    """A sum over them for a softmax; whatever the noise distribution."""
    made = make_sampler(tiny.graph, configure(loss=loss, noise="0.5"), Streams(0))
    batch = made.assemble(made.draw(0, 1)[0])
    np.testing.assert_allclose(batch.negatives.weight, each / (32 * 3), rtol=1e-6)


def test_more_items_get_slots_in_reserve(tiny: Dataset) -> None:
    """With a model's items only, which no pilot knows."""
    made = make_sampler(tiny.graph, configure(), Streams(0))
    assert isinstance(made, NegativeSampler)
    draw = made.draw(0, 1)[0]
    assert len(made.assemble(draw, 8).items) == made.required_capacity(draw)
    made.hard_items = made.popular_items
    needed = made.required_capacity(draw)
    assert len(made.assemble(draw, 8).items) == needed + needed // 8
    assert len(made.assemble(draw, needed).items) == needed


@pytest.mark.long
def test_the_audit_measures_the_declared_bias(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ncfbench.auditing.conformance.SUMMED_LINKS", 12_800)
    monkeypatch.setattr("ncfbench.auditing.gradient_audit.TIMING_ROUNDS", 1)
    record = audit_samplers(
        samplers=["neg"],
        losses=["sg"],
        noises=["unigram"],
        batches=96,
        margin=0.5,
        warmup=12,
        data_dir=data_dir,
        **configure(dataset="tiny", learning_rate=0.05).to_dict(),
    )
    assert not record.failures
    last = record.conformance[-1]
    assert (last["property"], last["result"]) == ("expectation", "declared")
    assert {row["result"] for row in record.conformance[:-1]} == {"pass"}
    first, warm = record.audit
    assert (first["cache_age"], warm["cache_age"]) == (0, 4)
    assert (warm["verdict"], warm["shown_by"]) == ("biased", "declared")
    assert "warm (mined items, 4 old)" in str(bias_tables([first, warm])[0].rows)


def test_what_cannot_be_mined_is_refused(tiny: Dataset, data_dir: Path) -> None:
    with pytest.raises(UsageError, match="mine_every = 900: the run has .* Use --mine-every"):
        config = configure(dataset="tiny", mine_every=900, epochs=1)
        RunPlan.of(config, Locations(data_dir=data_dir), dataset=tiny)
    once = configure(dataset="tiny", mine_every=900, warm_start=5, epochs=1)
    RunPlan.of(once, Locations(data_dir=data_dir), dataset=tiny)
    with pytest.raises(UsageError, match="no cost for mining negatives. Use --mined off"):
        profile(samplers=["neg"], mined=COUNT)
