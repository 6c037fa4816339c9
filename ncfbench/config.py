"""The settings of a run: defaults from the paper, layers of overrides, and the checks that refuse
the impossible.

A :class:`RunConfig` is complete and possible by construction: whatever depends on the loss or the
encoder is already filled in, and a combination that cannot work has been refused before any data is
read.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ncfbench import division
from ncfbench.errors import UsageError, reason
from ncfbench.registry import (
    LossFamily,
    find_encoder,
    find_interaction,
    find_loss,
    find_sampler,
    find_user_tower,
    nearest,
)

DATA_DIR_VARIABLE = "NCFBENCH_DATA_DIR"
RUNS_DIR_VARIABLE = "NCFBENCH_RUNS_DIR"
CACHE_DIR_VARIABLE = "NCFBENCH_CACHE_DIR"

MAX_SEED = 2**32 - 1
PRECISIONS = ("float32", "tf32", "bfloat16")
"""Of the training step's products; see :mod:`ncfbench.models.precision`."""
TUNABLE = ("learning_rate", "word_dropout", "item_dropout")
"""Settings that leave the objective as it is: tuned for each arm by itself, their probe losses are
still comparable.
"""

LATER = ("user_tower", "interaction")
"""Settings that earlier versions lacked. At their defaults they are left out of a run's identity,
so that earlier runs keep theirs.
"""


def _setting(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Everything that decides a run's numbers. Where two runs agree in it and in the data, their
    curves are equal.
    """

    dataset: str = _setting("citeulike", "prepared data set to train on")
    sampler: str = _setting("strat-ns", "how mini-batches are built")
    encoder: str = _setting("cnn", "item function g")
    loss: str = _setting("sg", "loss function")
    user_tower: str = _setting("table", "user function f")
    interaction: str = _setting("dot", "score r(u, v) of a user's and an item's vector")
    batch_size: int = _setting(512, "positive links in a batch (b)")
    stratum_size: int = _setting(4, "positive links in a stratum (s), for strat and strat-ns")
    negatives: int = _setting(
        0, "negative links for each positive one (k), for iid, neg and strat; 10, or 5 for lstm"
    )
    strata: str = _setting("item", "what the links of a stratum share: item or user")
    uniform_items: int = _setting(
        0, "items drawn uniformly into each batch (k'), for mixed-ns; as many as positive links"
    )
    noise: str = _setting(
        "unigram", "noise distribution P_n: unigram, uniform, or an exponent of the item degree"
    )
    mask: bool = _setting(True, "leave linked pairs out of the negatives")
    unique_items: bool = _setting(True, "embed each distinct item of a batch once")
    epochs: int = _setting(30, "passes over the training links")
    learning_rate: float = _setting(0.0, "Adam's learning rate; 0.001 for mse, 0.01 for the others")
    gamma: float | None = _setting(None, "margin of hinge (0.1), scale of log and softmax (10)")
    lambda_: float | None = _setting(None, "weight of the negative term of sg (128) or mse (8)")
    word_dropout: float = _setting(0.5, "share of words removed from a text while training")
    item_dropout: float = _setting(0.1, "dropout on the item embedding while training")
    user_l2: float = _setting(1e-6, "weight of the users' squared norm")
    seed: int = _setting(0, "seed of the parameters, the batches and dropout")
    probe_every: int = _setting(
        0, "iterations between probes of the objective; 0 = four in an epoch"
    )
    dimension: int = _setting(50, "length of the user and item embeddings")
    word_dimension: int = _setting(50, "length of the word embeddings")
    filters: int = _setting(50, "filters of the convolution (cnn)")
    filter_width: int = _setting(3, "words a filter spans (cnn); odd")
    lstm_units: int = _setting(50, "units of the recurrent layer (lstm)")
    patience: int = _setting(
        10, "epochs without a better validation recall before the reported epoch is settled"
    )
    probe_links: int = _setting(
        16384, "links of the probe, where the exact sum over all pairs is too long"
    )
    probe_negatives: int = _setting(64, "draws from P_n for each link of the probe")
    precision: str = _setting(
        "float32", "of the training step's products: float32, tf32 or bfloat16"
    )
    iterations_per_dispatch: int = _setting(
        0, "iterations in one call of the compiled step; 0 = by backend"
    )
    devices: int = _setting(1, "devices that a batch is spread over")
    share: str = _setting(
        "global",
        "whose items are negatives on several devices: global (all) or local (each its own)",
    )
    shard_tables: bool = _setting(
        False, "spread embedding tables and their moments over the devices by row"
    )
    tuned: str = _setting(
        "",
        "what `sweep --tune` chose, and its trials and their epochs: learning_rate:8x10; set by it",
    )

    def __post_init__(self) -> None:
        _check(self)

    @property
    def noise_exponent(self) -> float:
        """alpha of P_n(v) ~ deg(v)^alpha: 1 for unigram, 0 for uniform."""
        return _noise_exponent(self.noise)

    @property
    def family(self) -> LossFamily:
        """The family of the loss."""
        return find_loss(self.loss).family

    @property
    def normalize(self) -> bool:
        """Whether embeddings are scaled to unit length: for all but pointwise losses (the authors'
        program does).
        """
        return self.family != "pointwise"

    @property
    def shares_locally(self) -> bool:
        """Whether a batch is one of parts that share negatives within themselves only."""
        return self.share == "local"

    def on_one_device(self) -> RunConfig:
        """The same settings for one device."""
        return dataclasses.replace(self, devices=1, share="global", shard_tables=False)

    @property
    def placement(self) -> dict[str, Any]:
        """Where the step lies: settings that with global sharing change times, and no number."""
        return {"devices": self.devices, "shard_tables": self.shard_tables and self.devices > 1}

    @property
    def tuned_settings(self) -> tuple[str, ...]:
        """The settings that a sweep chose for this arm on the validation items."""
        return tuple(self.tuned.partition(":")[0].split("+")) if self.tuned else ()

    def to_dict(self) -> dict[str, Any]:
        """The settings as they are written to ``config.json``: ``lambda`` without its
        underscore.
        """
        return {_outer(name): value for name, value in dataclasses.asdict(self).items()}

    def effective(self) -> dict[str, Any]:
        """Like :meth:`to_dict`, with null where the sampler, encoder or data does not use a
        setting; without those of :data:`LATER` at their default.
        """
        values = self.to_dict()
        sampler = find_sampler(self.sampler)
        unused = {
            "negatives": not sampler.uses_negatives,
            "stratum_size": not sampler.uses_strata,
            "strata": not sampler.uses_strata,
            "uniform_items": not sampler.uses_uniform_items,
            "filters": self.encoder != "cnn",
            "filter_width": self.encoder != "cnn",
            "lstm_units": self.encoder != "lstm",
            "word_dimension": self.encoder == "mf",
            "word_dropout": self.encoder == "mf",
            "unique_items": self.sampler in ("strat", "strat-ns") and self.strata == "item",
            # Where all items are shared, how many devices there are changes no number.
            "devices": not self.shares_locally,
            "share": not self.shares_locally,
            "shard_tables": True,
        }
        later = {name for name in LATER if values[name] == FIELDS[name].default}
        values |= {name: None for name, is_unused in unused.items() if is_unused}
        return {name: value for name, value in values.items() if name not in later}

    def digest(self) -> str:
        """Twelve hexadecimal digits that name these settings."""
        text = json.dumps(self.effective(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def _outer(name: str) -> str:
    return name.rstrip("_")


FIELDS: Mapping[str, dataclasses.Field[Any]] = {
    _outer(f.name): f for f in dataclasses.fields(RunConfig)
}
LOCATION_KEYS = ("data_dir", "runs_dir")


@dataclass(frozen=True)
class Locations:
    """Where prepared data and runs live."""

    data_dir: Path = Path("data")
    runs_dir: Path = Path("runs")


def cache_dir() -> Path:
    """Where downloads, measured peaks and compiled programs are kept.

    ``NCFBENCH_CACHE_DIR``, or the user's cache folder (XDG on Linux).
    """
    if CACHE_DIR_VARIABLE in os.environ:
        return Path(os.environ[CACHE_DIR_VARIABLE])
    import pooch

    return Path(pooch.os_cache("ncfbench"))


def resolve(
    flags: Mapping[str, Any] | None = None,
    assignments: Sequence[str] = (),
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> tuple[RunConfig, Locations]:
    """Merge the layers: flag, then ``--set``, then environment, then file, then the default for the
    loss and encoder.

    Args:
        flags: settings given by flags; None stands for "not given".
        assignments: ``key=value`` strings.
        file: a TOML file of settings.
        environment: variables to look at (``os.environ`` by default).

    Raises:
        UsageError: an unknown key (with the nearest valid one), a malformed value, or an impossible
            combination.
    """
    merged, places = merge(flags, assignments, file, environment)
    return complete(merged), places


def merge(
    flags: Mapping[str, Any] | None = None,
    assignments: Sequence[str] = (),
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> tuple[dict[str, Any], Locations]:
    """The settings that the layers of :func:`resolve` give, without defaults."""
    environment = os.environ if environment is None else environment
    variables = {"data_dir": DATA_DIR_VARIABLE, "runs_dir": RUNS_DIR_VARIABLE}
    layers: list[Mapping[str, Any]] = [
        _read_file(file) if file else {},
        {key: environment[name] for key, name in variables.items() if environment.get(name)},
        dict(_split_assignment(text) for text in assignments),
        {key: value for key, value in (flags or {}).items() if value is not None},
    ]
    merged: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            name = _outer(key.replace("-", "_"))
            if name in LOCATION_KEYS:
                merged[name] = Path(str(value))
            elif name in FIELDS:
                merged[name] = _convert(name, value)
            else:
                raise UsageError(
                    f"Unknown setting {key!r}{nearest(name, [*FIELDS, *LOCATION_KEYS])} "
                    f"Valid: {', '.join([*FIELDS, *LOCATION_KEYS])}."
                )
    places = Locations(**{key: merged.pop(key) for key in LOCATION_KEYS if key in merged})
    return merged, places


def complete(settings: Mapping[str, Any]) -> RunConfig:
    """A :class:`RunConfig` from some settings (keys as in ``config.json``) and the defaults for its
    loss and encoder.
    """
    given: dict[str, Any] = {
        FIELDS[_outer(key)].name: _convert(_outer(key), value)
        for key, value in settings.items()
        if value is not None
    }
    if "noise" in given:
        given["noise"] = _canonical_noise(given["noise"])
    if given.get("negatives", 1) < 1:
        raise UsageError(
            f"negatives = {given['negatives']}: a positive link needs at least one negative. Use 1"
            " or more."
        )
    if "learning_rate" in given:
        _require_positive("learning_rate", given["learning_rate"])
    if given.get("uniform_items", 1) < 1:
        raise UsageError(
            f"uniform_items = {given['uniform_items']}: mixed-ns draws at least one; without any it"
            " is ns."
        )
    encoder = find_encoder(given.get("encoder", RunConfig.encoder))
    loss = find_loss(given.get("loss", RunConfig.loss))
    defaults = {
        "negatives": encoder.negatives,
        "uniform_items": given.get("batch_size", RunConfig.batch_size),
        "learning_rate": loss.learning_rate,
        "gamma": loss.gamma,
        "lambda_": loss.lambda_,
    }
    return RunConfig(**(defaults | given))


def _read_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"Cannot read the configuration {path}: {reason(error)}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {reason(error)}.") from error


def _split_assignment(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UsageError(
            f"--set {text!r} is not of the form key=value, for example --set filters=100."
        )
    return key.strip(), value.strip()


def _convert(name: str, value: Any) -> Any:
    """``value`` as the type of the setting; text is parsed, anything else must have the type
    already.
    """
    kind = str(FIELDS[name].type).removesuffix(" | None")
    words = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a name"}
    try:
        if kind == "str" and isinstance(value, str | int | float) and not isinstance(value, bool):
            return str(value)
        if kind == "bool":
            return (
                value
                if isinstance(value, bool)
                else {"true": True, "false": False}[str(value).lower()]
            )
        if kind == "int" and isinstance(value, int | str) and not isinstance(value, bool):
            return int(value)
        if kind == "float" and isinstance(value, int | float | str) and not isinstance(value, bool):
            return float(value)
    except (ValueError, KeyError):
        pass
    raise UsageError(f"{name} = {value!r} is not {words[kind]}.")


def _noise_exponent(noise: str) -> float:
    named = {"unigram": 1.0, "uniform": 0.0}
    if noise in named:
        return named[noise]
    try:
        exponent = float(noise)
    except ValueError:
        raise UsageError(
            f"Unknown noise {noise!r}{nearest(noise, named)} Valid: unigram, uniform, or an"
            " exponent such as 0.75."
        ) from None
    if not math.isfinite(exponent) or abs(exponent) > 8:
        raise UsageError(f"noise = {noise}: the exponent must be a finite number between -8 and 8.")
    return exponent


def _canonical_noise(noise: str) -> str:
    """One spelling for each distribution: ``1.0`` is unigram, ``0`` uniform."""
    exponent = _noise_exponent(noise)
    return {1.0: "unigram", 0.0: "uniform"}.get(exponent, f"{exponent:g}")


def _require_positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise UsageError(f"{_outer(name)} = {value}: it must be a finite number above 0.")


def _check(config: RunConfig) -> None:
    """Refuse what cannot work, with what to use instead."""
    sampler = find_sampler(config.sampler)
    loss = find_loss(config.loss)
    find_encoder(config.encoder)
    find_user_tower(config.user_tower)
    find_interaction(config.interaction)
    _noise_exponent(config.noise)

    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", config.dataset):
        raise UsageError(
            f"dataset = {config.dataset[:80]!r} is not a data set's name: at most 64 letters,"
            " digits, dots and hyphens."
        )
    if config.strata not in ("item", "user"):
        raise UsageError(
            f"strata = {config.strata!r}{nearest(config.strata, ('item', 'user'))} Valid: item,"
            " user."
        )
    if config.precision not in PRECISIONS:
        raise UsageError(
            f"precision = {config.precision!r}{nearest(config.precision, PRECISIONS)} Valid:"
            f" {', '.join(PRECISIONS)}."
        )
    counts = (
        "batch_size",
        "stratum_size",
        "negatives",
        "uniform_items",
        "epochs",
        "dimension",
        "word_dimension",
        "filters",
    )
    for name in (
        *counts,
        "devices",
        "filter_width",
        "lstm_units",
        "patience",
        "probe_links",
        "probe_negatives",
    ):
        if getattr(config, name) < 1:
            raise UsageError(f"{name} = {getattr(config, name)}: it must be at least 1.")
    _require_positive("learning_rate", config.learning_rate)
    for name in ("gamma", "lambda_"):
        if getattr(config, name) is not None:
            _require_positive(name, getattr(config, name))
    for name in ("word_dropout", "item_dropout"):
        if not 0 <= getattr(config, name) < 1:
            raise UsageError(
                f"{name} = {getattr(config, name)}: it must be at least 0 and below 1."
            )
    if not (math.isfinite(config.user_l2) and config.user_l2 >= 0):
        raise UsageError(f"user_l2 = {config.user_l2}: it must be a finite number, 0 or above.")
    if config.probe_every < 0:
        raise UsageError(
            f"probe_every = {config.probe_every}: it must be 0 (four in an epoch) or above."
        )
    if config.iterations_per_dispatch < 0:
        raise UsageError(
            f"iterations_per_dispatch = {config.iterations_per_dispatch}: it must be 0 (the"
            " backend's choice) or above."
        )
    if config.tuned and not (
        re.fullmatch(r"[^:]+:\d+x\d+", config.tuned) and set(config.tuned_settings) <= set(TUNABLE)
    ):
        raise UsageError(
            f"tuned = {config.tuned!r} is not of the form learning_rate:8x10. It is set by ncfbench"
            " sweep --tune."
        )
    if not 0 <= config.seed <= MAX_SEED:
        raise UsageError(f"seed = {config.seed}: it must be between 0 and {MAX_SEED}.")
    if config.filter_width % 2 == 0:
        raise UsageError(
            f"filter_width = {config.filter_width}: it must be odd, so that a filter has a middle"
            " word."
        )

    served = sampler.families_with(config.strata)
    if loss.family not in served:
        if loss.family == "pointwise":
            reason, instead = (
                f"it serves {' and '.join(served)} losses only",
                "--loss log, hinge or softmax",
            )
        else:
            kind = {
                "pairwise": "pairwise loss compares two items",
                "listwise": "listwise loss compares items",
            }[loss.family]
            reason = (
                f"a {kind} of one user, and {config.sampler} draws its negative links for other"
                " users"
            )
            instead = f"--sampler {sampler.instead}, or --loss sg or mse"
        raise UsageError(
            f"--sampler {config.sampler} cannot train --loss {config.loss}: {reason}. Use"
            f" {instead}."
        )
    if loss.family == "pointwise" and config.gamma is not None:
        raise UsageError(
            f"gamma belongs to the other losses (log, hinge, softmax); --loss {config.loss} has"
            " none."
        )
    if loss.family != "pointwise" and config.lambda_ is not None:
        raise UsageError(
            f"lambda belongs to the pointwise losses (sg, mse); --loss {config.loss} has none."
        )
    if loss.gamma is None and loss.family != "pointwise" and config.gamma is not None:
        raise UsageError(f"--loss {config.loss} has no gamma.")
    b, s = config.batch_size, config.stratum_size
    if sampler.uses_strata and b % s:
        raise UsageError(
            f"batch_size = {b} is not a multiple of stratum_size = {s}. Use for example"
            f" --batch-size {max(b // s, 2) * s}."
        )
    if config.sampler == "strat-ns" and b == s:
        raise UsageError(
            f"batch_size = stratum_size = {b}: the only stratum of a batch has no other whose items"
            f" could be its negatives. Use --batch-size {2 * s} or more."
        )
    division.check(
        config.sampler,
        batch_size=b,
        stratum_size=s,
        uniform_items=config.uniform_items,
        devices=config.devices,
        share=config.share,
    )
    if config.sampler == "ns" and b == 1:
        raise UsageError(
            "batch_size = 1: with one link in a batch, ns has no negatives. Use --batch-size 2 or"
            " more."
        )
