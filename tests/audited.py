"""Settings of the small model on which audits are tested."""

from __future__ import annotations

from typing import Any

SMALL: dict[str, Any] = {
    "memory": 128,
    "dimension": 6,
    "word_dimension": 6,
    "filters": 6,
    "batch_size": 64,
    "user_l2": 0.01,
}
