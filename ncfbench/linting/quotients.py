"""Difference quotients of a loss by the scores of a scene."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ncfbench.linting.frameworks import Arrays
from ncfbench.linting.scenes import Coordinates, Float, Scene
from ncfbench.linting.signature import VECTORS, Loss


def quotients(
    loss: Loss,
    step: float,
    scene: Scene,
    coordinates: Coordinates,
    arrays: Arrays,
    values: Callable[[list[Arrays]], Sequence[float]],
    *,
    users: bool = True,
) -> tuple[Float, Float]:
    """Return the pushes by difference quotients, on the items' side and on the users'.

    One vector of one row moves at a time, in the direction that changes one score alone.

    Args:
        step: of a quotient, in the length of vectors.
        values: returns the losses of some calls' arguments.
    """
    b, n_items = scene.score.shape
    width = coordinates.users.shape[1]
    names = {role: name for name, role in loss.roles.items() if role in VECTORS}
    cases: list[Arrays] = []

    def add(role: str, row: int, direction: Float) -> None:
        for sign in (1, -1):
            changed = np.array(arrays[names[role]])
            changed.reshape(-1, width)[row] += sign * step * direction
            cases.append({**arrays, names[role]: changed})

    for i in range(b):
        toward_user = np.zeros(width)
        toward_user[i] = 1
        toward_user[b : b + n_items] = -scene.score[i] / coordinates.rest
        for column in range(len(scene.slot)):
            is_item = column < b or "negatives" not in names
            role, row = ("items", column) if is_item else ("negatives", column - b)
            add(role, row, toward_user)
        for item in scene.slot if users else ():
            toward_item = np.zeros(width)
            toward_item[b + item] = 1 / coordinates.rest[item]
            add("users", i, toward_item)
    found = np.array(values(cases)).reshape(b, -1, len(scene.slot), 2)
    slopes = (found[..., 0] - found[..., 1]) / (2 * step)
    return slopes[:, 0], slopes[:, 1] if users else np.zeros_like(slopes[:, 0])
