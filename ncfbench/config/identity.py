"""The identity of a run: the settings that change its numbers, and the digest that names them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from ncfbench.config.run_config import RunConfig
from ncfbench.settings import Setting

_EARLIEST = """
    dataset sampler encoder loss batch_size stratum_size negatives strata uniform_items noise mask
    unique_items epochs learning_rate gamma lambda word_dropout item_dropout user_l2 seed
    probe_every dimension word_dimension patience probe_links probe_negatives precision
    iterations_per_dispatch devices share shard_tables tuned filters filter_width lstm_units
    checkpoint pretrained_learning_rate frozen_layers mlp_units mlp_layers user_units user_layers
"""
NAMED_AT_DEFAULT = frozenset(_EARLIEST.split())
"""Settings of the earliest runs, which an identity names with any value. It names any other setting
only where that differs from its default, so a new setting leaves older runs their identity.
"""
NULL_WITHOUT = ("filters", "filter_width", "lstm_units")
"""Those that a digest has as null where a run has no such setting."""


def identity_of(config: RunConfig) -> dict[str, Any]:
    """Return the settings of a run's identity, with null for those of :data:`NAMED_AT_DEFAULT` that
    change no number of the run.
    """
    own = dict(config.own)
    unused = {
        name
        for name, setting in config.settings.items()
        if name not in own and not config.reads(setting)
    }
    # Where all items are shared, the number of devices changes no result.
    unused |= {"shard_tables"} if config.shares_locally else {"shard_tables", "devices", "share"}
    return named(config.to_dict() | dict.fromkeys(unused), config.settings)


def named(values: Mapping[str, Any], settings: Mapping[str, Setting]) -> dict[str, Any]:
    """Return those of a run's values that an identity names."""
    return {
        name: value
        for name, value in values.items()
        if name in NAMED_AT_DEFAULT or value not in (settings[name].default, None)
    }


def digest(config: RunConfig) -> str:
    """Return twelve hexadecimal digits that name a run's settings and its classes' revisions."""
    revisions = {
        f"{kind}_revision": info.revision
        for kind, info in config.infos.items()
        if info.revision > 1
    }
    values = dict.fromkeys(NULL_WITHOUT) | identity_of(config) | revisions
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]
