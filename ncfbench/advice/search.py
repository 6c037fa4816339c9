"""The candidates of a race for recall: a first field, and neighbours of its leaders.

The first candidate has the settings of the preset ``good`` and :data:`START`, as far as the data
and the question allow. The others of the first field differ from it in one choice each: use of
features, encoder, loss, sampler, bare bag, dimension, user tower; an encoder that reads no text
comes with every loss. Later ones differ from a leader in one setting.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ncfbench.advice.candidates import Candidate, State
from ncfbench.advice.space import Space
from ncfbench.catalog import BUILT_IN, all_settings, find_encoder
from ncfbench.catalog.presets import preset
from ncfbench.config import RunConfig
from ncfbench.errors import UsageError
from ncfbench.reporting.labels import SHORT

START: Mapping[str, Any] = {
    "user_tower": "history",
    "learning_rate": 0.003,
    "word_dropout": 0.0,
    "weight_decay": 0.01,
}
"""The value of each of these settings that loses least on any of six data sets: the best trial of a
reference search that has it over the best of all (benchmarks/results/searches).
"""
PROBE_LINKS = 256
"""Links of a probe: rankings decide, and a probe of the usual size takes a fifth of such a race."""
FIRST = (*("features", "encoder", "loss", "sampler", "bare_bag", "dimension", "user_tower"),)
"""Settings in which the first field differs from the first candidate, the most promising first."""
ORDER = ("learning_rate", "dimension", "word_dropout", "batch_size", "stratum_size")
"""Settings that newcomers differ in first: recall depends on them most."""


class Search:
    """Candidates of a space. All have the same name for the same settings.

    Raises:
        UsageError: nothing of the space can work.
    """

    def __init__(self, space: Space) -> None:
        self.space = space
        self.start = self._first()
        self._usual = space.point(self.start)

    def readers(self) -> list[RunConfig]:
        """Return points whose user towers read all that any candidate's reads."""
        towers = self.space.tried.get("user_tower", ())
        histories = self.space.tried.get("history_of", ()) if "history" in towers else ()
        start, found = self.space.point(self.start), [self.start]
        for of in histories:
            with suppress(UsageError):
                found.append(self.space.config(start | {"user_tower": "history", "history_of": of}))
        return found

    def first_field(self) -> list[Candidate]:
        """Return the candidates that begin, the first one before all."""
        near = sorted(filter(self._place, self.space.neighbours(self.start)), key=self._place)
        crossed = [
            each
            for other in near
            if "text" not in find_encoder(other.encoder).content
            for each in self.space.neighbours(other)
            if each.encoder == other.encoder and each.loss != other.loss
        ]
        # Encoders that read no text come with every loss: they are cheap.
        last = max((near.index(each) for each in near if self._place(each)[:1] == (1,)), default=0)
        field = dict.fromkeys([self.start, *near[: last + 1], *crossed, *near[last + 1 :]])
        return [self._candidate(config) for config in field]

    def near(self, state: State, leader: Candidate) -> list[Candidate]:
        """Return who may enter beside a leader: what is left of the first field, and neighbours."""
        known = {each.name for each in (*state.entrants, *state.pool)}
        return [*state.pool, *self.neighbours(leader, known)]

    def neighbours(self, leader: Candidate, known: Container[str]) -> list[Candidate]:
        """Return the neighbours of a candidate whose names are not known yet, the most promising
        first.
        """
        own = self.space.point(leader.config)

        def place(config: RunConfig) -> int:
            point = self.space.point(config)
            differing = [name for name in point if point[name] != own.get(name)]
            places = [ORDER.index(name) for name in differing if name in ORDER]
            return min(places, default=len(ORDER))

        found = map(self._candidate, sorted(self.space.neighbours(leader.config), key=place))
        return [candidate for candidate in found if candidate.name not in known]

    def _candidate(self, config: RunConfig) -> Candidate:
        if "probe_links" not in self.space.fixed:
            config = dataclasses.replace(config, probe_links=PROBE_LINKS)
        point = self.space.point(config)
        named = ("encoder", "loss", "sampler")
        words = [str(point[name]) for name in named if name in point]
        for name, value in point.items():
            usual = self._usual.get(name, config.settings[name].default)
            if name not in named and value != usual:
                words.append(f"{SHORT.get(name, name)}={value}")
        return Candidate(" ".join(words), config)

    def _place(self, config: RunConfig) -> tuple[int, int] | tuple[()]:
        """Return the place of a neighbour of the first candidate in the first field: first those
        whose value stands beside its own; nothing for one that has no place there.
        """
        point, tried = self.space.point(config), self.space.tried
        for place, name in enumerate(FIRST):
            if name in point and point[name] != self._usual[name]:
                at = (tried[name].index(value) for value in (point[name], self._usual[name]))
                return abs(next(at) - next(at)), place
        return ()

    def _first(self) -> RunConfig:
        wanted, tried = {**preset("good"), **START}, self.space.tried
        usual = {name: _nearest(tried[name], wanted[name]) for name in wanted if name in tried}
        declared = all_settings()
        own = [name for name in tried if list(tried[name]) != list(declared[name].tried)]
        kinds = [name for name in BUILT_IN if name in tried]
        axes = [dict.fromkeys([usual.get(name, tried[name][0]), *tried[name]]) for name in kinds]
        reasons = []
        for values in itertools.product(*axes):
            choices = dict(zip(kinds, values, strict=True))
            try:
                config = self.space.config(choices)
                names = self.space.names(config)
                # Given values, in place of a default that may depend on the choices.
                given = {
                    name: _nearest(tried[name], getattr(config, name))
                    for name in names
                    if name in own
                }
                point = {name: value for name, value in {**given, **usual}.items() if name in names}
                return self.space.config(point | choices)
            except UsageError as error:
                reasons.append(error)
        raise UsageError(f"Nothing of this can work. The first reason: {reasons[0]}")


def _nearest(values: Sequence[Any], wanted: Any) -> Any:
    """Return the wanted value; else of numbers the nearest, by ratio where they are above 0, and of
    others the first.
    """
    if wanted in values or not isinstance(wanted, int | float):
        return wanted if wanted in values else values[0]
    if wanted > 0 and min(values) > 0:
        return min(values, key=lambda value: abs(math.log(value / wanted)))
    return min(values, key=lambda value: abs(value - wanted))
