"""The identity of a run: the settings that change its numbers, and the digest that names them.

History of the identity:

7. The revision of a class is part of it, where it is not the first one. ``lstm`` has its second: it
   skips the words that dropout removes, where it read zeros.
6. ``hardest``, ``item_block``, ``memory``, ``mined``, ``mine_every`` and ``mine_skip`` are new; at
   their defaults the identity is that without them.
5. ``negative_users`` is new; at its default the identity is that without it.
4. ``features``, ``word_vectors``, ``coupling``, ``coupling_weight`` and the settings of ``gru``,
   ``transformer`` and of interactions are new; at their defaults the identity is that without them.
3. ``convolution`` is new; at its default the identity is that without it.
2. ``user_tower`` and ``interaction`` are new; at their defaults the identity is that without them.
   Settings that only some encoders have are declared on these. A plug-in that does not declare what
   it uses is identified by every setting that it could read; in version 1 two runs of a plug-in
   encoder that differed in ``lstm_units`` had one identity. Identities of runs with built-in
   samplers, losses and encoders are those of version 1, and so are those of plug-ins that use none
   of the settings ``filters``, ``filter_width``, ``lstm_units`` and declare so.
1. One list of settings for all encoders; those that a run does not use are null.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from ncfbench.catalog import BUILT_IN, find

if TYPE_CHECKING:
    from ncfbench.config.run_config import RunConfig

NULL_IN_VERSION_1 = ("filters", "filter_width", "lstm_units")
"""Encoders' settings that the first version of the identity wrote for every run."""


def effective(config: RunConfig) -> dict[str, Any]:
    """Return :meth:`RunConfig.to_dict` with null for settings that change no number of the run,
    without those at their default that older versions of the identity lack.
    """
    chosen = [find(kind, getattr(config, kind)) for kind in BUILT_IN]
    own = dict(config.own)
    unused = {
        name
        for name, setting in config.settings.items()
        if name not in own
        and setting.used_by in ("sampler", "encoder")
        and not any(traits.reads(name, config.strata) for traits in chosen)
    }
    # Where all items are shared, the number of devices changes no result.
    unused |= {"shard_tables"} if config.shares_locally else {"shard_tables", "devices", "share"}
    values = config.to_dict() | dict.fromkeys(unused)
    return {
        name: value
        for name, value in values.items()
        if config.settings[name].since == 1 or value not in (config.settings[name].default, None)
    }


def digest(config: RunConfig) -> str:
    """Return twelve hexadecimal digits that name a run's settings and its classes' revisions."""
    revisions = {kind: find(kind, getattr(config, kind)).revision for kind in BUILT_IN}
    named = {f"{kind}_revision": number for kind, number in revisions.items() if number > 1}
    values = dict.fromkeys(NULL_IN_VERSION_1) | effective(config) | named
    text = json.dumps(values, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
