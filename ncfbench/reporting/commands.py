"""Commands that a report names: the run of an arm, and the flags of its settings."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from ncfbench.catalog import find_encoder
from ncfbench.config import RunConfig, all_settings, identity_of
from ncfbench.reporting.comparison import unusual_settings
from ncfbench.runs.arms import Variant, shared_settings

CHOSEN = ("loss", "sampler", "batch_size", "stratum_size", "negatives", "learning_rate")
"""Settings that an answer chooses."""


def flags(config: RunConfig) -> str:
    """Return the flags of ``ncfbench run`` for :data:`CHOSEN`, the defaults too, and for what else
    the sampler was told.
    """
    effective = identity_of(config)
    names = [name for name in CHOSEN if effective.get(name) is not None]
    told = dict.fromkeys([*dict(Variant.of(config).own), *config.objective_settings])
    names += [name for name in told if name in unusual_settings(config)]
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
    own = {name: getattr(variant, name) for name in ("strata", "uniform_items", "share")}
    usual = {
        "stratum_size": RunConfig.stratum_size,
        "negatives": find_encoder(config.encoder).negatives,
    }
    own |= {
        name: getattr(variant, name)
        for name, value in usual.items()
        if getattr(variant, name) != value
    }
    settings |= {name: value for name, value in own.items() if value is not None}
    settings |= {"sampler": variant.sampler, **({"seed": seed} if seed else {})}
    settings |= dict(variant.own)
    words = ["ncfbench", "run"]
    known = {**config.settings, **all_settings({"sampler": [variant.sampler]})}
    for name in dict.fromkeys(["dataset", "sampler", "encoder", "loss", *known]):
        if name in settings:
            words += known[name].arguments(settings[name])
    return shlex.join([*words, *(word for pair in locations.items() for word in pair)])
