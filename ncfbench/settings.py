"""Settings: how one is declared, converted, checked and shown.

Each setting is declared once, in :mod:`ncfbench.catalog`: among those of every run, or in the
record of the sampler, loss or encoder that it belongs to. Command-line options, TOML keys, checks
of range, the identity of a run and ``docs/settings.md`` are made from the declaration.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from ncfbench.errors import UsageError, either, nearest

Panel = Literal["Data", "Sampler", "Model", "Training", "Devices", "Output"]
PANELS: tuple[Panel, ...] = get_args(Panel)
"""Groups of options in ``--help``, in their order."""
Kind = Literal["sampler", "loss", "encoder", "user_tower", "interaction"]
"""Kinds of classes that a user chooses by name, built in or plug-ins."""

_TYPES: Mapping[str, tuple[Callable[[Any], Any], tuple[type, ...], str]] = {
    "int": (int, (numbers.Integral, str), "a whole number"),
    "float": (float, (numbers.Real, str), "a number"),
    "str": (str, (numbers.Real, str), "a name"),
    "bool": (lambda value: {"true": True, "false": False}[value.lower()], (str,), "true or false"),
    "Path": (Path, (Path, str), "a path"),
    "tuple": (lambda value: tuple(map(str, value)), (list, tuple), "a list"),
}
"""By type: what makes it of a value, of which types that may be, and the type in words."""


@dataclass(frozen=True)
class Setting:
    """One setting: default, help, range, panel of ``--help``, and who uses it.

    Raises:
        TypeError: the name is no identifier, or there is no such type.
        UsageError: the default is outside the range.
    """

    name: str
    default: Any
    """None where another choice decides; see :attr:`default_from`."""
    help: str
    _: KW_ONLY
    panel: str = "Model"
    """One of :data:`PANELS`; an option of a data source may have another, or none."""
    type: str = ""
    """``bool``, ``int``, ``float``, ``str``, ``Path`` or ``tuple`` (of texts); by default that of
    ``default``.
    """
    choices: tuple[str, ...] = ()
    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None
    below: float | None = None
    is_odd: bool = False
    multiple_of: str = ""
    """Name of another setting, a whole number, of which the value must be a multiple."""
    chooses: Kind | None = None
    """The kind of entry that the value names, built in or a plug-in."""
    used_by: Kind | None = None
    """The kind of class whose ``uses`` decide whether the setting counts; None: it always does."""
    default_from: str = ""
    """``loss`` or ``encoder``, whose declared value is the default, or the name of a setting."""
    only_with: tuple[str, ...] = ()
    """Another setting and the values of it with which this one counts; else it has its default."""
    needs: tuple[str, ...] = ()
    """Other settings that a class must have too where it has this one."""
    symbol: str = ""
    """A letter for it in the tables; by default its name."""
    zero_word: str = ""
    """A word for 0, which a user may write in its place."""
    shown: str = ""
    """Default as ``--help`` shows it, where the value says less."""
    is_tunable: bool = False
    """Leaves the objective as it is: tuned for each arm by itself, probe losses stay comparable."""
    changes_objective: bool = False
    """Runs that differ in it minimise other things: reports compare them by recall, never by probe.
    """
    has_flag: bool = True

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise TypeError(f"a setting cannot be called {self.name!r}")
        if not self.type:
            object.__setattr__(self, "type", type(self.default).__name__)
        if self.type not in _TYPES:
            raise TypeError(f"{self.name}: a setting cannot be of type {self.type}")
        if self.default is not None:
            self.check(self.convert(self.default))

    @property
    def flag(self) -> str:
        """The option on the command line, such as ``--batch-size``."""
        return "--" + self.name.replace("_", "-")

    @property
    def range(self) -> str:
        """The valid values in words: ``at least 0 and below 1``; empty where all are."""
        if self.choices:
            return either(self.choices)
        if self.type == "bool":
            return _TYPES["bool"][2]
        bounds = (
            ("at least", self.at_least),
            ("above", self.above),
            ("at most", self.at_most),
            ("below", self.below),
        )
        words = [f"{word} {bound}" for word, bound in bounds if bound is not None]
        words += [f"a multiple of {self.multiple_of}"] if self.multiple_of else []
        return " and ".join((["odd"] if self.is_odd else []) + words)

    def convert(self, value: Any) -> Any:
        """Return ``value`` as the setting's type. Text is parsed, anything else must have the type.

        Raises:
            UsageError: it does not.
        """
        with suppress(ValueError, KeyError, OverflowError):
            # A number of NumPy or JAX is that of Python; a narrow 0.01 is 0.01, not 0.0099999998.
            plain: Any = value.item() if hasattr(value, "item") else value
            if isinstance(plain, float) and getattr(value, "itemsize", 8) < 8:
                plain = float(str(value))
            if self.zero_word and isinstance(plain, str) and plain == self.zero_word:
                return 0
            if isinstance(plain, bool) and self.type == "bool":
                return plain
            make, valid, _ = _TYPES[self.type]
            if not isinstance(plain, bool) and isinstance(plain, valid):
                return make(plain)
        or_word = f" or {self.zero_word}" if self.zero_word else ""
        raise UsageError(f"{self.name} = {value!r} is not {_TYPES[self.type][2]}{or_word}.")

    def check(self, value: Any) -> None:
        """Refuse a value of the right type outside the range.

        Raises:
            UsageError: the message names the valid values.
        """
        if self.choices:
            given = value if isinstance(value, tuple) else (value,)
            for each in given:
                if each not in self.choices:
                    raise UsageError(
                        f"{self.name} = {each!r}{nearest(each, self.choices)} Valid:"
                        f" {', '.join(self.choices)}."
                    )
            if not given or len(set(given)) < len(given):
                raise UsageError(
                    f"{self.name} = {','.join(given)!r}: name each of {', '.join(self.choices)} at"
                    " most once, and one or more."
                )
        elif self.type in ("int", "float") and not self._contains(value):
            words = [*(["finite"] if self.type == "float" else []), self.range]
            words = [word for word in words if word]
            raise UsageError(f"{self.name} = {value}: it must be {' and '.join(words)}.")

    def is_active(self, values: Mapping[str, Any]) -> bool:
        """Return whether these settings have the value with which this one counts."""
        return not self.only_with or values[self.only_with[0]] in self.only_with[1:]

    def arguments(self, value: Any) -> list[str]:
        """Return the words of a command line that give the setting this value."""
        if not self.has_flag:
            return ["--set", f"{self.name}={self.text(value)}"]
        if self.type == "bool":
            return [self.flag if value else self.flag.replace("--", "--no-", 1)]
        return [self.flag, self.text(value)]

    def text(self, value: Any) -> str:
        """Return a value as a user writes it."""
        return self.zero_word if self.zero_word and value == 0 else str(value)

    def _contains(self, value: float) -> bool:
        return (
            math.isfinite(value)
            and (self.at_least is None or value >= self.at_least)
            and (self.at_most is None or value <= self.at_most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
            and (not self.is_odd or value % 2 == 1)
        )


def setting_field(default: Any, help: str, **more: Any) -> Any:
    """Return a field of a dataclass that declares a setting of its name and type.

    Args:
        default, help, more: as for :class:`Setting`.
    """
    return dataclasses.field(default=default, metadata={"setting": (default, help, more)})


def setting_of(field: dataclasses.Field[Any]) -> Setting:
    """Return the setting that a field made by :func:`setting_field` declares.

    An underscore at the end of its name is left out: ``lambda`` is a word of Python's.
    """
    default, text, more = field.metadata["setting"]
    kind = re.match(r"\w*", str(field.type))
    return Setting(field.name.rstrip("_"), default, text, type=kind[0] if kind else "", **more)


def declared(owner: type[Any]) -> dict[str, Setting]:
    """Return the settings that the fields of a dataclass declare, by name."""
    found = map(setting_of, dataclasses.fields(owner))
    return {setting.name: setting for setting in found}
