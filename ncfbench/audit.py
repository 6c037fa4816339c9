"""The audit: is each sampler's gradient unbiased, and how noisy is it? Measured against the exact gradient, with verdicts.

At fixed parameters and without dropout the towers are fixed functions, so a batch's gradient is a linear image of its
gradient with respect to embeddings. Many batches are cheap: only each block's mean goes back through the encoder. For each
sampler and loss one batch is also taken through the training step's own gradient, and both must agree.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from ncfbench import analysis, conformance, environment, xray
from ncfbench.batch import Batch, Shared
from ncfbench.bias import FAMILY_ERROR, Bias, estimate
from ncfbench.config import MAX_SEED, RunConfig, complete
from ncfbench.datasets import Dataset
from ncfbench.embedding import Embedder
from ncfbench.errors import CheckFailedError, UsageError
from ncfbench.exact import Exact, ExactObjective, Pullback
from ncfbench.gradients import BatchGradients, Block
from ncfbench.graph import BipartiteGraph
from ncfbench.model import Content
from ncfbench.probe import Probe
from ncfbench.progress import Progress
from ncfbench.registry import find_loss, find_sampler
from ncfbench.samplers import Sampler, make_sampler, plan_capacity
from ncfbench.step import Parameters, Trainer, copy_state
from ncfbench.streams import Streams
from ncfbench.timing import TimedLoop, interleave

BLOCKS = 24
"""Independent means that a verdict rests on."""
FEWER = {"replacement": (1, BLOCKS), "shuffled": (2, BLOCKS // 2), "more": (2, BLOCKS // 2)}
"""How many times fewer batches a mode is looked at through, and in how many blocks: what is noisier needs more."""
MORE_NEGATIVES = 4
"""How many times more negatives a listwise loss is looked at with, to see its bias fall."""
STEP_TOLERANCE = 1e-3
"""Largest relative difference between a batch's gradient by the training step and by the audit: float32's rounding."""
TIMING_ROUNDS, TIMING_BATCHES = 5, 16
WARM_UP_SAMPLER = "ns"
"""Serves every loss; the point it leads to is the same for all samplers that are audited there."""
AUDIT_SEED = MAX_SEED + 3


@dataclass(frozen=True)
class Options:
    """What to audit, besides the settings of a run."""

    samplers: tuple[str, ...]
    losses: tuple[str, ...]
    noises: tuple[str, ...]
    batches: int = 1536
    margin: float = 0.1
    warmup: int = 20

    def __post_init__(self) -> None:
        if self.batches < 2 * BLOCKS:
            raise UsageError(f"batches = {self.batches}: an audit needs at least {2 * BLOCKS}, in {BLOCKS} blocks.")
        if not 0 < self.margin < 1:
            raise UsageError(f"margin = {self.margin}: it must lie between 0 and 1, for example 0.05 for 5 %.")
        if self.warmup < 1:
            raise UsageError(f"warmup = {self.warmup}: it must be at least 1 iteration.")


@dataclass(frozen=True)
class Point:
    """Parameters at which gradients are compared, for one loss and one noise distribution."""

    name: str
    parameters: Parameters
    exact: Exact
    gradient: NDArray[np.float32]
    """float32[P]: the exact one."""
    negative_share: float
    """Length of the negative term's gradient over the whole one's."""
    probe: float
    batch_gradients: BatchGradients
    pullback: Pullback
    trainer: Trainer

    def mean(self, block: Block) -> NDArray[np.float32]:
        """float32[P]: the mean gradient of a block's batches."""
        return self.pullback(self.parameters, self.batch_gradients(block))


@dataclass(frozen=True)
class Record:
    """What an audit found, as rows of the tables of :mod:`ncfbench.tables`."""

    audit: list[dict[str, Any]]
    xray: list[dict[str, Any]]
    conformance: list[dict[str, Any]]

    @property
    def failures(self) -> list[str]:
        """What is wrong: biased gradients and properties that do not hold."""
        biased = [
            f"{row['sampler']} is biased for {row['loss']} ({row['noise']}, {row['point']})"
            for row in self.audit
            if row["verdict"] == "biased"
        ]
        names = conformance.PROPERTIES
        failed = [
            f"{row['sampler']}: {names[row['property']]}: {row['detail']}"
            for row in self.conformance
            if row["result"] == "fail"
        ]
        return [*dict.fromkeys(failed), *biased]


def run(dataset: Dataset, settings: Mapping[str, Any], options: Options, progress: Progress | None = None) -> Record:
    """The conformance suite, the X-ray and the audit of some samplers.

    Args:
        settings: of a run, without sampler, loss and noise; impossible combinations of these three are left out.

    Raises:
        UsageError: no combination is possible, or the exact sum would take too long.
    """
    progress = progress or Progress()
    configs = configurations(settings, options)
    graph = dataset.graph
    xrays: list[dict[str, Any]] = []
    outcomes: list[dict[str, Any]] = []
    seen: set[tuple[str, str]] = set()
    for (_, noise, sampler), config in configs.items():
        # Every family of losses with the first noise distribution, any one with the others.
        if (sampler, noise) in seen and ((sampler, noise + config.family) in seen or noise != options.noises[0]):
            continue
        if sampler not in {row["sampler"] for row in xrays}:
            xrays.append(xray.xray(dataset, config))
        found = conformance.conformance(graph, config)
        outcomes += conformance.rows(graph, config, found)
        seen |= {(sampler, noise), (sampler, noise + config.family)}
    failed = {row["sampler"] for row in outcomes if row["result"] == "fail"}
    for sampler in sorted(failed):
        progress.say(f"{sampler} fails the conformance suite.")
    broken = {
        row["sampler"] for row in outcomes if row["result"] == "fail" and row["property"] in ("shapes", "ids", "weights")
    }
    audited = {key: config for key, config in configs.items() if key[2] not in broken}
    return Record(audit(dataset, audited, options, progress) if audited else [], xrays, outcomes)


def configurations(settings: Mapping[str, Any], options: Options) -> dict[tuple[str, str, str], RunConfig]:
    """Complete settings by (loss, noise, sampler), for the possible combinations.

    Raises:
        UsageError: there is none.
    """
    strata = str(settings.get("strata", RunConfig.strata))
    configs = {}
    for noise in options.noises:
        for sampler in options.samplers:
            for loss in options.losses:
                if find_loss(loss).family in find_sampler(sampler).families_with(strata):
                    choice = {"noise": noise, "sampler": sampler, "loss": loss}
                    configs[loss, noise, sampler] = complete(dict(settings) | choice)
    if not configs:
        complete(dict(settings) | {"sampler": options.samplers[0], "loss": options.losses[0]})
    return configs


def audit(
    dataset: Dataset,
    configs: Mapping[tuple[str, str, str], RunConfig],
    options: Options,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """One row of :data:`ncfbench.tables.AUDIT` for each loss, noise distribution, sampler and point.

    Args:
        configs: complete settings by (loss, noise, sampler), for the possible combinations.
    """
    progress = progress or Progress()
    verdicts = 2 * len(configs)
    content = Content.of(dataset)
    where = environment.describe()
    progress.say(f"{verdicts} verdicts, each from {options.batches:,} batches; timing one iteration of each sampler first.")
    seconds = iteration_seconds(dataset, content, configs)
    towers = {
        loss: Towers.of(dataset, content, next(config for key, config in configs.items() if key[0] == loss), options.warmup)
        for loss in dict.fromkeys(key[0] for key in configs)
    }
    rows = []
    for noise in options.noises:
        points = {
            loss: towers[loss].points(
                dataset.graph, next(config for key, config in configs.items() if key[:2] == (loss, noise))
            )
            for loss in options.losses
            if any(key[:2] == (loss, noise) for key in configs)
        }
        for sampler in options.samplers:
            own = {loss: configs[loss, noise, sampler] for loss in points if (loss, noise, sampler) in configs}
            if not own:
                continue
            begin = time.perf_counter()
            found = audit_sampler(dataset, own, points, options, verdicts, check=noise == options.noises[0])
            for row in found:
                if row["variance_seconds"] is None and seconds.get(sampler) is not None:
                    row["full_iteration_seconds"] = seconds[sampler]
                    row["variance_seconds"] = row["batch_variance"] * seconds[sampler]
            rows += found
            counts = {verdict: sum(row["verdict"] == verdict for row in found) for verdict in {r["verdict"] for r in found}}
            summary = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
            progress.say(f"{noise} {sampler}: {summary}  ({time.perf_counter() - begin:.1f} s)")
    common = {"data_fingerprint": dataset.fingerprint, "environment_key": where["key"]}
    return [row | common for row in rows]


@dataclass(frozen=True)
class Towers:
    """What is fixed for a loss: two sets of parameters, and the way back through the towers."""

    trainer: Trainer
    embedder: Embedder
    pullback: Pullback
    parameters: Mapping[str, Parameters]

    @classmethod
    def of(cls, dataset: Dataset, content: Content, config: RunConfig, warmup: int) -> Towers:
        """The initial parameters and those after ``warmup`` iterations."""
        neutral = dataclasses.replace(config, sampler=WARM_UP_SAMPLER)
        trainer, state = Trainer.create(neutral, dataset)
        trained = copy_state(state)
        slots = plan_capacity(dataset.graph, neutral)
        batches = make_sampler(dataset.graph, neutral, Streams(config.seed)).batches(0, slots)
        for _ in range(warmup):
            trained, loss = trainer.step(trained, next(batches), content)
            jax.block_until_ready(loss)
        embedder = Embedder(trainer.towers, content)
        nodes = np.flatnonzero(dataset.graph.item_degrees > 0).astype(np.int32)
        parameters = {"initial": state.parameters, "warm": trained.parameters}
        return cls(trainer, embedder, Pullback(trainer.towers, embedder, nodes), parameters)

    def points(self, graph: BipartiteGraph, config: RunConfig) -> list[Point]:
        """The exact gradient at each of the parameters, for the noise distribution and mask of ``config``."""
        objective, probe = ExactObjective(graph, config, self.embedder), Probe(graph, config, self.embedder)
        points = []
        for name, parameters in self.parameters.items():
            exact = objective(parameters)
            gradient = self.pullback(parameters, exact.positive + exact.negative)
            negative = self.pullback(parameters, exact.negative)
            raw = np.asarray(parameters["users"]["embedding"][...], np.float64)
            users, items = self.embedder.users(parameters), self.embedder.items(parameters, self.pullback.nodes)
            points.append(
                Point(
                    name=name,
                    parameters=parameters,
                    exact=exact,
                    gradient=gradient,
                    negative_share=float(np.linalg.norm(negative) / np.linalg.norm(gradient)),
                    probe=probe(parameters),
                    batch_gradients=BatchGradients(config, users, raw, items),
                    pullback=self.pullback,
                    trainer=self.trainer,
                )
            )
        return points


def audit_sampler(
    dataset: Dataset,
    configs: Mapping[str, RunConfig],
    points: Mapping[str, Sequence[Point]],
    options: Options,
    verdicts: int,
    *,
    check: bool = True,
) -> list[dict[str, Any]]:
    """The rows of one sampler and noise distribution.

    Args:
        configs: complete settings by loss.
        points: by loss.
        check: compare a batch's gradient with the training step's.
    """
    graph = dataset.graph
    nodes = np.flatnonzero(graph.item_degrees > 0)
    place = np.zeros(graph.n_items, np.int32)
    place[nodes] = np.arange(len(nodes))
    results: dict[tuple[str, str, str], Bias] = {}
    # Weights differ only between listwise and other losses: those of a kind share their batches.
    for listwise in (False, True):
        losses = [loss for loss, config in configs.items() if (config.family == "listwise") == listwise]
        if not losses:
            continue
        config = configs[losses[0]]
        modes = {"replacement": config, "shuffled": config}
        if listwise and MORE_NEGATIVES * config.batch_size <= graph.n_links:
            modes["more"] = _with_more_negatives(config)
        for mode, settings in modes.items():
            sampler = make_sampler(graph, settings, Streams(AUDIT_SEED + settings.seed), replacement=mode != "shuffled")
            fewer, blocks = FEWER[mode]
            size = max(options.batches // fewer // blocks, 1)
            targets = [(loss, point) for loss in losses for point in points[loss]]
            means: list[list[NDArray[np.float32]]] = [[] for _ in targets]
            for batches in _blocks(sampler, blocks, size):
                block = Block(batches, place, len(nodes), graph.n_users)
                if check and mode == "replacement" and not listwise and not means[0]:
                    _check_step(configs[losses[0]], targets[0][1], batches[0], place, len(nodes))
                for vectors, (_, point) in zip(means, targets, strict=True):
                    vectors.append(point.mean(block))
            for vectors, (loss, point) in zip(means, targets, strict=True):
                results[mode, loss, point.name] = estimate(np.stack(vectors), point.gradient, size * blocks, verdicts)
    sampler = make_sampler(graph, next(iter(configs.values())), Streams(0))
    return [
        _row(configs[loss], point, results, sampler.shuffled_bias(), options, verdicts)
        for loss in configs
        for point in points[loss]
    ]


def iteration_seconds(
    dataset: Dataset, content: Content, configs: Mapping[tuple[str, str, str], RunConfig]
) -> dict[str, float | None]:
    """Seconds of one training iteration of each sampler (full account), interleaved, with its first valid loss."""
    first: dict[str, RunConfig] = {}
    for (_, _, sampler), config in configs.items():
        first.setdefault(sampler, config)
    with ExitStack() as stack:
        loops = {}
        for name, config in first.items():
            trainer, state = Trainer.create(config, dataset)
            made = make_sampler(dataset.graph, config, Streams(config.seed))
            slots = plan_capacity(dataset.graph, config)
            loops[name] = stack.enter_context(TimedLoop(trainer, state, content, made, slots))
        interleave(list(loops.values()), TIMING_ROUNDS, lambda loop: TIMING_BATCHES)
        return {
            name: analysis.seconds_per_iteration([dataclasses.asdict(sample) for sample in loop.samples], "full")
            for name, loop in loops.items()
        }


def _with_more_negatives(config: RunConfig) -> RunConfig:
    return dataclasses.replace(
        config,
        batch_size=MORE_NEGATIVES * config.batch_size,
        negatives=MORE_NEGATIVES * config.negatives,
        uniform_items=MORE_NEGATIVES * config.uniform_items,
    )


def _blocks(sampler: Sampler, blocks: int, size: int) -> Iterator[list[Batch]]:
    """``blocks`` lists of ``size`` consecutive batches, all of one shape within a list."""
    stream = sampler.batches(0, plan_capacity(sampler.graph, sampler.config))
    for _ in range(blocks):
        block: list[Batch] = []
        while len(block) < size:
            batch = next(stream)
            if block and len(batch.items) != len(block[0].items):
                block = [_wider(narrow, len(batch.items)) for narrow in block]
            block.append(batch)
        yield block


def _wider(batch: Batch, slots: int) -> Batch:
    """A batch with more padding slots."""
    more = slots - len(batch.items)
    items = np.pad(batch.items, (0, more))
    negatives = batch.negatives
    if isinstance(negatives, Shared):
        negatives = Shared(np.pad(negatives.weight, ((0, 0), (0, more))))
    return batch._replace(items=items, negatives=negatives)


def _check_step(config: RunConfig, point: Point, batch: Batch, place: NDArray[np.int32], nodes: int) -> None:
    """One batch's gradient by the code that trains, against the audit's own way.

    Raises:
        CheckFailedError: they differ by more than rounding.
    """
    content = point.pullback.embedder.content
    _, tree = point.trainer.gradient(point.parameters, batch, content, None)
    trained = np.concatenate([np.asarray(leaf).reshape(-1) for leaf in jax.tree.leaves(tree)])
    audited = point.mean(Block([batch], place, nodes, len(point.batch_gradients.raw)))
    difference = float(np.linalg.norm(trained - audited) / np.linalg.norm(trained))
    if not difference <= STEP_TOLERANCE:
        raise CheckFailedError(
            f"The gradient of a {config.sampler} batch by the training step and by the audit differ by {difference:.1e} of "
            f"its length (--loss {config.loss}): the audit's verdicts would not speak of what is trained."
        )


def _row(
    config: RunConfig,
    point: Point,
    results: Mapping[tuple[str, str, str], Bias],
    shuffled_bias: float | None,
    options: Options,
    verdicts: int,
) -> dict[str, Any]:
    found = results["replacement", config.loss, point.name]
    shuffled = results["shuffled", config.loss, point.name]
    more = results.get(("more", config.loss, point.name))
    verdict: str = found.verdict(options.margin)
    if find_loss(config.loss).family == "listwise":
        verdict = "consistent" if found.upper <= options.margin else consistency(found, more, options.margin, verdicts)
    effective = config.effective()
    return {
        **{name: effective[name] for name in ("dataset", "encoder", "loss", "noise", "sampler", "strata", "mask")},
        **{name: effective[name] for name in ("batch_size", "negatives", "stratum_size", "uniform_items", "seed")},
        "point": point.name,
        "verdict": verdict,
        "batches": found.batches,
        "margin": options.margin,
        "verdicts": verdicts,
        "bias": found.estimate,
        "bias_low": found.lower,
        "bias_high": found.upper,
        "detectable_bias": found.detectable,
        "cosine": found.cosine,
        "batches_needed": found.batches_needed(options.margin) if verdict == "too few batches" else None,
        "bias_with_4x_negatives": more and more.estimate,
        "bias_with_4x_negatives_low": more and more.lower,
        "bias_with_4x_negatives_high": more and more.upper,
        "shuffled_bias": shuffled.estimate,
        "shuffled_bias_low": shuffled.lower,
        "shuffled_bias_high": shuffled.upper,
        "predicted_shuffled_bias": None if shuffled_bias is None or more else shuffled_bias * point.negative_share,
        "batch_variance": found.variance,
        "full_iteration_seconds": None,
        "variance_seconds": None,
        "exact_loss": point.exact.value,
        "probe_loss": point.probe,
    }


def consistency(found: Bias, more: Bias | None, margin: float, verdicts: int) -> str:
    """Whether a bias falls as the negatives grow: ``consistent``, ``biased`` (it does not), or not to be said.

    A bias of the order of one over the negatives falls to a quarter with four times as many, its square to a sixteenth.
    Consistent: with more negatives the bias is within the margin, or its square is shown to be below half of that with
    fewer. Biased: it is shown to be above half.
    """
    from scipy import stats

    if more is None:
        return "too few batches"
    quantile = float(stats.t.ppf(1 - FAMILY_ERROR / (2 * verdicts), FEWER["more"][1] - 1))
    gap = found.squared / 2 - more.squared
    error = float(np.hypot(found.squared_error / 2, more.squared_error))
    if more.upper <= margin or gap > quantile * error:
        return "consistent"
    return "biased" if gap < -quantile * error else "too few batches"
