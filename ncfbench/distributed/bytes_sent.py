"""Bytes that devices send each other in a step, by formula.

Bytes are those of one device with ring algorithms. To gather arrays of S bytes in all, or to
reduce-scatter them, each of N devices sends S (N - 1)/N bytes; an all-reduce sends twice as many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

NUMBER_BYTES = 4
"""Bytes per element sent: all are float32 or int32."""


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
