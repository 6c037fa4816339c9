"""Candidates: the grid of a question, without what cannot work and what cannot win.

A *shape* is a candidate without its learning rate. docs/advice.md says who races, and why.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import NamedTuple

from ncfbench.advice.question import FIRST_RATES, Question
from ncfbench.catalog import baseline_sampler, find_loss, find_sampler
from ncfbench.config import RunConfig, complete
from ncfbench.data.graph import BipartiteGraph
from ncfbench.errors import UsageError
from ncfbench.profiling.cost_model import Counts
from ncfbench.racing.rule import Status as Status
from ncfbench.reporting.contents import effective_negatives
from ncfbench.rng import Streams
from ncfbench.sampling import make_sampler

LEARNING = 2.0
"""No sampler learns more than this many times as much from a link as one with more negatives. On
CiteULike none learns more at all (results/citeulike-title-tags).
"""
COUNTED_BATCHES = 4
UNUSUAL = 1.3
"""Times as long as with the usual learning rate: three times that rate took 0.8 to 1.7 times as
long in half of the arms of benchmarks/results/advice-cpu.json.
"""
LARGEST_RATE_STEP = 3.1
"""Learning rates whose ratio is larger are no neighbours."""
FIRST_PROBES = {"loss": 2, "recall": 3}
"""Number of probes in the first rung, by target; in a race for a loss beside those at the ends of
epochs. Turns last from probe to probe.
"""
_OF_ONE_RUN = re.compile(r"(--(?:batch-size|stratum-size|learning-rate|sampler))\b")
"""Options of a run; those of a question, which take lists, end with an s."""


class LeftOut(NamedTuple):
    """Candidates that do not race, and the reason."""

    what: str
    reason: str


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


@dataclass
class Candidate:
    """A shape with a learning rate; in the race an ordinary run of each seed.

    Attributes:
        config: settings of its first run; its other seeds differ in the seed alone.
        unusual: number of settings, but for the rate, that are not the usual ones.
        rate_index: of its learning rate among those to try.
        iteration_seconds: predicted before the race.
        effort: expected time to learn, up to a factor that all share.
        reason: why it left; empty while it races.
    """

    name: str
    config: RunConfig
    unusual: int = 0
    rate_index: int = 0
    iteration_seconds: float = 0.0
    effort: float = 1.0
    seeds: list[int] = field(default_factory=lambda: [0])
    status: Status = Status.RACING
    reason: str = ""

    @cached_property
    def shape(self) -> Shape:
        """Its settings but for the learning rate."""
        config, reads = self.config, find_sampler(self.config.sampler).reads
        return Shape(
            config.loss,
            config.sampler,
            config.batch_size,
            config.stratum_size if reads("stratum_size") else None,
            config.negatives if reads("negatives") else None,
        )

    def with_seed(self, seed: int) -> RunConfig:
        """Return the settings of its run with a seed; seeds count from the first run's."""
        return dataclasses.replace(self.config, seed=self.config.seed + seed)

    def leave(self, status: Status, reason: str) -> None:
        """Leave the race."""
        self.status, self.reason = status, reason

    def expect(self, iteration_seconds: float, negatives: float) -> None:
        """Set the effort: seconds of a link over log2(1 + n) for n effective negatives of it."""
        usual = find_loss(self.config.loss).learning_rate
        factor = 1.0 if self.config.learning_rate == usual else UNUSUAL
        of_link = iteration_seconds / self.config.batch_size
        self.iteration_seconds = iteration_seconds
        self.effort = factor * of_link / math.log2(1 + max(negatives, 1.0))

    def schedule_probes(self, seconds: float) -> None:
        """Probe after so many seconds of training, unless the question says how often."""
        every = max(round(seconds / self.iteration_seconds), 1)
        if not self.config.probe_every:
            self.config = dataclasses.replace(self.config, probe_every=every)

    def probe_like(self, other: Candidate) -> None:
        """Expect another one's seconds of an iteration, and probe as often."""
        self.iteration_seconds = other.iteration_seconds
        self.config = dataclasses.replace(self.config, probe_every=other.config.probe_every)

    def is_neighbour(self, other: Candidate) -> bool:
        """Return whether two candidates differ in one tried setting, learning rates by little."""
        own, theirs = dataclasses.astuple(self.shape), dataclasses.astuple(other.shape)
        # A setting that only one of them has comes with the sampler.
        pairs = [pair for pair in zip(own, theirs, strict=True) if None not in pair]
        differing = len([pair for pair in pairs if pair[0] != pair[1]])
        if self.shape.loss != other.shape.loss:
            return differing == 1
        rates = self.config.learning_rate, other.config.learning_rate
        is_near = max(rates) <= LARGEST_RATE_STEP * min(rates)
        return differing + (rates[0] != rates[1]) == 1 and is_near


@dataclass(frozen=True)
class Work:
    """The work and the worth of an iteration of a shape, counted on batches."""

    counts: Counts
    negatives: float
    """Effective negatives of a positive link."""


def list_candidates(question: Question, n_links: int) -> tuple[list[Candidate], list[LeftOut]]:
    """Return the candidates of a question, and what cannot work.

    Raises:
        UsageError: nothing can work; the message gives the first reason.
    """
    found: dict[RunConfig, Candidate] = {}
    refused: dict[str, str] = {}
    names = ("batch_size", "stratum_size", "negatives", "learning_rate")
    for loss, sampler in product(question.losses, question.samplers):
        axes = [enumerate(question.values(name, loss, sampler) or (None,)) for name in names]
        for chosen in product(*axes):
            indices, values = zip(*chosen, strict=True)
            tried = dict(zip(names, values, strict=True))  # complete() leaves None out
            try:
                config = complete({**question.fixed, "loss": loss, "sampler": sampler, **tried})
                if config.batch_size > n_links:
                    raise UsageError(
                        f"batch_size = {config.batch_size} is larger than the {n_links:,} links."
                    )
            except UsageError as error:
                refused.setdefault(str(error), f"{loss} {sampler}")
                continue
            candidate = Candidate("", config, sum(map(bool, indices[:-1])), indices[-1])
            prefix = f"{loss} " if len(question.losses) > 1 else ""
            candidate.name = f"{prefix}{candidate.shape.label} lr={config.learning_rate:g}"
            found.setdefault(config, candidate)
    left_out = [LeftOut(what, _OF_ONE_RUN.sub(r"\1s", why)) for why, what in refused.items()]
    if not found:
        raise UsageError(f"Nothing of this can work. The first reason: {left_out[0].reason}")
    return list(found.values()), left_out


def by_promise(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the most promising first: usual shapes before others, usual learning rates before
    others, the baseline and then the samplers of the least effort before others.
    """

    def key(each: Candidate) -> tuple[float, ...]:
        return each.unusual, each.rate_index, not each.shape.is_baseline, each.effort

    return sorted(candidates, key=key)


def first_wave(pool: Sequence[Candidate]) -> list[Candidate]:
    """Return the most usual shape of each loss and sampler, with the first learning rates."""
    usual: dict[tuple[str, str], Candidate] = {}
    for each in sorted(pool, key=lambda each: (each.unusual, each.rate_index)):
        usual.setdefault((each.shape.loss, each.shape.sampler), each)
    shapes = {each.shape for each in usual.values()}
    return [each for each in pool if each.shape in shapes and each.rate_index < FIRST_RATES]


def count_work(graph: BipartiteGraph, config: RunConfig) -> Work:
    """Count the work of an iteration on a few batches; item slots are those of the largest."""
    sampler = make_sampler(graph, config, Streams(config.seed))
    batches = [sampler.assemble(draw) for draw in sampler.draw(0, COUNTED_BATCHES)]
    largest = max(batches, key=lambda batch: len(batch.items))
    negatives = [effective_negatives(batch) for batch in batches]
    return Work(Counts.of(largest), sum(negatives) / len(negatives))


def leave_out(work: Mapping[Shape, Work], seconds: Mapping[Shape, float]) -> dict[Shape, str]:
    """Return the shapes that cannot win, each with the reason.

    Another shape of the loss gives a link no fewer negatives, in strata at most as coarse, in less
    than a half of the time. Beside a larger batch it is less than the ratio of the batch sizes: a
    step on a part of a batch is worth at most as much as one on all of it. A baseline is left out
    for a baseline only, so that the answer has it at its best.

    Args:
        seconds: of an iteration, measured or predicted.
    """
    of_link = {shape: seconds[shape] / shape.batch_size for shape in work}

    def teaches_as_much(rival: Shape, shape: Shape) -> bool:
        return (
            rival != shape
            and rival.loss == shape.loss
            and (rival.is_baseline or not shape.is_baseline)
            and (rival.stratum_size or 1) <= (shape.stratum_size or 1)
            and work[rival].negatives >= work[shape].negatives
        )

    found: dict[Shape, str] = {}
    for shape in work:
        bounds = {
            rival: of_link[rival] * max(LEARNING, rival.batch_size / shape.batch_size)
            for rival in work
            if teaches_as_much(rival, shape)
        }
        fastest = min(bounds, key=lambda rival: bounds[rival], default=None)
        if fastest is not None and of_link[shape] > bounds[fastest]:
            found[shape] = (
                f"{of_link[shape] * 1e6:.3g} us for a link with {work[shape].negatives:.0f}"
                f" negatives; {fastest.label} takes {of_link[fastest] * 1e6:.3g} us for one with"
                f" {work[fastest].negatives:.0f}"
            )
    return found
