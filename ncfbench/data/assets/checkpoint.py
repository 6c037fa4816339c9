"""Checkpoints: folders of BERT-like models with their architectures and weights, and those that are
kept beside a data set for the encoder ``bert``.
"""

from __future__ import annotations

import filecmp
import hashlib
import math
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ncfbench.config import RunConfig, is_digest
from ncfbench.data.assets import pieces
from ncfbench.data.files import sha256
from ncfbench.data.store import Dataset
from ncfbench.errors import DataError, UsageError, either, reason
from ncfbench.storage import tables

DIGITS = 12  # hexadecimal, of a SHA-256 that names an asset; see config.is_digest
CONFIG, WEIGHTS = "config.json", "model.safetensors"
POOLING, MODULES = "1_Pooling/config.json", "modules.json"  # how words' vectors become a text's
PREFIXES = ("", "bert.", "model.", "0.auto_model.")
"""Beginnings of the weights' names, by the program that saved them."""
SUPPORTED = (
    "supported are the mean over the words (mean) and the first word's vector (cls), scaled to unit"
    " length (Normalize) or not"
)
KNOWN = {"model_type": "bert", "hidden_act": "gelu", "position_embedding_type": "absolute"}
"""Settings of a configuration that must have these values, where they are given."""
SIZES = {
    "words": "vocab_size",
    "positions": "max_position_embeddings",
    "width": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "feed_forward": "intermediate_size",
}
FLOATS = ("F64", "F32", "F16", "BF16")
"""Types of weights that can be read; they become float32."""
AGAIN = "Give its folder again, with --set checkpoint=FOLDER."
Arrays: TypeAlias = Mapping[str, NDArray[np.float32]]
Pooling: TypeAlias = Literal["mean", "first"]
POOLINGS: Mapping[str, Pooling] = {"mean": "mean", "cls": "first"}


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
        """Read a model's files; a DataError where one is damaged, or none of BERT's kind."""
        path = folder / CONFIG
        given = pieces.read_settings(path, dict)

        def require(is_right: bool, name: str, what: str) -> None:
            if not is_right:
                shown = f"is {repr(given[name])[:40]}" if name in given else "is missing"
                raise DataError(f"{path}: {name} {shown}, and {what}.")

        for name, known in KNOWN.items():
            what = f"only models of BERT's kind are supported ({known!r}), such as MiniLM"
            require(given.get(name, known) == known, name, what)
        for name in SIZES.values():
            is_size = type(size := given.get(name)) is int and size > 0
            require(is_size, name, "it must be a whole number above 0")
        sizes = {field: given[name] for field, name in SIZES.items()}
        divides = sizes["width"] % sizes["heads"] == 0
        require(divides, SIZES["heads"], f"it must divide hidden_size, {sizes['width']}")
        epsilon = given.get("layer_norm_eps", 1e-12)
        is_epsilon = type(epsilon) in (int, float) and 0 < epsilon < math.inf
        require(is_epsilon, "layer_norm_eps", "it must be above 0")
        pooling, normalises = _pooling(folder / POOLING), _normalises(folder / MODULES)
        return cls(**sizes, epsilon=float(epsilon), pooling=pooling, normalises=normalises)


def require_files(folder: Path, flag: str) -> None:
    """Refuse a folder that holds no model; ``flag`` named it."""
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise UsageError(
                f"{flag} {folder}: there is no {name}. Name the folder of a pretrained model."
            )


def present_files(folder: Path) -> list[str]:
    """Return the names of a model's files that are there, without those of the tokenizer."""
    return [name for name in (CONFIG, WEIGHTS, POOLING, MODULES) if (folder / name).is_file()]


def checkpoint_digest(folder: Path) -> str:
    """Return the digest of a model's files, without those of the tokenizer: 12 digits."""
    content = "\n".join(f"{name} {sha256(folder / name)}" for name in present_files(folder))
    return hashlib.sha256(content.encode()).hexdigest()[:DIGITS]


def embedding_digest(folder: Path) -> str:
    """Return a digest of a model's files, those of the tokenizer included: 12 digits.

    Raises:
        DataError: there is no tokenizer.
        UsageError: there is no model, or the package that reads its tokenizer is missing.
    """
    pieces.require_tokenizers("--embed")
    require_files(folder, "--embed")
    both = checkpoint_digest(folder) + pieces.tokenizer_digest(folder)
    return hashlib.sha256(both.encode()).hexdigest()[:DIGITS]


def read_verified(folder: Path) -> Architecture:
    """Read a model's architecture, and verify that its weights belong to it."""
    architecture = Architecture.read(folder)
    for _ in read_weights(folder, architecture):
        pass
    return architecture


def read_weights(
    folder: Path, architecture: Architecture
) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Yield the weights of a model and their names in BERT, one in memory at a time; a DataError
    where one is missing, has another shape or is not finite.
    """
    from safetensors import SafetensorError, safe_open

    path = folder / WEIGHTS
    try:
        with safe_open(path, "numpy") as file:
            names = set(file.keys())
            anchor = "embeddings.word_embeddings.weight"
            prefix = next((prefix for prefix in PREFIXES if prefix + anchor in names), None)
            if prefix is None:
                raise DataError(f"{path} holds no {anchor}: it is none of BERT's kind.")
            for name, shape in _shapes(architecture).items():
                key = prefix + name
                stored = file.get_slice(key) if key in names else None
                if stored is None or (had := tuple(stored.get_shape())) != shape:
                    which = "is missing" if stored is None else f"has the shape {had}"
                    raise DataError(f"{path}: {key} {which}; {CONFIG} asks for {shape}.")
                if (kind := stored.get_dtype()) not in FLOATS:
                    raise DataError(f"{path}: {key} is of type {kind}, not {either(FLOATS)}.")
                with np.errstate(over="ignore"):
                    value = np.asarray(file.get_tensor(key), np.float32)
                if not np.isfinite(value).all():
                    raise DataError(f"{path}: {key} has a value that is not a finite number.")
                yield name, value
    except (OSError, SafetensorError, ValueError, TypeError) as error:
        raise DataError(f"{path} is damaged: {reason(error)}.") from error


def _shapes(architecture: Architecture) -> dict[str, tuple[int, ...]]:
    """Return the shape of each weight by its name in BERT; linear maps are [out, in]."""
    e, h = architecture.width, architecture.feed_forward
    layer = {
        "attention.self.query": (e, e),
        "attention.self.key": (e, e),
        "attention.self.value": (e, e),
        "attention.output.dense": (e, e),
        "attention.output.LayerNorm": (e,),
        "intermediate.dense": (h, e),
        "output.dense": (e, h),
        "output.LayerNorm": (e,),
    }
    parts: dict[str, tuple[int, ...]] = {"embeddings.LayerNorm": (e,)}
    for number in range(architecture.layers):
        parts |= {f"encoder.layer.{number}.{name}": shape for name, shape in layer.items()}
    tables = {"word": architecture.words, "position": architecture.positions, "token_type": 2}
    return (
        {f"embeddings.{name}_embeddings.weight": (rows, e) for name, rows in tables.items()}
        | {f"{name}.weight": shape for name, shape in parts.items()}
        | {f"{name}.bias": shape[:1] for name, shape in parts.items()}
    )


def _pooling(path: Path) -> Pooling:
    """Read flags (``pooling_mode_mean_tokens``), or names as sentence-transformers 6 writes."""
    given = pieces.read_settings(path, dict)
    names = (re.fullmatch("pooling_mode_(.+?)(?:_tokens?)?", name) for name in given)
    flags = {name[1]: given[name[0]] for name in names if name}
    modes = given.get("pooling_mode", [mode for mode in flags if flags[mode]] if flags else "mean")
    modes = modes if isinstance(modes, list) else [modes]
    if len(modes) != 1 or str(modes[0]) not in POOLINGS:
        shown = " + ".join(map(str, modes)) or "none"
        raise DataError(f"{path}: the pooling {shown[:80]} is not supported; {SUPPORTED}.")
    return POOLINGS[modes[0]]


def _normalises(path: Path) -> bool:
    modules = pieces.read_settings(path, list)
    kinds = [str(module.get("type") if isinstance(module, dict) else module) for module in modules]
    kinds = [kind.rsplit(".", 1)[-1] for kind in kinds]
    for kind in kinds:
        if kind not in ("Transformer", "Pooling", "Normalize"):
            raise DataError(f"{path}: the module {kind[:40]} is not supported; {SUPPORTED}.")
    return "Normalize" in kinds


def kept_path(folder: Path | None, digest: str) -> Path:
    """Return where a checkpoint is kept; a DataError for a data set in memory.

    Args:
        folder: of the data set's content.
    """
    if folder is None:
        raise DataError("A data set that is in no folder cannot hold a checkpoint.")
    return folder / f"checkpoint-{digest}"


def require_checkpoint(config: RunConfig, dataset: Dataset) -> None:
    """Refuse a checkpoint that is not kept, damaged, or does not go with the data set.

    Raises:
        DataError: its files or weights are damaged, or none of BERT's kind.
        UsageError: otherwise.
    """
    if not is_digest(config.checkpoint):
        raise UsageError(
            "--encoder bert needs --set checkpoint=FOLDER, with a pretrained model's"
            " config.json, model.safetensors and tokenizer."
        )
    folder = kept_path(dataset.folder, config.checkpoint)
    if not folder.exists():
        raise UsageError(
            f"Data set {dataset.name!r} has no checkpoint {config.checkpoint}. {AGAIN}"
        )
    try:
        architecture = read_verified(folder)
    except DataError as error:
        raise DataError(f"{error} {AGAIN}") from error
    longest = int(dataset.lengths.max(initial=0))
    if longest > architecture.positions:
        raise UsageError(
            f"{dataset.name} has texts of {longest} pieces, and the checkpoint knows"
            f" {architecture.positions} positions. Prepare it again with --max-length"
            f" {architecture.positions}."
        )
    if dataset.n_words + 1 != architecture.words:
        raise UsageError(
            f"The checkpoint's tokenizer has {dataset.n_words + 1:,} pieces, and its model"
            f" {architecture.words:,}. They do not belong together."
        )


def keep_checkpoint(folder: Path, dataset: Dataset, say: Callable[[str], None]) -> str:
    """Keep the files of a checkpoint beside a data set, and return the digest that names them."""
    require_files(folder, "checkpoint")
    tokenizer = dataset.manifest.get("tokenizer")
    if tokenizer is None or tokenizer["sha256"] != pieces.tokenizer_digest(folder):
        made = "words" if tokenizer is None else f"the tokenizer of {tokenizer['name']}"
        raise UsageError(
            f"{dataset.name} was prepared with {made}, and --encoder bert needs the pieces of its"
            f" checkpoint. Prepare it again with --tokenizer {folder}."
        )
    try:
        read_verified(folder)
    except DataError as error:
        raise DataError(
            f"{error} Get its files again, or use another checkpoint, such as MiniLM's."
        ) from error
    digest = checkpoint_digest(folder)
    home = kept_path(dataset.folder, digest)
    # The configuration last: without it, copies that were cut off are refused.
    for name in (pieces.tokenizer_file(folder).name, *reversed(present_files(folder))):
        file, kept = folder / name, home / name
        with tables.storage_errors(kept):
            if not (kept.exists() and filecmp.cmp(file, kept, shallow=False)):
                kept.parent.mkdir(parents=True, exist_ok=True)
                with tables.atomic_path(kept) as new:
                    shutil.copyfile(file, new)
    say(f"Checkpoint {digest}: {folder.name}.")
    return digest
