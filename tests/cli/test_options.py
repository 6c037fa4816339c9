"""Values of options that several commands read alike."""

from __future__ import annotations

import pytest
from invoked import check, invoke

from ncfbench.cli.options import parse_share
from ncfbench.errors import UsageError


@pytest.mark.parametrize(
    ("text", "share"),
    [("10%", 0.1), ("10 %", 0.1), ("0.05", 0.05), ("0", 0), ("12.5%", 0.125), ("150%", 1.5)],
)
def test_a_share_is_a_percentage_or_below_1(text: str, share: float) -> None:
    assert parse_share(text, "--margin") == pytest.approx(share)


@pytest.mark.parametrize("text", ["much", "%", "-1%", "-0.1", "nan", "inf", "1e999", ""])
def test_no_share_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="give a share such as 10% or 0.1"):
        parse_share(text, "--margin")


@pytest.mark.parametrize("value", ["1", "10"])
@pytest.mark.parametrize(
    "command",
    [
        "audit --margin",
        "prepare synthetic --test-fraction",
        "run --item-dropout",
    ],
)
def test_a_bare_share_of_1_or_more_is_refused(command: str, value: str) -> None:
    check(invoke(*command.split(), value), 2, value)
