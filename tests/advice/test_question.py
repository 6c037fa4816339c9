"""Questions of a race: what is refused, and the name of its folder."""

import pytest

from ncfbench.advice.question import Question
from ncfbench.errors import UsageError

TINY = {"dataset": "tiny", "encoder": "cnn"}


@pytest.mark.parametrize(
    ("fixed", "more", "message"),
    [
        ({}, {"metric": "speed"}, r"--metric 'speed'.* Valid: recall@10"),
        ({}, {"tried": {"sampler": ("nss",)}}, "did you mean 'ns'"),
        ({"sampler": "ns"}, {"tried": {"sampler": ("ns",)}}, "sampler is what advise tries"),
        ({}, {"tried": {"seed": (1,)}}, "no setting to try"),
    ],
)
def test_a_question_without_an_answer_is_refused(fixed, more, message):
    with pytest.raises(UsageError, match=message):
        Question(TINY | fixed, **more)


def test_the_same_question_has_the_same_name():
    tried = {"sampler": ("ns",), "gamma": (5.0,)}
    asked = Question(TINY | {"dimension": 8}, "ndcg@20", tried)
    assert asked.name.startswith("tiny-ndcg20-")
    as_text = {"gamma": ("5",), "sampler": ("ns",)}
    assert Question({"dimension": 8, **TINY}, "ndcg@20", as_text).name == asked.name
    assert Question(TINY, "ndcg@20", tried).name != asked.name
