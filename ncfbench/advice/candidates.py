"""Candidates: the grid of a question, without what cannot work and what cannot win.

*What cannot win.* An iteration covers b links and costs what the cost model predicts. Candidate c
is left out for candidate d of the same loss where

- c has no more effective negatives for a positive link than d, and its strata are at least as
  coarse;
- and a link takes it more than E times as long, with E = max(:data:`LEARNING`, b_d / b_c).

Then c would have to learn more than E times as much from a link. Both estimate one objective
without bias, from links that lie no better spread in c, with no more negatives to each. What c can
have is a smaller batch, and a step on a part of a batch is worth at most as much as one on all of
it: so the bound is not below b_d / b_c. Where c draws its negatives apart for each link and d
shares them, c's are more independent, which can make up for some of their number. On CiteULike it
makes up for none: Negative Sharing needs a quarter of the iterations to IID's best loss
(results/citeulike-title-tags). :data:`LEARNING` = 2 leaves room for other data.

A baseline is left out only for another shape of the baseline, so that the answer has the baseline
at its best. Effective negatives are Kish's (sum w)^2 / sum w^2 over the weights of a positive
link's negatives, measured on batches.

*How soon a candidate is expected to learn.* Its effort is seconds of a link over log2(1 + n) for n
effective negatives, and :data:`UNUSUAL` times that with another rate than the loss's usual one: a
link teaches more with more negatives, each of which adds less than the one before. Only ratios of
efforts mean anything. In the sweeps of benchmarks/results/advice-cpu.json they order the samplers
of a question nearly as the sweeps do. The race begins with them, and forgets them as it measures.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from ncfbench.advice.question import FIRST_RATES, Question
from ncfbench.catalog import baseline_sampler, find_loss
from ncfbench.config import RunConfig, complete
from ncfbench.data.graph import BipartiteGraph
from ncfbench.errors import UsageError
from ncfbench.profiling.cost_model import Counts
from ncfbench.reporting.contents import effective_negatives
from ncfbench.rng import Streams
from ncfbench.sampling import make_sampler

LEARNING = 2.0
"""No sampler learns more than this many times as much from a link as one with more negatives."""
COUNTED_BATCHES = 4
UNUSUAL = 1.3
"""Times as long as with the usual learning rate. In the sweeps three times the usual one took 0.8
to 1.7 times as long in half of the arms, and in most others never came to the target.
"""
NEAR = 3.1
"""Learning rates whose ratio is larger are no neighbours."""
_OF_ONE_RUN = re.compile(r"(--(?:batch-size|stratum-size|learning-rate|sampler))\b")
"""Options of a run; those of a question, which take lists, end with an s."""


@dataclass(frozen=True)
class Shape:
    """The settings that decide the time of an iteration: all but the learning rate."""

    loss: str
    sampler: str
    batch_size: int
    stratum_size: int | None
    negatives: int | None

    @property
    def label(self) -> str:
        """Name in tables: the sampler, b, and s or k where it uses them."""
        parts = [self.sampler, f"b={self.batch_size}"]
        parts += [f"s={self.stratum_size}"] if self.stratum_size else []
        parts += [f"k={self.negatives}"] if self.negatives else []
        return " ".join(parts)

    @property
    def is_baseline(self) -> bool:
        """True if speedups of the loss are measured against this sampler."""
        return baseline_sampler(self.loss) == self.sampler


@dataclass(frozen=True)
class Candidate:
    """A shape with a learning rate, and the settings of its runs.

    Attributes:
        rank: number of settings that are not the usual ones, and place of the learning rate.
        effort: expected time to learn, see this module; alike for all before they are counted.
    """

    shape: Shape
    config: RunConfig
    rank: tuple[int, int]
    effort: float = 1.0

    def differs_from(self, other: Candidate) -> int:
        """Return in how many tried settings two candidates differ."""
        own, theirs = self.shape, other.shape
        return sum(
            (
                own.loss != theirs.loss,
                own.sampler != theirs.sampler,
                own.batch_size != theirs.batch_size,
                # A setting that only one of them has comes with the sampler.
                None not in (own.stratum_size, theirs.stratum_size)
                and own.stratum_size != theirs.stratum_size,
                None not in (own.negatives, theirs.negatives) and own.negatives != theirs.negatives,
                own.loss == theirs.loss and self.config.learning_rate != other.config.learning_rate,
            )
        )

    def is_neighbour(self, other: Candidate) -> bool:
        """Return whether two candidates differ in one setting, learning rates by little."""
        rates = self.config.learning_rate, other.config.learning_rate
        is_near = self.shape.loss != other.shape.loss or max(rates) <= NEAR * min(rates)
        return self.differs_from(other) == 1 and is_near


@dataclass(frozen=True)
class Work:
    """The work and the worth of an iteration of a shape, counted on batches."""

    counts: Counts
    negatives: float
    """Effective negatives of a positive link."""


@dataclass(frozen=True)
class LeftOut:
    """Candidates that do not race, and the reason."""

    what: str
    reason: str


def list_candidates(question: Question, n_links: int) -> tuple[list[Candidate], list[LeftOut]]:
    """Return the candidates of a question, and what cannot work.

    Raises:
        UsageError: nothing can work; the message gives the first reason.
    """
    found: dict[tuple[Shape, float], Candidate] = {}
    refused: dict[str, str] = {}
    for loss, sampler in product(question.losses, question.samplers):
        axes = [
            list(enumerate(question.values(name, loss, sampler) or (None,)))
            for name in ("batch_size", "stratum_size", "negatives", "learning_rate")
        ]
        for (at_b, b), (at_s, s), (at_k, k), (at_rate, rate) in product(*axes):
            settings = {
                **question.fixed,
                **{"loss": loss, "sampler": sampler, "batch_size": b, "learning_rate": rate},
                **({"stratum_size": s} if s is not None else {}),
                **({"negatives": k} if k is not None else {}),
            }
            try:
                config = complete(settings)
                if b > n_links:
                    raise UsageError(f"batch_size = {b} is larger than the {n_links:,} links.")
            except UsageError as error:
                refused.setdefault(str(error), f"{loss} {sampler}")
                continue
            rank = bool(at_b) + bool(at_s) + bool(at_k), at_rate
            shape = Shape(loss, sampler, b, s, k)
            found.setdefault((shape, rate), Candidate(shape, config, rank))
    left_out = [LeftOut(what, _OF_ONE_RUN.sub(r"\1s", why)) for why, what in refused.items()]
    if not found:
        raise UsageError(f"Nothing of this can work. The first reason: {left_out[0].reason}")
    return list(found.values()), left_out


def by_promise(
    candidates: Iterable[Candidate],
    seconds: Mapping[Shape, float],
    work: Mapping[Shape, Work],
    *,
    losses_first: bool,
) -> list[Candidate]:
    """Return candidates with their efforts, the most promising first.

    Usual shapes come before others, usual learning rates before others, the baseline and then the
    samplers of the least effort before others.

    Args:
        seconds: of an iteration.
        losses_first: try all losses and rates with the most promising sampler before others; only
            one baseline comes earlier.
    """
    found = [
        replace(each, effort=_effort(each, seconds[each.shape], work[each.shape].negatives))
        for each in candidates
    ]
    least: dict[tuple[str, tuple[int, int]], float] = {}
    for each in found:
        alike = each.shape.loss, each.rank
        least[alike] = min(least.get(alike, math.inf), each.effort)

    def key(each: Candidate) -> tuple[float, ...]:
        (others, rate), is_baseline = each.rank, each.shape.is_baseline
        if losses_first:
            is_best = each.effort <= least[each.shape.loss, each.rank]
            # An answer needs a baseline: that of the first loss enters with its best sampler.
            is_first = not rate and each.shape.loss == found[0].shape.loss
            enters = is_first and (is_best or is_baseline)
            return others, not enters, not is_best, not is_baseline, rate, each.effort
        return others, rate, not is_baseline, each.effort

    return sorted(found, key=key)


def _effort(each: Candidate, seconds: float, negatives: float) -> float:
    """Return the expected time to learn (see this module), up to a factor that all share."""
    usual = find_loss(each.shape.loss).learning_rate
    factor = 1.0 if each.config.learning_rate == usual else UNUSUAL
    return factor * seconds / each.shape.batch_size / math.log2(1 + max(negatives, 1.0))


def first_wave(pool: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates to begin with: the most usual shape of each loss and sampler that is
    left, with the first learning rates.
    """
    usual: dict[tuple[str, str], Candidate] = {}
    for each in pool:
        key = each.shape.loss, each.shape.sampler
        usual[key] = min(usual.get(key, each), each, key=lambda one: one.rank)
    shapes = {each.shape for each in usual.values()}
    return [each for each in pool if each.shape in shapes and each.rank[1] < FIRST_RATES]


def count_work(graph: BipartiteGraph, config: RunConfig) -> Work:
    """Count the work of an iteration on a few batches; item slots are those of the largest."""
    sampler = make_sampler(graph, config, Streams(config.seed))
    batches = [sampler.assemble(draw) for draw in sampler.draw(0, COUNTED_BATCHES)]
    largest = max(batches, key=lambda batch: len(batch.items))
    negatives = [effective_negatives(batch) for batch in batches]
    return Work(Counts.of(largest), sum(negatives) / len(negatives))


def leave_out(
    shapes: Sequence[Shape], work: Mapping[Shape, Work], seconds: Mapping[Shape, float]
) -> dict[Shape, str]:
    """Return the shapes that cannot win (see this module), each with the reason.

    Args:
        seconds: of an iteration, measured or predicted.
    """
    found: dict[Shape, str] = {}
    for own in shapes:
        of_link = seconds[own] / own.batch_size
        rivals = {
            other: seconds[other] / other.batch_size * _bound(own, other)
            for other in shapes
            if _teaches_as_much(other, own, work) and (other.is_baseline or not own.is_baseline)
        }
        fastest = min(rivals, key=lambda other: rivals[other], default=None)
        if fastest is not None and of_link > rivals[fastest]:
            theirs = seconds[fastest] / fastest.batch_size
            found[own] = (
                f"{of_link * 1e6:.3g} us for a link with {work[own].negatives:.0f} negatives;"
                f" {fastest.label} takes {theirs * 1e6:.3g} us for one with"
                f" {work[fastest].negatives:.0f}"
            )
    return found


def _teaches_as_much(one: Shape, other: Shape, work: Mapping[Shape, Work]) -> bool:
    """Return whether a link of one shape has no fewer negatives and lies in no coarser a stratum
    than a link of another.
    """
    return (
        one != other
        and one.loss == other.loss
        and (one.stratum_size or 1) <= (other.stratum_size or 1)
        and work[one].negatives >= work[other].negatives
    )


def _bound(one: Shape, other: Shape) -> float:
    """Return how many times as much as another's a link of one shape can teach, at most."""
    return max(LEARNING, other.batch_size / one.batch_size)
