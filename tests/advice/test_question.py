"""Questions of a race: what is refused, and the name of its folder."""

from __future__ import annotations

from typing import Any

import pytest

from ncfbench.advice.question import Question
from ncfbench.errors import UsageError

TINY = {"dataset": "tiny", "encoder": "cnn"}


@pytest.mark.parametrize(
    ("fixed", "more", "message"),
    [
        ({}, {"metric": "speed"}, r"--metric 'speed'.* Valid: recall@10"),
        ({}, {"samplers": ("nss",)}, "did you mean 'ns'"),
        ({"sampler": "ns"}, {"samplers": ("ns",)}, "sampler is what advise tries"),
        ({"seed": 3}, {}, "seed is what advise tries"),
    ],
)
def test_a_question_without_an_answer_is_refused(
    fixed: dict[str, Any], more: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        Question(TINY | fixed, **more)


def test_a_race_keeps_its_name_between_versions() -> None:
    """By the same command a race goes on that an earlier version began."""
    assert Question({"dataset": "tiny"}).name == "tiny-recall50-0838ed"
    more: dict[str, Any] = {"metric": "ndcg@20", "samplers": ("ns",), "others": {"gamma": (5.0,)}}
    assert Question(TINY | {"dimension": 8}, **more).name == "tiny-ndcg20-04b189"
