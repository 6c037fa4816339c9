"""The arms of a race for recall: a first field, and neighbours of its leaders.

The first field is the portfolio (:data:`ncfbench.catalog.presets.PORTFOLIO`), as far as the data
and the question allow, and its first member with each value that was asked for. Later ones differ
from a leader in one setting.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from ncfbench.advice.space import Space
from ncfbench.catalog import BUILT_IN, all_settings
from ncfbench.catalog.presets import PORTFOLIO
from ncfbench.config import RunConfig
from ncfbench.errors import UsageError
from ncfbench.runs.labels import NAMED, SHORT

PROBE_LINKS = 256
"""Links of a probe: rankings decide, and a probe of the usual size takes a fifth of such a race."""
ORDER = ("learning_rate", "dimension", "word_dropout", "batch_size", "stratum_size")
"""Settings that newcomers differ in first: recall depends on them most."""


class Choice(NamedTuple):
    """Settings that an arm may have, and their name."""

    name: str
    config: RunConfig


class Search:
    """Arms of a space. All have the same name for the same settings.

    Args:
        asked: settings whose values to try the question names.

    Raises:
        UsageError: nothing of the space can work.
    """

    def __init__(self, space: Space, asked: Collection[str] = ()) -> None:
        self.space, self.asked = space, asked
        self.start = self._nearest_point(PORTFOLIO["good"])
        self._usual = space.point(self.start)
        self._members = [*self._portfolio()]
        self._bases: dict[tuple[str, ...], dict[str, Mapping[str, Any]]] = {}
        """Points of the portfolio by encoder, loss and sampler, the first without a name."""
        for name, config in self._members:
            same = self._bases.setdefault(_kinds(config), {})
            if space.point(config) not in same.values() and (not same or self._is_whole(name)):
                same[f"({name})" if same else ""] = space.point(config)

    def readers(self) -> list[RunConfig]:
        """Return points whose user towers read all that any arm's reads."""
        towers = self.space.tried.get("user_tower", ())
        histories = self.space.tried.get("history_of", ()) if "history" in towers else ()
        readers = [self.start, *(config for _, config in self._members)]
        start = self.space.point(self.start)
        for of in histories:
            with suppress(UsageError):
                readers.append(
                    self.space.config(start | {"user_tower": "history", "history_of": of})
                )
        return readers

    def first_field(self) -> list[Choice]:
        """Return the arms that begin, the first one before all, then who shows the values
        that were asked for.
        """
        asked = []
        for name in self.asked:
            for value in self.space.tried.get(name, ()):
                with suppress(UsageError):
                    asked.append(self._nearest_point({**PORTFOLIO["good"], name: value}))
        members = [config for _, config in self._members]
        field = dict.fromkeys([self.start, *asked, *members])
        return [self._choice(config) for config in field]

    def require_rivals(self) -> None:
        """Refuse a space of one arm only, by a UsageError."""
        first, *others = self.first_field()
        if not others and not self.neighbours(first.config, ()):
            raise UsageError(
                f"There is one arm only, {first.name}: nothing to race. Let more be tried, or train"
                " it with ncfbench run."
            )

    def _portfolio(self) -> Iterator[tuple[str, RunConfig]]:
        """Yield the portfolio without encoders that are not tried; all of it with others, if none
        of its encoders is.
        """
        encoders = self.space.tried.get("encoder", ())
        tried = {name: one for name, one in PORTFOLIO.items() if one["encoder"] in encoders}
        for name, wanted in (tried or PORTFOLIO).items():
            with suppress(UsageError):
                yield name, self._nearest_point(wanted)

    def _is_whole(self, member: str) -> bool:
        """Return whether question and data let a member of the portfolio have all its settings."""
        fixed, tried = self.space.fixed, self.space.tried
        return all(
            fixed.get(name, value) == value and value in tried.get(name, (value,))
            for name, value in PORTFOLIO[member].items()
        )

    def neighbours(self, leader: RunConfig, known: Container[str]) -> list[Choice]:
        """Return the neighbours of an arm whose names are not known yet, the most promising
        first.
        """
        start = self.space.point(leader)

        def place(config: RunConfig) -> int:
            point = self.space.point(config)
            differing = [name for name in point if point[name] != start.get(name)]
            places = [ORDER.index(name) for name in differing if name in ORDER]
            return min(places, default=len(ORDER))

        choices = map(self._choice, sorted(self.space.neighbours(leader), key=place))
        return [choice for choice in choices if choice.name not in known]

    def _choice(self, config: RunConfig) -> Choice:
        if "probe_links" not in self.space.fixed:
            config = dataclasses.replace(config, probe_links=PROBE_LINKS)
        point, kinds = self.space.point(config), _kinds(config)

        def differing(base: Mapping[str, Any]) -> list[str]:
            usual = {name: base.get(name, config.settings[name].default) for name in point}
            names = [name for name in point if name not in NAMED and point[name] != usual[name]]
            return [f"{SHORT.get(name, name)}={point[name]}" for name in names]

        words = {name: differing(base) for name, base in self._bases.get(kinds, {}).items()}
        name, more = min(
            (words or {"": differing(self._usual)}).items(), key=lambda item: len(item[1])
        )
        shown = [kind for kind, setting in zip(kinds, NAMED, strict=True) if setting in point]
        return Choice(" ".join(filter(None, [*shown, name, *more])), config)

    def _nearest_point(self, wanted: Mapping[str, Any]) -> RunConfig:
        """Return the point that is nearest to some settings."""
        tried = self.space.tried
        usual = {name: _nearest(tried[name], wanted[name]) for name in wanted if name in tried}
        declared = all_settings()
        given_names = [name for name in tried if list(tried[name]) != list(declared[name].tried)]
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
                    if name in given_names
                }
                point = {name: value for name, value in {**given, **usual}.items() if name in names}
                return self.space.config(point | choices)
            except UsageError as error:
                reasons.append(error)
        raise UsageError(f"Nothing of this can work. The first reason: {reasons[0]}")


def _kinds(config: RunConfig) -> tuple[str, ...]:
    return tuple(getattr(config, name) for name in NAMED)


def _nearest(values: Sequence[Any], wanted: Any) -> Any:
    """Return the wanted value; else of numbers the nearest, by ratio where they are above 0, and of
    others the first.
    """
    if wanted in values or not isinstance(wanted, int | float):
        return wanted if wanted in values else values[0]
    if wanted > 0 and min(values) > 0:
        return min(values, key=lambda value: abs(math.log(value / wanted)))
    return min(values, key=lambda value: abs(value - wanted))
