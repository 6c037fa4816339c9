"""Collective operations of a step, inside ``jax.shard_map``, with their gradients; and, by formula,
the bytes that devices send each other.

Bytes are those of one device with ring algorithms. To gather arrays of S bytes in all, or to
reduce-scatter them, each of N devices sends S (N - 1)/N bytes; an all-reduce sends twice as many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp

AXIS = "data"
"""Axis of the mesh, along which a batch is cut."""
NUMBER_BYTES = 4
"""Bytes per element sent: all are float32 or int32."""


@jax.custom_vjp
def gather(shard: jax.Array) -> jax.Array:
    """Return the shards of all N devices one behind the other: float32[n, ...] to [N n, ...]."""
    whole: jax.Array = jax.lax.all_gather(shard, AXIS, tiled=True)
    return whole


@jax.custom_vjp
def reduce_scatter(whole: jax.Array) -> jax.Array:
    """Return the device's shard of the sum over all devices: float32[N n, ...] to [n, ...]."""
    if not uses_gloo():
        shard: jax.Array = jax.lax.psum_scatter(whole, AXIS, tiled=True)
        return shard
    devices = jax.lax.axis_size(AXIS)
    shards = whole.reshape(devices, len(whole) // devices, *whole.shape[1:])
    return jnp.sum(jax.lax.all_to_all(shards, AXIS, split_axis=0, concat_axis=0), axis=0)


# Each is the other's transpose.
gather.defvjp(lambda x: (gather(x), None), lambda _, g: (reduce_scatter(g),))
reduce_scatter.defvjp(lambda x: (reduce_scatter(x), None), lambda _, g: (gather(g),))


def uses_gloo() -> bool:
    """Return whether devices communicate through Gloo: CPUs of several processes do.

    Gloo's reduce-scatter is reported to give wrong sums of large arrays now and then
    (github.com/jax-ml/jax/issues/40830), and to give up after 30 seconds whatever timeout is set
    (issues/40831). Exchanging shards and adding them sends as many bytes.
    """
    return jax.distributed.is_initialized() and jax.default_backend() == "cpu"


def fetch_rows(shard: jax.Array, ids: jax.Array) -> jax.Array:
    """Return rows of a sharded table: float32[n, D], those of the device's own ids.

    Args:
        shard: float32[R, D]: the device's rows; device p has those from p R on.
        ids: int32[n], as many on each device.
    """
    first = jax.lax.axis_index(AXIS) * len(shard)
    index = jax.lax.all_gather(ids, AXIS, tiled=True) - first
    is_here = (index >= 0) & (index < len(shard))
    return reduce_scatter(jnp.where(is_here[:, None], shard[jnp.where(is_here, index, 0)], 0))


@dataclass(frozen=True)
class Sizes:
    """Elements that the devices exchange in a step."""

    devices: int
    vectors: int
    """V x D: vectors of the item slots of all devices."""
    parameters: int
    """Parameters that every device holds."""
    rows: Sequence[tuple[int, int]] = ()
    """Slots and width of each sharded table whose rows are fetched."""
    tables: int = 0
    """Elements of sharded tables that are gathered for the step, padding included."""
    texts: int = 0
    """V x (L + 1): words and length of each item slot."""

    def sent(self, share: str) -> dict[str, float]:
        """Return the bytes that each device sends in an iteration, by purpose.

        Args:
            share: ``global``, ``local``; or ``texts`` for the alternative of gathering the texts of
                all items, and encoding them on every device.
        """
        part = NUMBER_BYTES * (self.devices - 1) / self.devices
        rows = sum(slots * (1 + 2 * width) for slots, width in self.rows)
        return {
            "vectors": 2 * part * self.vectors if share == "global" else 0.0,
            "texts": part * self.texts if share == "texts" else 0.0,
            "gradients": 2 * part * (self.parameters + 1),  # and the loss
            "rows": part * rows,
            "tables": 2 * part * self.tables,
        }
