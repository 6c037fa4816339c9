"""The settings of a run, with the paper's defaults, and the identity that they give it.

History of the identity (:meth:`RunConfig.digest`):

2. ``user_tower`` and ``interaction`` are new; at their defaults the identity is that without them.
   Settings that only some encoders have are declared on these. A plug-in that does not declare what
   it uses is identified by every setting that it could read; in version 1 two runs of a plug-in
   encoder that differed in ``lstm_units`` had one identity. Identities of runs with built-in
   samplers, losses and encoders are those of version 1, and so are those of plug-ins that use none
   of the settings ``filters``, ``filter_width``, ``lstm_units`` and declare so.
1. One list of settings for all encoders; those that a run does not use are null.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ncfbench.config.checks import canonical_noise, check, noise_exponent
from ncfbench.declarations import LossFamily, SamplerTraits, Traits
from ncfbench.errors import UsageError, nearest
from ncfbench.registry import BUILT_IN, find, find_encoder, find_loss, find_sampler
from ncfbench.settings import Kind, Setting

MAX_SEED = 2**32 - 1
NULL_IN_VERSION_1 = ("filters", "filter_width", "lstm_units")
"""Encoders' settings that the first version of the identity wrote for every run."""


def _setting(default: Any, help: str, **more: Any) -> Any:
    """Declare a field; its setting gets the field's name in :data:`SETTINGS`."""
    return field(default=default, metadata={"setting": (default, help, more)})


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Everything that decides a run's numbers. Where two runs agree in it and in the data, their
    curves are equal.

    Complete and possible by construction: make one with :func:`complete`. A setting that the
    run's sampler, loss or encoder declares is an attribute too.

    Raises:
        UsageError: a value is out of range, or a combination cannot work.
    """

    dataset: str = _setting("citeulike", "Prepared data set", panel="Data")
    sampler: str = _setting(
        "strat-ns", "How mini-batches are built", panel="Sampler", chooses="sampler"
    )
    encoder: str = _setting("cnn", "Item function g", panel="Model", chooses="encoder")
    loss: str = _setting("sg", "Loss function", panel="Training", chooses="loss")
    user_tower: str = _setting(
        "table", "User function f", panel="Model", chooses="user_tower", since=2
    )
    interaction: str = _setting(
        "dot",
        "Score r(u, v) of a user's and an item's vector",
        panel="Model",
        chooses="interaction",
        since=2,
    )
    batch_size: int = _setting(512, "b: positive links in a batch", panel="Sampler", at_least=1)
    stratum_size: int = _setting(
        4,
        "s: positive links in a stratum",
        panel="Sampler",
        at_least=1,
        used_by="sampler",
    )
    negatives: int = _setting(
        None,
        "k: negative links for each positive one",
        panel="Sampler",
        type="int",
        at_least=1,
        used_by="sampler",
        default_from="encoder",
    )
    strata: str = _setting(
        "item",
        "What the links of a stratum share",
        panel="Sampler",
        choices=("item", "user"),
        used_by="sampler",
    )
    uniform_items: int = _setting(
        None,
        "k': items drawn uniformly into each batch",
        panel="Sampler",
        type="int",
        at_least=1,
        used_by="sampler",
        default_from="batch_size",
    )
    noise: str = _setting(
        "unigram",
        "Noise distribution P_n: unigram, uniform, or an exponent of the item degree",
        panel="Sampler",
    )
    mask: bool = _setting(
        True, "Leave linked pairs out of the negatives", panel="Sampler", used_by="sampler"
    )
    unique_items: bool = _setting(
        True, "Embed each distinct item of a batch once", panel="Sampler", used_by="sampler"
    )
    epochs: int = _setting(30, "Passes over the training links", panel="Training", at_least=1)
    learning_rate: float = _setting(
        None,
        "Adam's learning rate",
        panel="Training",
        type="float",
        above=0,
        default_from="loss",
        is_tunable=True,
    )
    gamma: float | None = _setting(
        None,
        "Margin of hinge, scale of the others",
        panel="Training",
        type="float",
        above=0,
        default_from="loss",
    )
    lambda_: float | None = _setting(
        None,
        "Weight of the negative term",
        panel="Training",
        type="float",
        above=0,
        default_from="loss",
    )
    word_dropout: float = _setting(
        0.5,
        "Share of words removed from a text in training",
        panel="Model",
        at_least=0,
        below=1,
        used_by="encoder",
        is_tunable=True,
    )
    item_dropout: float = _setting(
        0.1,
        "Dropout on item embeddings in training",
        panel="Model",
        at_least=0,
        below=1,
        is_tunable=True,
    )
    user_l2: float = _setting(
        1e-6, "Weight of the users' squared norm", panel="Training", at_least=0
    )
    seed: int = _setting(
        0,
        "Seed of parameters, batches and dropout",
        panel="Training",
        at_least=0,
        at_most=MAX_SEED,
    )
    probe_every: int = _setting(
        0,
        "Iterations between probes of the objective; 0: four in an epoch",
        panel="Training",
        at_least=0,
        shown="four in an epoch",
    )
    dimension: int = _setting(
        50, "Length of the user and item embeddings", panel="Model", at_least=1
    )
    word_dimension: int = _setting(
        50, "Length of the word embeddings", panel="Model", at_least=1, used_by="encoder"
    )
    patience: int = _setting(
        10,
        "Epochs without a better validation recall before the reported epoch is settled",
        panel="Training",
        at_least=1,
    )
    probe_links: int = _setting(
        16384,
        "Links of the probe, where the exact sum over all pairs is too long",
        panel="Training",
        at_least=1,
    )
    probe_negatives: int = _setting(
        64, "Draws from P_n for each link of the probe", panel="Training", at_least=1
    )
    precision: str = _setting(
        "float32",
        "Precision of the training step's products",
        panel="Devices",
        choices=("float32", "tf32", "bfloat16"),
    )
    iterations_per_dispatch: int = _setting(
        0,
        "Iterations in one call of the compiled step; 0: by backend",
        panel="Devices",
        at_least=0,
        shown="by backend",
    )
    devices: int = _setting(
        1,
        "Devices that a batch is spread over; on a CPU simulated ones",
        panel="Devices",
        at_least=1,
        shown="1; of several processes all",
    )
    share: str = _setting(
        "global",
        "Items that are negatives on several devices, all or each device's own",
        panel="Devices",
        choices=("global", "local"),
    )
    shard_tables: bool = _setting(
        False,
        "Spread embedding tables and their moments over the devices by row",
        panel="Devices",
    )
    tuned: str = _setting(
        "",
        "Settings that sweep --tune chose, its trials and their epochs: learning_rate:8x10",
        panel="Training",
        has_flag=False,
        shown="set by sweep --tune",
    )
    own: tuple[tuple[str, Any], ...] = ()
    """Names and values of the settings that the sampler, the loss and the encoder declare."""

    def __post_init__(self) -> None:
        check(self)

    def __getattr__(self, name: str) -> Any:
        values = dict(self.__dict__.get("own", ()))
        if name in values:
            return values[name]
        raise AttributeError(
            f"no setting {name!r}: this run's sampler, loss and encoder declare none of that name"
        )

    @cached_property
    def settings(self) -> Mapping[str, Setting]:
        """The settings that the run has, by name (``lambda`` without its underscore)."""
        return SETTINGS | own_settings({kind: getattr(self, kind) for kind in BUILT_IN})

    @property
    def noise_exponent(self) -> float:
        """alpha of P_n(v) ~ deg(v)^alpha: 1 for unigram, 0 for uniform."""
        return noise_exponent(self.noise)

    @property
    def family(self) -> LossFamily:
        """The family of the loss."""
        return find_loss(self.loss).family

    @property
    def normalize(self) -> bool:
        """Whether embeddings are scaled to unit length, as the authors' program does for all but
        pointwise losses.
        """
        return self.family != "pointwise"

    @property
    def shares_locally(self) -> bool:
        """Whether a batch is one of parts that share negatives within themselves only."""
        return self.share == "local"

    def on_one_device(self) -> RunConfig:
        """Return the same settings for one device."""
        return dataclasses.replace(self, devices=1, share="global", shard_tables=False)

    @property
    def placement(self) -> dict[str, Any]:
        """Device placement: with global sharing it affects timing, not results."""
        return {"devices": self.devices, "shard_tables": self.shard_tables and self.devices > 1}

    @property
    def tuned_settings(self) -> tuple[str, ...]:
        """The settings that a sweep chose for this arm on the validation items."""
        return tuple(self.tuned.partition(":")[0].split("+")) if self.tuned else ()

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as ``config.json`` has them: ``lambda`` without its underscore."""
        return {name: getattr(self, _inner(name)) for name in SETTINGS} | dict(self.own)

    def effective(self) -> dict[str, Any]:
        """Return :meth:`to_dict` with null for settings that change no number of this run, without
        those at their default that older versions of the identity lack.
        """
        sampler, encoder = find_sampler(self.sampler), find_encoder(self.encoder)
        unused = {
            name
            for name, setting in SETTINGS.items()
            if (setting.used_by == "sampler" and not sampler.counts_with(name, self.strata))
            or (setting.used_by == "encoder" and not encoder.counts(name))
        }
        # Where all items are shared, the number of devices changes no result.
        unused |= {"shard_tables"} if self.shares_locally else {"shard_tables", "devices", "share"}
        values = self.to_dict() | dict.fromkeys(unused)
        return {
            name: value
            for name, value in values.items()
            if name not in SETTINGS or SETTINGS[name].since == 1 or value != SETTINGS[name].default
        }

    def digest(self) -> str:
        """Return twelve hexadecimal digits that name these settings."""
        text = json.dumps(dict.fromkeys(NULL_IN_VERSION_1) | self.effective(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def _outer(name: str) -> str:
    """Return a setting's name as users write it: ``lambda`` is a word of Python's."""
    return name.rstrip("_")


def _inner(name: str) -> str:
    return "lambda_" if name == "lambda" else name


def _shared() -> dict[str, Setting]:
    return {
        _outer(each.name): Setting(_outer(each.name), default, text, **more)
        for each in dataclasses.fields(RunConfig)
        if "setting" in each.metadata
        for default, text, more in [each.metadata["setting"]]
    }


SETTINGS: dict[str, Setting] = _shared()
"""The settings that every run has, by name."""
TUNABLE = tuple(name for name, setting in SETTINGS.items() if setting.is_tunable)


def own_settings(chosen: Mapping[Kind, str]) -> dict[str, Setting]:
    """Return the settings that a run has beside :data:`SETTINGS`.

    These are the ``settings`` that its choices declare, and those of others that their ``uses``
    name. A plug-in without ``uses`` has those of all built-in ones of its kind.

    Args:
        chosen: the names of the sampler, the loss, the encoder and so on.

    Raises:
        UsageError: a name is taken.
    """
    found: dict[str, Setting] = {}
    for kind, name in chosen.items():
        traits = find(kind, name)
        for setting in traits.settings:
            if hasattr(RunConfig, setting.name) or setting.name in found:
                raise UsageError(
                    f"{name} declares a setting {setting.name!r}, a name that is taken. Rename it."
                )
            found[setting.name] = setting
        others = built_in_settings([kind])
        borrowed = [other for other in others if not traits.declares_uses or other in traits.uses]
        found = {other: others[other] for other in borrowed} | found
    return found


def built_in_settings(kinds: Iterable[Kind] = BUILT_IN) -> dict[str, Setting]:
    """Return the settings that built-in choices declare as their own."""
    return {
        setting.name: setting
        for kind in kinds
        for name in BUILT_IN[kind]
        for setting in find(kind, name).settings
    }


def known_settings(chosen: Mapping[Kind, Iterable[str]] | None = None) -> dict[str, Setting]:
    """Return all settings that may be given: the shared ones, those of everything built in, and
    those of some choices.

    Args:
        chosen: names of samplers, losses and so on.
    """
    theirs = {
        setting.name: setting
        for kind, names in (chosen or {}).items()
        for name in names
        for setting in find(kind, name).settings
    }
    return SETTINGS | built_in_settings() | theirs


def users_of(setting: Setting) -> list[str]:
    """Return the built-in choices whose runs use a setting; none where all do."""
    for kind, names in BUILT_IN.items():
        users = [name for name in names if _is_user(find(kind, name), setting, kind)]
        if users:
            return users if len(users) < len(names) or setting.name not in SETTINGS else []
    return []


def default_text(setting: Setting) -> str:
    """Return a default as ``--help`` shows it: ``10; lstm 5`` where the encoder decides."""
    if setting.shown or not setting.default_from:
        return setting.shown or _text(setting, setting.default)
    if setting.default_from in SETTINGS and setting.default_from not in BUILT_IN:
        return f"as {setting.default_from}"
    kind: Kind = "loss" if setting.default_from == "loss" else "encoder"
    values = {name: _declared(find(kind, name), setting) for name in BUILT_IN[kind]}
    # A default for all, and the exceptions; or one for each of those that have one.
    usual = None if None in values.values() else values[SETTINGS[kind].default]
    named = [f"{name} {value:g}" for name, value in values.items() if value not in (None, usual)]
    return "; ".join(([] if usual is None else [f"{usual:g}"]) + named)


def complete(settings: Mapping[str, Any], ignored: Collection[str] = ()) -> RunConfig:
    """Return a :class:`RunConfig` from some settings, with defaults for the rest.

    Settings of built-in encoders that the run does not have are checked and left out, so that one
    grid can name them for all.

    Args:
        settings: keys as in ``config.json``; None stands for "not given".
        ignored: more names that may be left out.

    Raises:
        UsageError: an unknown setting, a value of a wrong type or out of range, or a combination
            that cannot work.
    """
    given = {_outer(key): value for key, value in settings.items() if value is not None}
    names: dict[Kind, str] = {
        kind: SETTINGS[kind].convert(given.get(kind, SETTINGS[kind].default)) for kind in BUILT_IN
    }
    traits: dict[str, Traits] = {kind: find(kind, name) for kind, name in names.items()}
    own = own_settings(names)
    had = SETTINGS | own
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name in had:
            values[name] = had[name].convert(value)
        elif name in (others := built_in_settings()):
            others[name].check(others[name].convert(value))
        elif name not in ignored:
            raise UsageError(unknown(name, had))
    if "noise" in values:
        values["noise"] = canonical_noise(values["noise"])
    for name, setting in had.items():
        if name in values:
            continue
        if setting.default_from in traits:
            values[name] = _declared(traits[setting.default_from], setting)
        else:
            values[name] = values.get(setting.default_from, setting.default)
    shared = {_inner(name): values[name] for name in SETTINGS}
    return RunConfig(**shared, own=tuple((name, values[name]) for name in own))


def unknown(name: str, known: Iterable[str]) -> str:
    """Return the message that refuses an unknown setting."""
    valid = list(known)
    return f"Unknown setting {name!r}{nearest(name, valid)} Valid: {', '.join(valid)}."


def _declared(traits: Traits, setting: Setting) -> Any:
    """Return the default that a loss or encoder declares for a setting."""
    return getattr(traits, _inner(setting.name))


def _is_user(traits: Traits, setting: Setting, kind: Kind) -> bool:
    if setting.default_from == kind == "loss":
        return _declared(traits, setting) is not None
    by_user = traits.uses_by_user if isinstance(traits, SamplerTraits) else ()
    is_used = setting.used_by == kind and setting.name in (*traits.uses, *by_user)
    return is_used or setting in traits.settings


def _text(setting: Setting, value: Any) -> str:
    if setting.type == "bool":
        return setting.flag.removeprefix("--") if value else f"no-{setting.flag.removeprefix('--')}"
    return f"{value:g}" if setting.type == "float" else str(value)
