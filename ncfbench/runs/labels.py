"""Settings in words: labels of runs that compare, the flags of an arm, the command of a run."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Any

from ncfbench.catalog import find_encoder
from ncfbench.config import RunConfig, default_values, identity_of
from ncfbench.runs.arms import Variant, shared_settings
from ncfbench.runs.folder import RunRecord

CHOSEN = ("loss", "sampler", "batch_size", "stratum_size", "negatives", "learning_rate")
"""Settings that an answer chooses."""
OF_RUN = ("dataset", "seed", "epochs", "probe_every", "probe_links")
"""Settings that say on what, how long and how closely a model is trained."""
NO_CHOICES = (*OF_RUN, "patience", "word_dimension")
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
    parts = [f"b={configs[0].batch_size}"]
    if RunConfig.stratum_size in {Variant.of(config).stratum_size for config in configs}:
        parts.append(f"s={RunConfig.stratum_size}")
    encoders = map(find_encoder, dict.fromkeys(config.encoder for config in configs))
    usual = {f"k={info.negatives} ({info.title})": f"k={info.negatives}" for info in encoders}
    parts += usual if len({*usual.values()}) > 1 else [*usual.values()][:1]
    seeds = seeds_label({config.seed for config in configs})
    return ", ".join(filter(None, [*parts, unusual_label(runs[0], ["batch_size"]), seeds]))


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
    but for data set, encoder, loss and those of ``left_out``.
    """
    config = record.config
    shared = shared_settings(config).keys() - {"dataset", "encoder", "loss", *left_out}
    unusual = unusual_settings(config).items()
    return ", ".join(f"{name}={value}" for name, value in unusual if name in shared)


def choices_label(config: RunConfig) -> str:
    """Return encoder, loss and sampler, and what else somebody chose a model by, such as ``bow
    softmax strat-ns lr=0.003 d=100``.
    """
    words = [str(getattr(config, name)) for name in NAMED]
    for name, value in unusual_settings(config).items():
        if name not in NO_CHOICES:
            words.append(f"{SHORT.get(name, name)}={value}")
    return " ".join(words)


def flags(config: RunConfig) -> str:
    """Return the flags of ``ncfbench run`` for a model and its training, without :data:`OF_RUN`:
    the encoder, :data:`CHOSEN`, the defaults too, and all that is unusual.
    """
    effective, unusual = identity_of(config), unusual_settings(config)
    names = ["encoder", *(name for name in CHOSEN if effective.get(name) is not None)]
    names += [name for name in {**config.sampler_settings, **unusual} if name in unusual]
    return shlex.join(_arguments(config, (name for name in names if name not in OF_RUN)))


def run_command(config: RunConfig, locations: Mapping[str, str]) -> str:
    """Return the command line that trains a run."""
    unusual = unusual_settings(config)
    names = ["dataset", "sampler", "encoder", "loss", *unusual]
    words = ["ncfbench", "run", *_arguments(config, names), *chain(*locations.items())]
    return shlex.join(words)


def _arguments(config: RunConfig, names: Iterable[str]) -> list[str]:
    """Return the words of a command line that give settings, each once."""
    values = config.to_dict()
    return [
        word
        for name in dict.fromkeys(names)
        for word in config.settings[name].arguments(values[name])
    ]
