"""The machine's pace: what its disturbances do to all blocks alike, and times without it.

On a shared machine neighbours can double the time of everything for some seconds. Such a stretch
shows in blocks of different programs, measured one after another in random order: all take longer
than they usually do. That common factor is taken out of each block before medians are formed.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

NEIGHBOURS = 5
"""Blocks on either side whose median gives a block its pace: one to two seconds. On a machine
whose times varied by 29 % (standard deviation) predictions missed by up to 19 % without it, and by
4 to 7 % with 3 to 20 neighbours (CiteULike, CNN, 5 rounds, 2026-11-22).
"""
REPEATS = 3
"""The usual time of a block is the median of its times without the pace, so both are found in
turn.
"""


def pace(
    names: Sequence[Hashable], seconds: Sequence[float], votes: Sequence[bool]
) -> NDArray[np.float64]:
    """Return how many times its usual time each block would take by its neighbours.

    Args:
        names, seconds: of blocks in the order in which they were measured; blocks of one name do
            the same.
        votes: whether a block says something about the pace: it comes often, and uses all cores.
    """
    logs, indices = np.log(np.asarray(seconds, float)), np.arange(len(seconds))
    voters = np.flatnonzero(votes)
    first = np.searchsorted(voters, indices)
    own: dict[Hashable, list[int]] = {}
    for position, name in enumerate(names):
        own.setdefault(name, []).append(position)
    found = np.zeros(len(logs))
    for _ in range(REPEATS):
        usual = np.empty(len(logs))
        for positions in own.values():
            usual[positions] = np.median((logs - found)[positions])
        slower = logs - usual
        for index in indices:
            low, high = max(first[index] - NEIGHBOURS, 0), first[index] + NEIGHBOURS + 1
            near = voters[low:high]
            near = near[near != index]
            found[index] = np.median(slower[near]) if len(near) else 0.0
    return np.exp(found)
