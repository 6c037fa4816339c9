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
        ({}, {"seeds": 0}, "--seeds 0"),
        ({"sampler": "ns"}, {"samplers": ("ns",)}, "sampler is what advise tries"),
        ({"seed": 3}, {}, "seed is what advise tries"),
    ],
)
def test_a_question_without_an_answer_is_refused(
    fixed: dict[str, Any], more: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        Question(TINY | fixed, **more)
