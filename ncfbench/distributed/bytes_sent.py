"""The bytes that devices send each other in an iteration: by closed formulas, and as counted in a
compiled step.

A device's own, by the ring algorithms: to gather arrays of S bytes in all, or to sum and scatter
them, each of N devices sends S (N - 1)/N; to sum them everywhere, twice as much. Pure text and
arithmetic.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

NUMBER_BYTES = 4
"""Of float32 and int32, of which everything is made that is sent."""
OPERATIONS = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all", "collective-permute")
_OPERATION = re.compile(rf"= (\(?[^=]*?\)?) ({'|'.join(OPERATIONS)})(-start)?\(")
_ARRAY = re.compile(r"\b[a-z]+\d+\[([\d,]*)\]")


@dataclass(frozen=True)
class Sizes:
    """What of a step is sent, in numbers."""

    devices: int
    vectors: int
    """V x D: of the item slots of all devices."""
    parameters: int
    """Of what every device has."""
    rows: Sequence[tuple[int, int]] = ()
    """Slots and width of tables that are spread and of which rows are fetched."""
    tables: int = 0
    """Of tables that are spread and put together for the step, filled up."""
    texts: int = 0
    """V x (L + 1): words and length of each item slot."""

    def sent(self, share: str) -> dict[str, float]:
        """Bytes that each device sends in an iteration, by what they are.

        Args:
            share: ``global``, ``local``, or ``texts``: what it would be if the texts of all items
                were gathered, and their vectors made by every device.
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


def counted(program: str, devices: int) -> Mapping[str, float]:
    """Bytes that each device sends in a compiled program, by operation; ``program`` is XLA's text
    of it.
    """
    found = dict.fromkeys(OPERATIONS, 0.0)
    for result, operation, start in _OPERATION.findall(re.sub(r"/\*.*?\*/", "", program)):
        sizes = [
            NUMBER_BYTES * math.prod(int(n) for n in shape.split(",") if n)
            for shape in _ARRAY.findall(result)
        ]
        # One that is begun and awaited apart names its operand too.
        size = max(sizes) if start and operation == "all-gather" else sum(sizes)
        factor = {
            "all-gather": (devices - 1) / devices,
            "reduce-scatter": devices - 1,
            "all-reduce": 2 * (devices - 1) / devices,
            "all-to-all": (devices - 1) / devices,
        }
        found[operation] += size * factor.get(operation, 1.0)
    return found
