"""Bytes that devices send in a compiled program, counted in XLA's text of it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from ncfbench.distributed.layout import NUMBER_BYTES

OPERATIONS = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all", "collective-permute")
_OPERATION = re.compile(rf"= (\(?[^=]*?\)?) ({'|'.join(OPERATIONS)})\(")
_ARRAY = re.compile(r"\b[a-z]+\d+\[([\d,]*)\]")


def count_bytes(program: str, devices: int) -> Mapping[str, float]:
    """Return the bytes that each device sends in a compiled program, by operation.

    Args:
        program: XLA's text of the program.
    """
    found = dict.fromkeys(OPERATIONS, 0.0)
    for result, operation in _OPERATION.findall(re.sub(r"/\*.*?\*/", "", program)):
        sizes = [
            NUMBER_BYTES * math.prod(int(n) for n in shape.split(",") if n)
            for shape in _ARRAY.findall(result)
        ]
        size = sum(sizes)
        factor = {
            "all-gather": (devices - 1) / devices,
            "reduce-scatter": devices - 1,
            "all-reduce": 2 * (devices - 1) / devices,
            "all-to-all": (devices - 1) / devices,
        }
        found[operation] += size * factor.get(operation, 1.0)
    return found
