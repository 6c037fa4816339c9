"""What the devices of a step hand each other, inside ``jax.shard_map``: all parts, and sums of
which each gets its part.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

AXIS = "data"
"""Of the mesh, along which a batch is cut."""


@jax.custom_vjp
def gathered(part: jax.Array) -> jax.Array:
    """Float32[N n, ...]: the parts of all N devices one behind the other, from each one's own
    float32[n, ...].
    """
    whole: jax.Array = jax.lax.all_gather(part, AXIS, tiled=True)
    return whole


@jax.custom_vjp
def summed_part(whole: jax.Array) -> jax.Array:
    """Float32[n, ...]: a device's own part of the sum over all N devices of their float32[N n,
    ...].
    """
    if not through_gloo():
        part: jax.Array = jax.lax.psum_scatter(whole, AXIS, tiled=True)
        return part
    devices = jax.lax.axis_size(AXIS)
    parts = whole.reshape(devices, len(whole) // devices, *whole.shape[1:])
    return jnp.sum(jax.lax.all_to_all(parts, AXIS, split_axis=0, concat_axis=0), axis=0)


# Each is the other's transpose.
gathered.defvjp(lambda part: (gathered(part), None), lambda _, cotangent: (summed_part(cotangent),))
summed_part.defvjp(
    lambda whole: (summed_part(whole), None), lambda _, cotangent: (gathered(cotangent),)
)


def through_gloo() -> bool:
    """Whether devices talk through Gloo: those of CPUs, where processes have joined.

    Its reduce-scatter is reported to give wrong sums of large arrays now and then
    (github.com/jax-ml/jax/issues/40830), and to give up after 30 seconds whatever timeout is set
    (issues/40831). To exchange parts and add them up sends as much.
    """
    return jax.distributed.is_initialized() and jax.default_backend() == "cpu"


def fetched_rows(share: jax.Array, ids: jax.Array) -> jax.Array:
    """float32[n, D]: rows of a table that is spread; each device gets those of its own ids.

    Args:
        share: float32[R, D]: the device's rows; device p has those from p R on.
        ids: int32[n], as many on each device.
    """
    first = jax.lax.axis_index(AXIS) * len(share)
    places = jax.lax.all_gather(ids, AXIS, tiled=True) - first
    is_here = (places >= 0) & (places < len(share))
    return summed_part(jnp.where(is_here[:, None], share[jnp.where(is_here, places, 0)], 0))
