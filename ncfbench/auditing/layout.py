"""The batch layout, declared: axes, dtype and range of each array of a batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ncfbench.data.graph import BipartiteGraph
from ncfbench.sampling.batch import Array, Batch, Listed, Shared


class ArraySpec(NamedTuple):
    """Declaration of an array: int32 ids, or float32 weights."""

    axes: str
    """One letter an axis, of :mod:`ncfbench.sampling.batch`."""
    ids: str = ""
    """The size that its ids stay below, of :func:`id_fault`; none for weights."""


NODES = {
    "users": ArraySpec("U", "users"),
    "items": ArraySpec("V", "items"),
    "pos_user": ArraySpec("b", "user slots"),
    "pos_item": ArraySpec("b", "real item slots"),
    "n_items": ArraySpec("", "numbers of items"),
}
NEGATIVES: dict[type, dict[str, ArraySpec]] = {
    Listed: {
        "user": ArraySpec("bk", "user slots"),
        "item": ArraySpec("bk", "real item slots"),
        "weight": ArraySpec("bk"),
    },
    Shared: {"weight": ArraySpec("bV")},
}


def _arrays(batch: Batch) -> Iterator[tuple[str, Array, ArraySpec]]:
    for name, spec in NODES.items():
        yield name, np.asarray(getattr(batch, name)), spec
    for name, spec in NEGATIVES[type(batch.negatives)].items():
        yield f"negatives.{name}", np.asarray(getattr(batch.negatives, name)), spec


def shape_fault(batches: Sequence[Batch], b: int) -> str:
    """Describe the first array whose shape or dtype is not as declared, or differs between batches;
    empty for none.
    """
    first: tuple[type, dict[str, int]] | None = None
    slots = len(batches[0].items)
    for number, batch in enumerate(batches):
        axes = {"b": b, "U": len(batch.users), "V": len(batch.items)}
        for name, array, spec in _arrays(batch):
            dtype = "int32" if spec.ids else "float32"
            if array.ndim == len(spec.axes):
                axes = dict(zip(spec.axes, array.shape, strict=True)) | axes
            right = [axes.get(axis, axis) for axis in spec.axes]
            if array.dtype != dtype or list(array.shape) != right:
                return (
                    f"batch {number}: {name} is {array.dtype}{list(array.shape)} instead of"
                    f" {dtype}[{', '.join(map(str, right))}]"
                )
        # Item slots may grow when a batch needs more than were planned.
        fixed = {axis: size for axis, size in axes.items() if axis != "V"}
        first = first or (type(batch.negatives), fixed)
        if first != (type(batch.negatives), fixed):
            return f"batch {number} has other shapes than the first"
        if axes["V"] != slots and not slots < axes["V"] == int(batch.n_items):
            return f"batch {number} has {axes['V']} item slots, the one before {slots}"
        slots = axes["V"]
    return ""


def id_fault(batches: Sequence[Batch], graph: BipartiteGraph) -> str:
    """Describe the first id that is out of range, or a padding slot that has weight; empty for
    none.
    """
    for number, batch in enumerate(batches):
        sizes = {
            "users": graph.n_users,
            "items": graph.n_items,
            "user slots": len(batch.users),
            "real item slots": int(batch.n_items),
            "numbers of items": len(batch.items) + 1,
        }
        for name, ids, spec in _arrays(batch):
            if spec.ids and ids.size and not 0 <= ids.min() <= ids.max() < sizes[spec.ids]:
                wrong = int(ids.max() if ids.max() >= sizes[spec.ids] else ids.min())
                return f"batch {number}: {name} holds {wrong}, not in 0..{sizes[spec.ids] - 1}"
            if not spec.ids and spec.axes.endswith("V") and ids[..., int(batch.n_items) :].any():
                return f"batch {number}: a padding slot has weight"
    return ""


def are_same(one: Batch, other: Batch) -> bool:
    """Return whether two batches are equal but for padding."""
    if type(one.negatives) is not type(other.negatives):
        return False
    pairs = zip(_content(one), _content(other), strict=True)
    return all(
        np.array_equal(left, right, equal_nan=left.dtype.kind == "f") for left, right in pairs
    )


def _content(batch: Batch) -> list[Array]:
    """Return a batch's arrays without padding."""
    return [
        array[..., : int(batch.n_items)] if spec.axes.endswith("V") else array
        for _, array, spec in _arrays(batch)
    ]


def with_equal_shapes(batches: Sequence[Batch]) -> list[Batch]:
    """Return batches with padding, so that all have as many item slots."""
    slots = max(len(batch.items) for batch in batches)

    def padded(batch: Batch) -> Batch:
        more, negatives = slots - len(batch.items), batch.negatives
        parts = {
            name: np.pad(
                getattr(negatives, name), [(0, more * (axis == "V")) for axis in spec.axes]
            )
            for name, spec in NEGATIVES[type(negatives)].items()
        }
        items = np.pad(batch.items, (0, more))
        return batch._replace(items=items, negatives=negatives._replace(**parts))

    return [padded(batch) for batch in batches]
