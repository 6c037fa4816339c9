"""Arms from commands and parameters."""

from itertools import product

import pytest

from ncfbench.errors import UsageError
from ncfbench.racing.commands import make_commands


def test_every_combination_is_an_arm():
    parameters = {"lr": ["1e-4", "1e-3"], "batch": ["8", "16", "32"]}
    arms = make_commands(["train --lr {lr} -b {batch} {other}"], parameters=parameters)
    wanted = {f"train --lr {lr} -b {b} {{other}}" for lr, b in product(*parameters.values())}
    assert {arm.filled() for arm in arms} == wanted
    assert arms[1].name == "lr=1e-4 batch=16"
    assert make_commands(["a {seed}", "b"])[0].filled(3) == "a 3"
    assert [arm.learning_rate for arm in arms[::3]] == [1e-4, 1e-3]


def test_several_commands_race_beside_each_other():
    arms = make_commands(["a {x}", "b"], names=["first"], parameters={"x": ["1", "2"]})
    assert [arm.name for arm in arms] == ["first x=1", "first x=2", "b x=1", "b x=2"]


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
def test_impossible_arms_are_refused(words, more, said):
    with pytest.raises(UsageError, match=said):
        make_commands(words, **more)  # type: ignore[arg-type]
