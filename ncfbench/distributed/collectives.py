"""Collective operations of a step, inside ``jax.shard_map``, with their gradients."""

from __future__ import annotations

import jax
import jax.numpy as jnp

AXIS = "data"
"""Axis of the mesh, along which a batch is cut."""


@jax.custom_vjp
def gather(shard: jax.Array) -> jax.Array:
    """Return the shards of all N devices one after the other: float32[n, ...] to [N n, ...]."""
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
    """Return whether devices communicate through Gloo, as CPUs of several processes do.

    Its reduce-scatter is reported to give wrong sums (github.com/jax-ml/jax/issues/40830) and to
    ignore timeouts (issues/40831). Exchanging shards and adding them sends as many bytes.
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
