"""The settings of a run, with the paper's defaults."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ncfbench.config import identity
from ncfbench.config.checks import check, noise_exponent
from ncfbench.config.own import own_settings, settings_of
from ncfbench.declarations import LossFamily
from ncfbench.registry import BUILT_IN, find_loss
from ncfbench.settings import Kind, Setting

MAX_SEED = 2**32 - 1


def _setting(default: Any, help: str, **more: Any) -> Any:
    """Declare a field; its setting gets the field's name in :data:`SETTINGS`."""
    return field(default=default, metadata={"setting": (default, help, more)})


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Everything that decides a run's numbers. Where two runs agree in it and in the data, their
    curves are equal.

    Complete and possible by construction: :func:`ncfbench.config.complete` makes it. A setting that
    the run's sampler, loss or encoder declares is an attribute too.

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
    coupling: str = _setting(
        "direct",
        "Item vectors that training scores: g itself, or free ones pulled towards g",
        panel="Model",
        choices=("direct", "regularised"),
        since=4,
    )
    coupling_weight: float = _setting(
        1.0,
        "Weight of the mean squared distance of free item vectors from g",
        panel="Model",
        at_least=0,
        only_with=("coupling", "regularised"),
        since=4,
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
        "Iterations between probes of the objective; 0: four in an epoch, one with bert",
        panel="Training",
        at_least=0,
        shown="four in an epoch, one with bert",
    )
    dimension: int = _setting(
        50, "Length of the user and item embeddings", panel="Model", at_least=1
    )
    word_dimension: int = _setting(
        50, "Length of the word embeddings", panel="Model", at_least=1, used_by="encoder"
    )
    features: str = _setting(
        "add",
        "Dense features of items beside their texts: added to g through a linear layer, or ignored",
        panel="Model",
        choices=("add", "ignore"),
        used_by="encoder",
        since=4,
    )
    word_vectors: str = _setting(
        "",
        "Word vectors to begin with: a file of word2vec's or GloVe's text or .npy, or its digest",
        panel="Model",
        used_by="encoder",
        since=4,
        shown="random ones",
    )
    patience: int = _setting(
        10,
        "Epochs without a better validation recall before the reported epoch is chosen",
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
    item_block: int = _setting(
        0,
        "Items that g encodes at a time, computed again in the backward pass: less memory for"
        " large batches; 0: all",
        panel="Devices",
        at_least=0,
        zero_word="all",
        shown="all",
        since=6,
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
        return run_settings({kind: getattr(self, kind) for kind in BUILT_IN})

    @property
    def sampler_settings(self) -> dict[str, Any]:
        """The values of the sampler's own settings."""
        return {name: getattr(self, name) for name in settings_of("sampler", self.sampler)}

    @property
    def mines(self) -> bool:
        """True if negatives are drawn from items that are mined during training."""
        return bool(self.sampler_settings.get("mined", 0))

    @property
    def arm_settings(self) -> dict[str, Any]:
        """The values of those of the sampler's own settings that leave the objective as it is."""
        own = self.sampler_settings
        return {name: own[name] for name in own if not self.settings[name].changes_objective}

    @property
    def objective_settings(self) -> dict[str, Any]:
        """The values of the sampler's own settings that give it another objective than L."""
        return {
            name: value
            for name, value in self.sampler_settings.items()
            if self.settings[name].changes_objective and value != self.settings[name].default
        }

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
        """True if embeddings are scaled to unit length, as the authors' program does for all but
        pointwise losses.
        """
        return self.family != "pointwise"

    @property
    def shares_locally(self) -> bool:
        """True if the shards of a batch share negatives only within themselves."""
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
        return {name: getattr(self, field_name(name)) for name in SETTINGS} | dict(self.own)

    def effective(self) -> dict[str, Any]:
        """Return the settings of the run's identity: :func:`ncfbench.config.identity.effective`."""
        return identity.effective(self)

    def digest(self) -> str:
        """Return twelve hexadecimal digits that name these settings."""
        return identity.digest(self)


def _outer(name: str) -> str:
    """Return a setting's name as users write it: ``lambda`` is a word of Python's."""
    return name.rstrip("_")


def field_name(name: str) -> str:
    """Return the name of a setting's field."""
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


def run_settings(chosen: Mapping[Kind, str]) -> dict[str, Setting]:
    """Return the settings of a run, those of its choices behind those of every run."""
    return SETTINGS | own_settings(chosen, dir(RunConfig))
