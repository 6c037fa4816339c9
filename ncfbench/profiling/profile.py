"""The profile: the cost of each part of an iteration, what it predicts, and what samplers take.

Everything is compiled first, then measured in rounds (:mod:`ncfbench.profiling.measure`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ncfbench.catalog import SAMPLERS, baseline_sampler, find_loss, find_sampler, serves
from ncfbench.config import Folder, RunConfig, complete, digest_of, identity_of
from ncfbench.data import Dataset, open_dataset
from ncfbench.data.assets import merge_named
from ncfbench.errors import UsageError
from ncfbench.profiling import costs
from ncfbench.profiling.batches import BatchMaker, calibration_points
from ncfbench.profiling.costs import Counts, Row
from ncfbench.rng import Streams
from ncfbench.runs.labels import unusual_settings
from ncfbench.runs.plan import require_content
from ncfbench.runs.progress import Progress
from ncfbench.sampling import Sampler, make_sampler, plan_capacity
from ncfbench.timing import environment
from ncfbench.timing.compile_cache import keep_compiled
from ncfbench.timing.contention import OtherPrograms

FEWEST_ROUNDS = 3
"""Fewer show no spread."""


@dataclass(frozen=True)
class Record:
    """A profile as rows of the tables of :mod:`ncfbench.storage.schemas`."""

    profile: list[Row] = field(repr=False)
    unitcost: list[Row] = field(repr=False)
    costmodel: list[Row] = field(repr=False)

    @property
    def tables(self) -> dict[str, list[Row]]:
        """Rows by their names in :data:`ncfbench.storage.schemas.PROFILE_TABLES`."""
        return dict(vars(self))


def profile(
    *,
    samplers: Sequence[str] | None = None,
    rounds: int = 11,
    data_dir: Folder = None,
    say: Callable[[str], None] = print,
    progress: Progress | None = None,
    **settings: Any,
) -> Record:
    """Measure what an iteration is made of, and predict each sampler's iteration from it.

    Nothing is written: ``record.tables`` holds the rows.

    Args:
        samplers: their names; by default the paper's five.

    Raises:
        DataError: the data set is not prepared.
        UsageError: too few rounds, or no sampler that can work.
    """
    if samplers is None:
        samplers = [name for name, info in SAMPLERS.items() if info.in_paper]
    flags = settings | {"data_dir": data_dir}
    given, locations = merge_named(say, flags, chosen={"sampler": samplers})
    configs = configurations(given, samplers)
    if rounds < FEWEST_ROUNDS or not configs:
        raise UsageError(
            f"A profile needs one sampler or more, and {FEWEST_ROUNDS} rounds or more."
        )
    example = next(iter(configs.values()))
    if refused := [name for name in samplers if name not in configs]:
        say(f"Left out, as the loss refuses them: {', '.join(refused)}.")
    dataset = open_dataset(example.dataset, data_dir=locations.data_dir, say=say)
    require_content(example, dataset)
    made = {
        name: make_sampler(dataset.graph, config, Streams(config.seed))
        for name, config in configs.items()
    }
    keep_compiled(say)
    return _profile(dataset, made, rounds, progress or Progress())


def _profile(
    dataset: Dataset, samplers: Mapping[str, Sampler], n_rounds: int, progress: Progress
) -> Record:
    from ncfbench.models.towers import DeviceContent
    from ncfbench.profiling import measure
    from ncfbench.training.loop import timed_loops
    from ncfbench.training.step import Trainer

    configs = {name: sampler.config for name, sampler in samplers.items()}
    example = next(iter(configs.values()))
    other_programs = OtherPrograms()
    content = DeviceContent.of(dataset, configs.values())
    described = environment.describe()
    progress.say(f"Compiling the steps of {len(configs)} samplers.")
    batches = {
        name: next(sampler.batches(0, plan_capacity(dataset.graph, sampler.config)))
        for name, sampler in samplers.items()
    }
    counts = {name: Counts.of(batch) for name, batch in batches.items()}
    points = calibration_points(list(counts.values()), example)
    with timed_loops(dataset, content, configs) as loops:
        steps = measure.Steps(*Trainer.create(example, dataset), content)
        for name, loop in loops.items():
            loop.trainer.require_memory(loop.state, batches[name], loop.content)
        programs = measure.timed_steps(points, BatchMaker(dataset.graph, example), steps)
        for name, loop in loops.items():
            programs += measure.timed_sampler(name, loop, samplers[name])
        other_programs.warn(progress.say)
        samples = measure.measure_rounds(programs, n_rounds, progress)
        other_programs.warn(progress.say)
    unit_costs, unit_rows = costs.unit_costs(samples, points)
    on_accelerator = any(device["platform"] != "cpu" for device in described["devices"])
    rows = [
        costs.cost_row(
            samplers[name], counts[name], samples, unit_costs, on_accelerator=on_accelerator
        )
        for name in configs
    ]
    for row in rows:
        row |= costs.speedup_columns(row, rows[0], samples)
    identity = identity_of(example)
    common = {name: identity[name] for name in ("dataset", "encoder", "loss", "batch_size")}
    common |= {
        "settings": settings_digest(example),
        "unusual_settings": unusual_words(example),
        "data_fingerprint": dataset.fingerprint,
        "environment_key": described["key"],
    }
    strata = {name: identity_of(config)["strata"] for name, config in configs.items()}
    return Record(
        [{**common, "strata": strata.get(row["sampler"] or ""), **row} for row in samples],
        [{**common, **row} for row in unit_rows],
        [{**common, **row} for row in rows],
    )


def settings_digest(config: RunConfig) -> str:
    """Return twelve hexadecimal digits of all settings but the sampler."""
    return digest_of(config.to_dict() | {"sampler": None}, config.settings)


def unusual_words(config: RunConfig) -> str:
    """Return the settings of a profile that differ from the defaults: ``convolution=plain``.

    Those that its tables name anyway are left out.
    """
    named = ("dataset", "encoder", "loss", "batch_size", "sampler")
    unusual = unusual_settings(config)
    return ", ".join(f"{name}={value}" for name, value in unusual.items() if name not in named)


def configurations(settings: Mapping[str, Any], samplers: Sequence[str]) -> dict[str, RunConfig]:
    """Return complete settings by sampler, for one device, the baseline of the loss first.

    Samplers that cannot serve the loss are left out.

    Raises:
        UsageError: none can, or a setting is impossible.
    """
    loss = str(settings.get("loss", RunConfig.loss))
    order = sorted(dict.fromkeys(samplers), key=lambda name: name != baseline_sampler(loss))
    strata = str(settings.get("strata", RunConfig.strata))
    traits = find_loss(loss)
    served = [name for name in order if serves(find_sampler(name).with_strata(strata), traits)]
    if not served and order:
        complete({**settings, "sampler": order[0]}, ignore_unknown=True)
    given = dict(settings) | {"devices": 1}
    return {name: complete(given | {"sampler": name}, ignore_unknown=True) for name in served}
