"""Settings in words: labels of runs that compare, the flags of an arm, the command of a run."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from ncfbench.catalog import find_encoder
from ncfbench.config import RunConfig, all_settings, default_values, identity_of, revisions_of
from ncfbench.runs.arms import Variant, shared_settings
from ncfbench.runs.folder import RunRecord

CHOSEN = ("loss", "sampler", "batch_size", "stratum_size", "negatives", "learning_rate")
"""Settings that an answer chooses."""
NO_CHOICES = (
    *("dataset", "seed", "epochs", "patience", "probe_every", "probe_links"),
    "word_dimension",
)
"""Settings that nobody chooses a model by, or that follow another one."""
NAMED = ("encoder", "loss", "sampler")
"""Settings that labels of models name by their values alone."""
SHORT = {
    "batch_size": "b",
    "stratum_size": "s",
    "negatives": "k",
    "learning_rate": "lr",
    "dimension": "d",
}
"""Settings by their short names in labels of models and in the names of candidates."""


def label(runs: Sequence[RunRecord]) -> str:
    """Return b, s and k, other settings that differ from the defaults, and the seeds.

    s and k are those of arms that name none, such as ``b=512, s=4, k=10, epochs=8, seeds 0 to 2``.

    Args:
        runs: with the same :func:`unusual_label`.
    """
    configs = [run.config for run in runs]
    encoders = dict.fromkeys(config.encoder for config in configs)
    parts = [f"b={configs[0].batch_size}", *usual_shape(map(Variant.of, configs), encoders)]
    parts += [
        unusual_label(runs[0], ["batch_size"]),
        seeds_label({config.seed for config in configs}),
    ]
    return ", ".join(filter(None, parts))


def data_headings(data: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return a heading for each name and fingerprint of a data set, with digits of the fingerprint
    where names collide.
    """
    known = dict.fromkeys(data)
    names = [name for name, _ in known]
    return {
        (name, digits): name if names.count(name) == 1 else f"{name} {digits[:6]}"
        for name, digits in known
    }


def usual_sizes(encoder: str) -> dict[str, int]:
    """Return the paper's s and k, by setting."""
    return {"stratum_size": RunConfig.stratum_size, "negatives": find_encoder(encoder).negatives}


def usual_shape(variants: Iterable[Variant], encoders: Iterable[str]) -> list[str]:
    """Return s and k of arms that name none, such as ``s=4`` and ``k=10``."""
    parts = []
    if any(variant.stratum_size == RunConfig.stratum_size for variant in variants):
        parts.append(f"s={RunConfig.stratum_size}")
    usual = {name: find_encoder(name).negatives for name in encoders}
    if len(set(usual.values())) == 1:
        return [*parts, f"k={next(iter(usual.values()))}"]
    return parts + [f"k={k} ({find_encoder(name).title})" for name, k in usual.items()]


def seeds_label(seeds: Iterable[int]) -> str:
    """Return ``seed 0``, ``seeds 0 to 2`` or ``seeds 0, 5``."""
    known = sorted(seeds)
    if len(known) == 1:
        return f"seed {known[0]}"
    if known == list(range(known[0], known[-1] + 1)):
        return f"seeds {known[0]} to {known[-1]}"
    return f"seeds {', '.join(map(str, known))}"


@cache
def unusual_settings(config: RunConfig) -> Mapping[str, Any]:
    """Return the settings that the run reads and that differ from the defaults for its encoder,
    loss and sampler.
    """
    usual, settings = default_values(config), config.settings
    return {
        name: value
        for name, value in config.to_dict().items()
        if value != usual[name] and config.reads(settings[name])
    }


def unusual_label(record: RunRecord, left_out: Iterable[str] = ()) -> str:
    """Return the shared settings that differ from the defaults, such as ``epochs=8, noise=0.75``,
    but for data set, encoder, loss and those of ``left_out``; and revisions of its classes that are
    not the present ones, such as ``encoder revision 1``.
    """
    config = record.config
    shared = shared_settings(config).keys() - {"dataset", "encoder", "loss", *left_out}
    unusual = unusual_settings(config).items()
    parts = [f"{name}={value}" for name, value in unusual if name in shared]
    return ", ".join([*parts, *other_revisions(record)])


def other_revisions(record: RunRecord) -> list[str]:
    """Return the revisions of a run's classes that are not the present ones."""
    present = revisions_of(record.config)
    known = {kind: record.revisions.get(kind, 1) for kind in sorted({*present, *record.revisions})}
    return [f"{kind} revision {own}" for kind, own in known.items() if own != present.get(kind, 1)]


def choices_of(config: RunConfig) -> dict[str, Any]:
    """Return encoder, loss and sampler, and what else somebody chose a model by."""
    found = {name: getattr(config, name) for name in NAMED} | dict(unusual_settings(config))
    return {name: value for name, value in found.items() if name not in NO_CHOICES}


def choices_label(choices: Mapping[str, Any]) -> str:
    """Return choices in words, such as ``bow softmax strat-ns lr=0.003 d=100``."""
    return " ".join(
        str(value) if name in NAMED else f"{SHORT.get(name, name)}={value}"
        for name, value in choices.items()
    )


def flags(config: RunConfig, *, of_model: bool = False) -> str:
    """Return the flags of ``ncfbench run`` for :data:`CHOSEN`, the defaults too, and for what else
    the sampler was told.

    Args:
        of_model: name the encoder first, and all else that is unusual but for how long to train.
    """
    effective = identity_of(config)
    names = [name for name in CHOSEN if effective.get(name) is not None]
    unusual = unusual_settings(config)
    names += [name for name in dict(Variant.of(config).own) if name in unusual]
    if of_model:
        of_run = {*names, "dataset", "encoder", "seed", "epochs", "probe_every", "probe_links"}
        names = ["encoder", *names, *(name for name in unusual if name not in of_run)]
    words = config.to_dict()
    return shlex.join(
        word for name in names for word in config.settings[name].arguments(words[name])
    )


def run_command(
    config: RunConfig, variant: Variant, seed: int, locations: Mapping[str, str]
) -> str:
    """Return the command line that trains the run of a missing cell."""
    named = {"dataset": config.dataset, "encoder": config.encoder, "loss": config.loss}
    shared = shared_settings(config)
    settings = {name: value for name, value in unusual_settings(config).items() if name in shared}
    settings |= named
    usual = usual_sizes(config.encoder)
    own = {name: getattr(variant, name) for name in ("strata", "uniform_items", *usual)}
    settings |= {name: of for name, of in own.items() if of not in (None, usual.get(name))}
    settings |= {"sampler": variant.sampler, **({"seed": seed} if seed else {})}
    settings |= dict(variant.own)
    words = ["ncfbench", "run"]
    known = {**config.settings, **all_settings({"sampler": [variant.sampler]})}
    for name in dict.fromkeys(["dataset", "sampler", "encoder", "loss", *known]):
        if name in settings:
            words += known[name].arguments(settings[name])
    return shlex.join([*words, *(word for pair in locations.items() for word in pair)])
