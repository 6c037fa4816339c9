"""What sources of real texts let a user choose alike: how texts are cut, and which items are held
out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from ncfbench.data.splits import split_items
from ncfbench.errors import UsageError
from ncfbench.registry import nearest


@dataclass(frozen=True, kw_only=True)
class ItemOptions:
    """Choices that decide the prepared content; a source adds its own.

    Raises:
        UsageError: a number below 1, or a share outside 0..1.
    """

    max_length: int = 300
    min_count: int = 1
    vocabulary_size: int | None = None
    test_fraction: float = 0.2
    validation_fraction: float = 0.1
    split_seed: int = 0

    def __post_init__(self) -> None:
        for name in ("max_length", "min_count", "vocabulary_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name} = {value}: it must be at least 1.")
        split_items(10**6, self.test_fraction, self.validation_fraction, 0)

    def stored(self) -> dict[str, Any]:
        """As a manifest has them: a source's own choices first, lists for tuples."""
        shared = {field.name for field in fields(ItemOptions)}
        choices = sorted(asdict(self).items(), key=lambda choice: choice[0] in shared)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in choices}


def require_names(option: str, named: Sequence[str], valid: Sequence[str]) -> None:
    """Raise a UsageError unless ``named`` are some of ``valid``, each once."""
    for name in named:
        if name not in valid:
            raise UsageError(
                f"Unknown {option} {name!r}{nearest(name, valid)} Valid: {', '.join(valid)}."
            )
    if not named or len(set(named)) < len(named):
        raise UsageError(
            f"{option} = {','.join(named)!r}: name each of {', '.join(valid)} at most once."
        )
