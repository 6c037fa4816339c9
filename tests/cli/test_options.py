"""Values of options that several commands read alike."""

from __future__ import annotations

import pytest
from invoked import check, invoke


@pytest.mark.parametrize("value", ["1", "10"])
@pytest.mark.parametrize(
    "command",
    [
        "prepare synthetic --test-fraction",
        "run --item-dropout",
    ],
)
def test_a_bare_share_of_1_or_more_is_refused(command: str, value: str) -> None:
    check(invoke(*command.split(), value), 2, value)
