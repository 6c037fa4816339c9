"""The architecture and the weights of BERT-like models, in folders of the usual layout.

``config.json`` has the architecture and ``model.safetensors`` the weights. Where they are there,
``1_Pooling/config.json`` and ``modules.json`` say how a text's vector is made of its words'.
"""

from __future__ import annotations

import importlib.util
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ncfbench.data.pieces import INSTALL
from ncfbench.errors import DataError, UsageError, either, reason

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
POOLING = "1_Pooling/config.json"
MODULES = "modules.json"
PREFIXES = ("", "bert.", "model.", "0.auto_model.")
"""Beginnings of the weights' names, by the program that saved them."""
SUPPORTED = (
    "supported are the mean over the words (mean) and the first word's vector (cls), scaled to unit"
    " length (Normalize) or not"
)
"""How a text's vector may be made of its words'."""
FLOATS = ("F64", "F32", "F16", "BF16")
"""Types of weights that can be read; they become float32."""
Arrays: TypeAlias = Mapping[str, NDArray[np.float32]]
Pooling: TypeAlias = Literal["mean", "first"]


@dataclass(frozen=True)
class Architecture:
    """Sizes of a BERT-like encoder, and how its words' vectors become a text's."""

    words: int
    positions: int
    width: int
    layers: int
    heads: int
    feed_forward: int
    epsilon: float
    pooling: Pooling
    normalises: bool
    """True if a text's vector is scaled to unit length."""

    @classmethod
    def read(cls, folder: Path) -> Architecture:
        """Read the architecture of a model in a folder.

        Raises:
            DataError: a file is missing or damaged, or the model is none of BERT's kind.
        """
        path = folder / CONFIG
        found = _json(path, dict)
        for name, known in (
            ("model_type", "bert"),
            ("hidden_act", "gelu"),
            ("position_embedding_type", "absolute"),
        ):
            if (value := found.get(name, known)) != known:
                raise DataError(
                    f"{path}: {name} is {value!r}, and only models of BERT's kind are supported"
                    f" ({known!r}), such as MiniLM."
                )
        words, positions, width, layers, heads, units = (
            _size(path, found, name)
            for name in (
                "vocab_size",
                "max_position_embeddings",
                "hidden_size",
                "num_hidden_layers",
                "num_attention_heads",
                "intermediate_size",
            )
        )
        if width % heads:
            raise DataError(
                f"{path}: num_attention_heads is {heads}, and it must divide hidden_size, {width}."
            )
        epsilon = found.get("layer_norm_eps", 1e-12)
        if type(epsilon) not in (int, float) or not 0 < epsilon < math.inf:
            raise DataError(f"{path}: layer_norm_eps is {epsilon!r}, and it must be above 0.")
        pooling = _pooling(folder / POOLING)
        normalises = _normalises(folder / MODULES)
        sizes = words, positions, width, layers, heads, units
        return cls(*sizes, float(epsilon), pooling, normalises)


def read_verified(folder: Path) -> Architecture:
    """Read a model's architecture, and verify that its weights belong to it.

    Takes about 0.1 s for MiniLM (90 MB); one tensor is in memory at a time.

    Raises:
        DataError, UsageError: see :meth:`Architecture.read` and :func:`read_weights`.
    """
    architecture = Architecture.read(folder)
    for _ in _weights(folder, architecture):
        pass
    return architecture


def read_weights(folder: Path, architecture: Architecture) -> Arrays:
    """Return the weights of a model by their names in BERT.

    Raises:
        DataError: the file is damaged, or a weight is missing, has another shape or is not finite.
        UsageError: the package ``safetensors`` is not installed.
    """
    return dict(_weights(folder, architecture))


def _weights(folder: Path, architecture: Architecture) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Yield the name and the values of each weight; see :func:`read_weights`."""
    if importlib.util.find_spec("safetensors") is None:
        raise UsageError(f"--encoder bert needs the package safetensors. Install it: {INSTALL}")
    from safetensors import SafetensorError, safe_open

    path = folder / WEIGHTS
    try:
        with safe_open(path, "numpy") as file:
            names = set(file.keys())
            anchor = "embeddings.word_embeddings.weight"
            prefix = next((each for each in PREFIXES if each + anchor in names), None)
            if prefix is None:
                raise DataError(f"{path} holds no {anchor}: it is none of BERT's kind.")
            for name, shape in shapes(architecture).items():
                own = prefix + name
                stored = file.get_slice(own) if own in names else None
                had = tuple(stored.get_shape()) if stored else None
                if stored is None or had != shape:
                    which = "is missing" if stored is None else f"has the shape {had}"
                    raise DataError(f"{path}: {own} {which}; {CONFIG} asks for {shape}.")
                if (kind := stored.get_dtype()) not in FLOATS:
                    raise DataError(f"{path}: {own} is of type {kind}, not {either(FLOATS)}.")
                with np.errstate(over="ignore"):
                    value = np.asarray(file.get_tensor(own), np.float32)
                if not np.isfinite(value).all():
                    raise DataError(f"{path}: {own} has a value that is not a finite number.")
                yield name, value
    except (OSError, SafetensorError, ValueError, TypeError) as error:
        raise DataError(f"{path} is damaged: {reason(error)}.") from error


def shapes(architecture: Architecture) -> dict[str, tuple[int, ...]]:
    """Return the shape of each weight by its name in BERT; linear maps are [out, in]."""
    e, h = architecture.width, architecture.feed_forward
    found: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (architecture.words, e),
        "embeddings.position_embeddings.weight": (architecture.positions, e),
        "embeddings.token_type_embeddings.weight": (2, e),
        "embeddings.LayerNorm.weight": (e,),
        "embeddings.LayerNorm.bias": (e,),
    }
    for layer in range(architecture.layers):
        for name, (out, in_) in LINEAR.items():
            sizes = {"e": e, "h": h}
            found[f"encoder.layer.{layer}.{name}.weight"] = (sizes[out], sizes[in_])
            found[f"encoder.layer.{layer}.{name}.bias"] = (sizes[out],)
        for name in NORMS:
            found[f"encoder.layer.{layer}.{name}.weight"] = (e,)
            found[f"encoder.layer.{layer}.{name}.bias"] = (e,)
    return found


LINEAR: Mapping[str, tuple[str, str]] = {
    "attention.self.query": ("e", "e"),
    "attention.self.key": ("e", "e"),
    "attention.self.value": ("e", "e"),
    "attention.output.dense": ("e", "e"),
    "intermediate.dense": ("h", "e"),
    "output.dense": ("e", "h"),
}
"""Linear maps of a layer: their outputs and inputs, e for the width and h for the hidden layer."""
NORMS = ("attention.output.LayerNorm", "output.LayerNorm")
"""Normalisations of a layer."""


def _size(path: Path, found: Mapping[str, Any], name: str) -> int:
    value = found.get(name)
    if type(value) is not int or value < 1:
        shown = f"is {repr(value)[:40]}" if name in found else "is missing"
        raise DataError(f"{path}: {name} {shown}, and it must be a whole number above 0.")
    return value


def _pooling(path: Path) -> Pooling:
    """Read how a text's vector is made; the mean where nothing is said.

    The modes are flags (``pooling_mode_mean_tokens``) or, since sentence-transformers 6, one name
    or a list of names (``pooling_mode``).
    """
    found = _json(path, dict) if path.exists() else {}
    flags = {name: value for name, value in found.items() if name.startswith(FLAG)}
    if flags and "pooling_mode" not in found:
        names = [name.removeprefix(FLAG) for name, value in flags.items() if value]
        modes = [name.removesuffix("_tokens").removesuffix("_token") for name in names]
    else:
        given = found.get("pooling_mode", "mean")
        modes = given if isinstance(given, list) else [given]
    if len(modes) != 1 or str(modes[0]) not in POOLINGS:
        shown = " + ".join(map(str, modes)) or "none"
        raise DataError(f"{path}: the pooling {shown[:80]} is not supported; {SUPPORTED}.")
    return POOLINGS[modes[0]]


FLAG = "pooling_mode_"
"""Beginning of the flags' names, such as ``pooling_mode_cls_token``."""
POOLINGS: Mapping[str, Pooling] = {"mean": "mean", "cls": "first"}


def _normalises(path: Path) -> bool:
    """Read whether a text's vector is scaled to unit length; other modules are refused."""
    modules = _json(path, list) if path.exists() else []
    kinds = [
        str(each.get("type") if isinstance(each, dict) else each).rsplit(".", 1)[-1]
        for each in modules
    ]
    for kind in kinds:
        if kind not in ("Transformer", "Pooling", "Normalize"):
            raise DataError(f"{path}: the module {kind[:40]} is not supported; {SUPPORTED}.")
    return "Normalize" in kinds


def _json(path: Path, kind: type) -> Any:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"Cannot read {path}: {reason(error)}.") from error
    if not isinstance(found, kind):
        name = "object" if kind is dict else "list"
        raise DataError(f"{path} is damaged: it must hold a JSON {name}.")
    return found
