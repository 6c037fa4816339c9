"""The architecture and the weights of BERT-like models, in folders of the usual layout.

``config.json`` has the architecture and ``model.safetensors`` the weights. Where they are there,
``1_Pooling/config.json`` and ``modules.json`` say how a text's vector is made of its words'.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ncfbench.data.pieces import INSTALL
from ncfbench.data.pretrained import CONFIG, MODULES, POOLING, WEIGHTS
from ncfbench.errors import DataError, UsageError, reason

PREFIXES = ("", "bert.", "model.", "0.auto_model.")
"""Beginnings of the weights' names, by the program that saved them."""
Arrays = Mapping[str, NDArray[np.float32]]


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
    pooling: Literal["mean", "first"]
    normalises: bool
    """True if a text's vector is scaled to unit length."""

    @classmethod
    def read(cls, folder: Path) -> Architecture:
        """Read the architecture of a model in a folder.

        Raises:
            DataError: a file is missing or damaged, or the model is none of BERT's kind.
        """
        found = _json(folder / CONFIG)
        kind = found.get("model_type", "bert")
        activation = found.get("hidden_act", "gelu")
        kind_of_positions = found.get("position_embedding_type", "absolute")
        for name, value, known in (
            ("model_type", kind, "bert"),
            ("hidden_act", activation, "gelu"),
            ("position_embedding_type", kind_of_positions, "absolute"),
        ):
            if value != known:
                raise DataError(
                    f"{folder / CONFIG}: {name} is {value!r}, and only models of BERT's kind are"
                    f" supported ({known!r}), such as MiniLM."
                )
        pooling = _json(folder / POOLING) if (folder / POOLING).exists() else {}
        modules = _json(folder / MODULES) if (folder / MODULES).exists() else []
        try:
            words, positions, width, layers, heads, units = (
                int(found[name])
                for name in (
                    "vocab_size",
                    "max_position_embeddings",
                    "hidden_size",
                    "num_hidden_layers",
                    "num_attention_heads",
                    "intermediate_size",
                )
            )
            uses_first = bool(pooling.get("pooling_mode_cls_token", False))
            if pooling and not uses_first and not pooling.get("pooling_mode_mean_tokens", False):
                raise DataError(
                    f"{folder / POOLING}: a text's vector must be the mean of its words' or the"
                    " first one."
                )
            return cls(
                words,
                positions,
                width,
                layers,
                heads,
                units,
                epsilon=float(found.get("layer_norm_eps", 1e-12)),
                pooling="first" if uses_first else "mean",
                normalises=any(str(each["type"]).endswith("Normalize") for each in modules),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(
                f"{folder / CONFIG} does not describe a model of BERT's kind: {reason(error)}."
            ) from error


def read_weights(folder: Path, architecture: Architecture) -> Arrays:
    """Return the weights of a model by their names in BERT.

    Raises:
        DataError: the file is damaged, or a weight is missing or has another shape.
        UsageError: the package ``safetensors`` is not installed.
    """
    if importlib.util.find_spec("safetensors") is None:
        raise UsageError(f"--encoder bert needs the package safetensors. Install it: {INSTALL}")
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    path = folder / WEIGHTS
    try:
        found = load_file(path)
    except (OSError, SafetensorError, ValueError, TypeError) as error:
        raise DataError(f"{path} is damaged: {reason(error)}.") from error
    wanted = shapes(architecture)
    anchor = "embeddings.word_embeddings.weight"
    prefix = next((each for each in PREFIXES if each + anchor in found), None)
    if prefix is None:
        raise DataError(f"{path} holds no {anchor}: it is none of BERT's kind.")
    weights = {}
    for name, shape in wanted.items():
        value = found.get(prefix + name)
        if value is None or value.shape != shape:
            had = "is missing" if value is None else f"has the shape {value.shape}"
            raise DataError(f"{path}: {prefix + name} {had}; {CONFIG} asks for {shape}.")
        weights[name] = np.asarray(value, np.float32)
    return weights


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


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"Cannot read {path}: {reason(error)}.") from error
