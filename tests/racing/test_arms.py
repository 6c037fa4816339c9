"""Arms from commands and parameters."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncfbench.errors import UsageError
from ncfbench.racing.arms import make_arms, parse_list, parse_range


def test_every_combination_is_an_arm() -> None:
    parameters = {"lr": ["1e-4", "1e-3"], "batch": ["8", "16", "32"]}
    arms = make_arms(["train --lr {lr} -b {batch} {other}"], parameters=parameters)
    wanted = {f"train --lr {lr} -b {b} {{other}}" for lr, b in product(*parameters.values())}
    assert {arm.filled() for arm in arms} == wanted
    assert arms[1].name == "lr=1e-4 batch=16"
    assert make_arms(["a {seed}", "b"])[0].filled(3) == "a 3"
    assert [arm.learning_rate for arm in arms[::3]] == [1e-4, 1e-3]


def test_several_commands_race_beside_each_other() -> None:
    arms = make_arms(["a {x}", "b"], names=["first"], parameters={"x": ["1", "2"]})
    assert [arm.name for arm in arms] == ["first x=1", "first x=2", "b x=1", "b x=2"]


@given(st.integers(-50, 50), st.integers(0, 40), st.integers(1, 20))
def test_a_range_is_exact(low: int, steps: int, apart: int) -> None:
    """In tenths, which binary fractions do not hold."""
    values = parse_range("x", str(low / 10), str((low + steps * apart) / 10), str(apart / 10))
    assert [round(float(value) * 10, 9) for value in values] == [
        low + index * apart for index in range(steps + 1)
    ]


def test_a_list_holds_each_value_once() -> None:
    assert parse_list("x", "a, b,a,,") == ["a", "b"]


@pytest.mark.parametrize(
    ("words", "more", "said"),
    [
        (["a"], {}, "one arm"),
        ([], {}, "one arm"),
        (["a", "a"], {}, "Two arms are called 'a'"),
        (["a"], {"parameters": {"lr": ["1", "2"]}}, "stands in no command"),
        (["a {seed}"], {"parameters": {"seed": ["1", "2"]}}, "--seeds"),
        (["a {b c}"], {"parameters": {"b c": ["1", "2"]}}, "no name of a parameter"),
        (["a", "b"], {"names": ["x", "y", "z"]}, "3 names of 2 commands"),
    ],
)
def test_impossible_arms_are_refused(words: list[str], more: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        make_arms(words, **more)  # type: ignore[arg-type]


def test_impossible_lists_and_ranges_are_refused() -> None:
    for words in (("1", "0"), ("a", "2"), ("0", "1", "0"), ("0", "1", "1e-9"), ("nan", "1")):
        with pytest.raises(UsageError, match="-P x"):
            parse_range("x", *words)
    with pytest.raises(UsageError, match="give values"):
        parse_list("x", ",")
