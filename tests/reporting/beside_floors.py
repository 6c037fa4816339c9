"""Answers beside two floors, and what is said of them."""

from dataclasses import replace

from support.records import floor_row, write_run

from ncfbench.reporting import answers
from ncfbench.reporting.floors import floors_of
from ncfbench.reporting.frames import group
from ncfbench.reporting.views import sentences
from ncfbench.runs.folder import read_all

PROFILE, RIDGE = floor_row("profile", 0.512, 3.5), floor_row("ridge", 0.567, 19.0)
PROFILE_HAS = "profile 0.512 (3.5 s)"
BOTH_HAVE = f"ridge 0.567 (19 s), {PROFILE_HAS}"
ERRORS = (0.003, 0.004)
OF_BOTH = "± 0.007"
"""The errors of an arm and of a floor, 0.005 each, in quadrature."""


def beside(answer, rows, best="strat-ns"):
    """The answer with floors, and the arm of this sampler recommended."""
    arms = [
        replace(arm, status="recommended" if arm.config.sampler == best else "lower")
        for arm in answer.arms
    ]
    return replace(answer, arms=arms, floors=floors_of(rows))


def said_of(answer, rows, best="strat-ns"):
    """The verdict, and the sentence on floors."""
    found = beside(answer, rows, best)
    return sentences.worth_sentence(found), sentences.floors_sentence(found)


def answer_of(folder, *recalls, **more):
    """strat-ns has the first recalls, after 2, 4, ... s; others are a tenth as fast."""
    for sampler, own, ms in zip(("strat-ns", "ns", "iid"), recalls, (20, 200, 200), strict=False):
        losses = [9, *(3.0 if place else 3.1 for place in range(max(len(own) - 1, 2)))]
        write_run(folder, sampler, losses, ms, own, **{"errors": ERRORS} | more)
    (answer,) = answers.find_answers(*group(read_all(folder)[0]))
    return answer
