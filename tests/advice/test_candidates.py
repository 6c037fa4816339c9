"""Candidates: what a question tries, what is left out, and in what order the rest enters."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest

from ncfbench.advice.calibration import farthest_first
from ncfbench.advice.candidates import (
    Candidate,
    Shape,
    Work,
    by_promise,
    count_work,
    first_wave,
    leave_out,
    list_candidates,
)
from ncfbench.advice.question import Question
from ncfbench.config import complete
from ncfbench.data.store import Dataset
from ncfbench.errors import UsageError
from ncfbench.profiling.cost_model import AXES, Costs, Counts

TINY = {"dataset": "tiny", "encoder": "cnn"}


def shape(sampler: str, b: int = 512, s: int | None = None, k: int | None = None) -> Shape:
    return Shape("sg", sampler, b, s, k)


def work(negatives: float, items: int = 100) -> Work:
    return Work(Counts(512, items, 512 * items, "matrix"), negatives)


def ordered(
    question: Question,
    seconds: Callable[[Shape], float],
    negatives: Callable[[Shape], float] = lambda shape: 10.0,
) -> list[Candidate]:
    """The candidates of a question by promise, with seconds of an iteration by shape."""
    candidates, _ = list_candidates(question, n_links=10_000)
    for each in candidates:
        each.expect(seconds(each.shape), negatives(each.shape))
    return by_promise(candidates)


def test_a_question_tries_all_valid_settings() -> None:
    question = Question(TINY, "loss", samplers=("iid", "strat-ns"), batch_sizes=(64, 128))
    found, refused = list_candidates(question, n_links=1000)
    assert refused == []
    shapes = {each.shape for each in found}
    iid = {shape("iid", b, None, k) for b in (64, 128) for k in (10, 3, 1)}
    strata = {shape("strat-ns", b, s) for b in (64, 128) for s in (2, 4, 8)}
    assert shapes == iid | strata
    rates = {each.config.learning_rate for each in found}
    assert {0.01, 0.03, 0.0033} < rates
    assert len(found) == len(shapes) * len(rates) == len({each.name for each in found})


def test_a_loss_is_raced_by_the_samplers_that_serve_it() -> None:
    found, refused = list_candidates(Question(TINY, "loss", losses=("hinge",)), n_links=10_000)
    assert {each.shape.sampler for each in found} == {"neg", "ns", "strat-ns", "mixed-ns"}
    assert {each.what for each in refused} == {"hinge iid", "hinge strat"}
    assert {each.shape.sampler for each in found if each.shape.is_baseline} == {"neg"}


def test_what_cannot_work_is_left_out() -> None:
    found, refused = list_candidates(Question(TINY, "loss", samplers=("ns",)), n_links=600)
    assert {each.shape.batch_size for each in found} == {256, 512}
    assert [each.reason for each in refused] == ["batch_size = 1024 is larger than the 600 links."]
    _, (odd,) = list_candidates(
        Question(TINY, "loss", samplers=("strat-ns",), batch_sizes=(512, 510), stratum_sizes=(3,)),
        600,
    )
    assert odd.reason.endswith("Use for example --batch-sizes 513."), "advise's own option"
    with pytest.raises(UsageError, match="negatives"):
        list_candidates(Question(TINY, "loss", samplers=("neg",), negatives=(0,)), n_links=10_000)


@pytest.mark.parametrize(
    ("fixed", "more", "message"),
    [
        ({}, {"target": "speed"}, r"--target 'speed'\. Valid: loss, recall\."),
        ({}, {"losses": ("sg", "mse")}, r"Values of different losses or models do not compare\."),
        ({}, {"samplers": ("nss",)}, "did you mean 'ns'"),
        ({}, {"seeds": 0}, "--seeds 0"),
        ({"sampler": "ns"}, {}, "sampler is what advise tries"),
    ],
)
def test_a_question_without_an_answer_is_refused(
    fixed: dict[str, object], more: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        Question(TINY | fixed, **({"target": "loss"} | more))  # type: ignore[arg-type]


def test_slow_links_with_fewer_negatives_are_left_out() -> None:
    """Neg takes 2.5 times as long for a link as ns, and has 10 negatives for 511."""
    neg, ns = shape("neg", k=10), shape("ns")
    counted = {neg: work(10), ns: work(511)}
    found = leave_out(counted, {neg: 25e-3, ns: 10e-3})
    assert list(found) == [neg]
    assert found[neg] == (
        "48.8 us for a link with 10 negatives; ns b=512 takes 19.5 us for one with 511"
    )
    assert leave_out(counted, {neg: 19e-3, ns: 10e-3}) == {}  # not twice
    assert leave_out(counted | {ns: work(9)}, {neg: 25e-3, ns: 10e-3}) == {}


IID, FEW, NS = shape("iid", k=10), shape("iid", k=3), shape("ns")
FINE, COARSE = shape("strat-ns", s=2), shape("strat-ns", s=8)
SMALL, LARGE = shape("ns", 128), shape("ns", 512)


@pytest.mark.parametrize(
    ("negatives", "seconds", "left"),
    [
        # A baseline is left out for baselines only.
        ({IID: 10, FEW: 3, NS: 511}, {IID: 50e-3, FEW: 20e-3, NS: 5e-3}, []),
        ({IID: 10, FEW: 10, NS: 511}, {IID: 50e-3, FEW: 20e-3, NS: 5e-3}, [IID]),
        # Finer strata are not left out for coarser ones.
        ({FINE: 50, COARSE: 63}, {FINE: 30e-3, COARSE: 5e-3}, []),
        ({FINE: 63, COARSE: 50}, {FINE: 5e-3, COARSE: 30e-3}, [COARSE]),
        # Where a step takes the same time, a quarter of the batch can be worth as much, but no
        # more; with a longer step it cannot win.
        ({SMALL: 127, LARGE: 511}, {SMALL: 1e-3, LARGE: 1e-3}, []),
        ({SMALL: 127, LARGE: 511}, {SMALL: 1.1e-3, LARGE: 1e-3}, [SMALL]),
    ],
)
def test_shapes_that_can_win_are_kept(
    negatives: dict[Shape, float], seconds: dict[Shape, float], left: list[Shape]
) -> None:
    counted = {each: work(count) for each, count in negatives.items()}
    assert list(leave_out(counted, seconds)) == left


def test_the_first_wave_is_the_usual_shape_of_each_sampler() -> None:
    pool = ordered(
        Question(TINY, "loss", samplers=("iid", "ns", "strat-ns")),
        lambda shape: shape.batch_size * (1 if shape.sampler == "iid" else 0.5),
        lambda shape: 10 if shape.negatives else 511,
    )
    first = first_wave(pool)
    assert {each.shape for each in first} == {
        shape("iid", k=10),
        shape("ns"),
        shape("strat-ns", s=4),
    }
    rates = [each.config.learning_rate for each in first]
    assert rates == [0.01] * 3 + [0.03] * 3 + [0.0033] * 3
    assert [each.shape.sampler for each in first[:3]] == ["iid", "ns", "strat-ns"]
    without = [each for each in pool if each.shape != shape("strat-ns", s=4)]
    assert shape("strat-ns", s=2) in {each.shape for each in first_wave(without)}


def test_the_effort_weighs_cost_with_negatives() -> None:
    """A link with few negatives is cheaper here, but it teaches log2(512) / log2(6) times less; an
    unusual rate is expected to take longer.
    """
    pool = ordered(
        Question(TINY, "loss", samplers=("neg", "ns"), batch_sizes=(512,), negatives=(5,)),
        lambda shape: 1e-3 if shape.negatives else 2e-3,
        lambda shape: shape.negatives or 511,
    )
    efforts = {(each.shape.sampler, each.config.learning_rate): each.effort for each in pool}
    assert [each.shape.sampler for each in pool[:2]] == ["ns", "neg"]
    assert efforts["ns", 0.01] / efforts["neg", 0.01] == pytest.approx(2 * math.log(6, 512))
    assert efforts["ns", 0.03] / efforts["ns", 0.01] == pytest.approx(1.3)


def test_neighbours_differ_in_one_setting() -> None:
    candidates, _ = list_candidates(
        Question(TINY, "loss", samplers=("ns", "strat-ns")), n_links=10_000
    )
    (leader,) = (each for each in candidates if each.name == "strat-ns b=512 s=4 lr=0.01")
    assert {each.name for each in candidates if each.is_neighbour(leader)} == {
        "ns b=512 lr=0.01",
        "strat-ns b=256 s=4 lr=0.01",
        "strat-ns b=1024 s=4 lr=0.01",
        "strat-ns b=512 s=2 lr=0.01",
        "strat-ns b=512 s=8 lr=0.01",
        *(f"strat-ns b=512 s=4 lr={rate}" for rate in (0.03, 0.017, 0.006, 0.0033)),
    }


def test_the_work_of_a_batch_is_counted(tiny: Dataset) -> None:
    config = complete(
        {"dataset": "tiny", "sampler": "strat-ns", "batch_size": 64, "stratum_size": 4}
    )
    found = count_work(tiny.graph, config)
    assert found.counts.users == 64
    assert found.counts.items <= 64
    assert found.counts.interactions == 64 * (found.counts.items + 1)
    # At most the other 60 links' items, each as often as it came.
    assert 1 < found.negatives <= 60


def test_shapes_to_time_lie_far_apart() -> None:
    counts = {
        shape("iid", k=10): Counts(5632, 4000, 5632, "vectors"),
        shape("iid", k=9): Counts(5120, 3900, 5120, "vectors"),
        shape("ns"): Counts(512, 500, 512 * 501, "matrix"),
        shape("strat-ns", s=4): Counts(512, 128, 512 * 129, "matrix"),
    }
    order = farthest_first(counts)
    assert order[0] == shape("iid", k=10)
    assert order[1] == shape("strat-ns", s=4)
    assert order[-1] == shape("iid", k=9)
    # A kind of interactions comes before a second shape of another, however near it lies.
    near = shape("ns-all"), Counts(5632, 3999, 5632, "all_users")
    assert near[0] in farthest_first(dict([*counts.items(), near]))[:3]


def test_costs_are_recovered_from_steps() -> None:
    def seconds(each: Counts) -> float:
        cell = 2e-8 if each.kind == "matrix" else 5e-7
        return 1e-3 + 4e-6 * each.items + cell * each.interactions

    steps = [Counts(512, items, 512 * (items + 1), "matrix") for items in (100, 200, 500, 1000)] + [
        Counts(512, 512 * (1 + k), 512 * (1 + k), "vectors") for k in (1, 5, 10)
    ]
    costs = Costs.fit(steps, [seconds(each) for each in steps], lines=AXES)
    for items, k in itertools.product((150, 3000), (2, 20)):
        for each in (
            Counts(512, items, 512 * (items + 1), "matrix"),
            Counts(512, items, 512 * (1 + k), "vectors"),
        ):
            assert sum(costs.parts(each).values()) == pytest.approx(seconds(each), rel=0.05)
