"""The board: ways to train beside each other on several data sets.

A *contestant* is a combination of settings, such as ``softmax strat-ns``; the learning rate, and
settings that all arms share, are no part of it. Of arms that differ in these alone the best one
counts. Floors are contestants too. On each data set the target is a share of the best quality that
a contestant reached there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ncfbench.reporting.answers import Answer
from ncfbench.reporting.arms import Arm
from ncfbench.reporting.floors import FloorResult
from ncfbench.reporting.labels import choices_label, choices_of, data_headings

TARGET = 0.97
"""The target, as a share of the best quality of all."""
Times = Sequence[float | None]
"""Seconds of features and training to the target on each data set: infinity where a contestant
never came there, None where a floor was not fitted.
"""


@dataclass(frozen=True)
class Board:
    """Contestants on several data sets.

    Attributes:
        names: of the data sets.
        standings: by contestant, the best first: by the number of targets reached, then by the mean
            time there.
        left_out: contestants without an arm on some data set.
        metric: what ranking is judged by.
        split: held-out links that decide.
    """

    names: Sequence[str]
    standings: Mapping[str, Times]
    left_out: Sequence[str]
    metric: str
    split: str


def find_board(answers: Sequence[Answer]) -> Board | None:
    """Return the board of the answers about several data sets; None of fewer than two, where they
    are not judged alike, or where fewer than two contestants have arms on all of them. Data sets on
    which no arm is known to be better than chance are left out.
    """
    answers = [answer for answer in answers if any(arm.learned_at for arm in answer.arms)]
    alike = {(answer.metric, answer.split) for answer in answers}
    if len(answers) < 2 or len(alike) > 1:
        return None
    settings = [[_settings(arm) for arm in answer.arms] for answer in answers]
    names = {name for of_arms in settings for name in _differing(of_arms)}
    arms: list[dict[str, Arm]] = []
    for answer in answers:
        arms.append({})
        for arm in sorted(answer.arms, key=_place):
            own = {name: value for name, value in _settings(arm).items() if name in names}
            arms[-1].setdefault(choices_label(own), arm)
    shared = [name for name in arms[0] if all(name in own for own in arms)]
    found: list[dict[str, float]] = []
    for of_data, answer in zip(arms, answers, strict=True):
        ways: dict[str, Arm | FloorResult] = {name: of_data[name] for name in shared}
        if len(shared) < 2 or not any(_quality(way, answer) for way in ways.values()):
            return None
        ways |= {floor.row["floor"]: floor for floor in answer.floors}
        level = TARGET * max(_quality(way, answer) for way in ways.values())
        found.append({name: _seconds_to(way, answer, level) for name, way in ways.items()})
    standings = {name: [own.get(name) for own in found] for own in found for name in own}
    data = [(answer.config.dataset, answer.data_fingerprint) for answer in answers]
    return Board(
        list(data_headings(data).values()),
        dict(sorted(standings.items(), key=lambda each: _order(each[1]))),
        sorted(set().union(*arms).difference(shared)),
        *alike.pop(),
    )


def _place(arm: Arm) -> tuple[int, float, float, list[str]]:
    """Return the key of an arm in the order of an answer; names of runs decide between equals."""
    return *arm.place, [run.name for run in arm.runs.values()][:1]


def _order(times: Times) -> tuple[int, float]:
    logs = [math.log(max(at, 1e-3)) for at in times if at is not None and at < math.inf]
    return -len(logs), math.fsum(logs) / max(len(logs), 1)


def _differing(settings: Sequence[Mapping[str, object]]) -> list[str]:
    """Return the names of the settings that differ."""
    known = dict.fromkeys(name for own in settings for name in own)
    return [name for name in known if len({str(own.get(name)) for own in settings}) > 1]


def _settings(arm: Arm) -> dict[str, object]:
    choices = choices_of(arm.config).items()
    return {name: value for name, value in choices if name != "learning_rate"}


def _seconds_to(one: Arm | FloorResult, answer: Answer, level: float) -> float:
    if isinstance(one, FloorResult):
        return one.seconds if _quality(one, answer) >= level else math.inf
    at = one.curve.time_to(-level) if _quality(one, answer) else None
    return math.inf if at is None else one.measured.feature_seconds + at


def _quality(one: Arm | FloorResult, answer: Answer) -> float:
    """Return what ranking is judged by; 0 of an arm without times, or with a diverged seed."""
    if isinstance(one, FloorResult):
        column = f"{answer.split}_{answer.metric.replace('@', '_at_')}"
        return one.row.get(column) or 0.0
    return -one.level if one.has_run and one.status != "diverged" else 0.0
