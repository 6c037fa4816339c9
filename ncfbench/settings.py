"""Settings: how one is declared, converted, checked and shown.

Each is declared once, in :mod:`ncfbench.catalog`: among those of every run, or in the record of the
sampler, loss or encoder that it belongs to. Flags, TOML keys, checks, a run's identity and
``ncfbench settings`` are made from the declaration.
"""

from __future__ import annotations

import dataclasses
import keyword
import math
import numbers
import operator
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from ncfbench.errors import UsageError, either, refusal

Panel = Literal["Data", "Sampler", "Model", "Training", "Devices", "Output"]
PANELS: tuple[Panel, ...] = get_args(Panel)
"""Groups of options in ``--help``, in their order."""
Kind = str
"""A kind of class that a user chooses by name, built in or a plug-in: ``sampler``, ``loss``,
``encoder`` or ``user_tower``. The setting of that name chooses it.
"""
BOUNDS: Mapping[str, Callable[[float, float], bool]] = {
    "at_least": operator.ge,
    "above": operator.gt,
    "at_most": operator.le,
    "below": operator.lt,
}
"""Fields of a setting that bound its values, with the relation that a value must have to each."""

_TYPES: Mapping[str, tuple[Callable[[Any], Any], tuple[type, ...], str]] = {
    "int": (int, (numbers.Integral, str), "a whole number"),
    "float": (float, (numbers.Real, str), "a number"),
    "str": (str, (numbers.Real, str), "a name"),
    "bool": (lambda value: {"true": True, "false": False}[value.lower()], (str,), "true or false"),
    "Path": (Path, (Path, str), "a path"),
    "tuple": (lambda value: tuple(map(str, value)), (list, tuple), "a list"),
}
"""By type: its constructor, the types that the constructor takes, and the type in words."""


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
    panel: str = ""
    """One of :data:`PANELS`, or another group of ``ncfbench prepare``; by default the kind's."""
    type: str = ""
    """``bool``, ``int``, ``float``, ``str``, ``Path`` or ``tuple``; by default the default's."""
    choices: tuple[str, ...] = ()
    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None
    below: float | None = None
    used_by: Kind | None = None
    """The kind of class whose ``uses`` decide whether the setting counts, or ``coupling``, which
    must be regularised; None: it always counts.
    """
    changes: str = "both"
    """Or ``result`` or ``time`` alone; or ``nothing``: a run is the same one with any value."""
    default_from: str = ""
    """``loss`` or ``encoder``, whose record has the default, or another setting."""
    shown: str = ""
    """Default as ``--help`` shows it, where the value says less."""
    tried: tuple[Any, ...] = ()
    """Values that a search tries: of numbers in ascending order, neighbours side by side."""
    has_flag: bool = False
    """Whether ``ncfbench run`` has an option for it, beside ``--set``."""

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise TypeError(f"a setting cannot be called {self.name!r}")
        if not self.type:
            object.__setattr__(self, "type", type(self.default).__name__)
        if self.type not in _TYPES:
            raise TypeError(f"{self.name}: a setting cannot be of type {self.type}")
        for value in (*self.tried, self.default):
            if value is not None:
                self.check(self.convert(value))

    @property
    def flag(self) -> str:
        """The option on the command line, such as ``--batch-size``."""
        return "--" + self.name.replace("_", "-")

    @property
    def attribute(self) -> str:
        """The name as an attribute: ``lambda_``, since ``lambda`` is a word of Python's."""
        return f"{self.name}_" if keyword.iskeyword(self.name) else self.name

    @property
    def range(self) -> str:
        """The valid values in words: ``at least 0 and below 1``; empty where all are."""
        if self.choices:
            return either(self.choices)
        words = [_TYPES["bool"][2]] if self.type == "bool" else []
        words += [f"{name.replace('_', ' ')} {bound}" for name, bound in self._bounds()]
        return " and ".join(words)

    def convert(self, value: Any) -> Any:
        """Return ``value`` as the setting's type. Text is parsed, anything else must have the type.

        Raises:
            UsageError: it does not.
        """
        make, valid, words = _TYPES[self.type]
        with suppress(ValueError, KeyError, OverflowError):
            # A number of NumPy or JAX is that of Python; a narrow 0.01 is 0.01, not 0.0099999998.
            plain: Any = value.item() if hasattr(value, "item") else value
            if isinstance(plain, float) and getattr(value, "itemsize", 8) < 8:
                plain = float(str(value))
            if isinstance(plain, bool) and self.type == "bool":
                return plain
            if not isinstance(plain, bool) and isinstance(plain, valid):
                return make(plain)
        raise UsageError(f"{self.name} = {value!r} is not {words}.")

    def check(self, value: Any) -> None:
        """Refuse a value of the right type outside the range.

        Raises:
            UsageError: the message names the valid values.
        """
        if self.choices:
            given = value if isinstance(value, tuple) else (value,)
            for choice in given:
                if choice not in self.choices:
                    raise UsageError(refusal(f"{self.name} =", choice, self.choices))
            if not given or len(set(given)) < len(given):
                raise UsageError(
                    f"{self.name} = {','.join(given)!r}: name each of {', '.join(self.choices)} at"
                    " most once, and one or more."
                )
        elif self.type in ("int", "float") and not (
            math.isfinite(value)
            and all(BOUNDS[name](value, bound) for name, bound in self._bounds())
        ):
            words = filter(None, ("finite" if self.type == "float" else "", self.range))
            raise UsageError(f"{self.name} = {value}: it must be {' and '.join(words)}.")

    def arguments(self, value: Any) -> list[str]:
        """Return the words of a command line that give the setting this value."""
        if self.has_flag:
            return [self.flag, self.text(value)]
        return ["--set", f"{self.name}={self.text(value)}"]

    def text(self, value: Any) -> str:
        """Return a value as a user writes it."""
        return str(value).lower() if self.type == "bool" else str(value)

    def _bounds(self) -> list[tuple[str, float]]:
        bounds = [(name, getattr(self, name)) for name in BOUNDS]
        return [(name, bound) for name, bound in bounds if bound is not None]


def setting_field(default: Any, help: str, **more: Any) -> Any:
    """Return a dataclass field that declares a setting; arguments as for :class:`Setting`."""
    return dataclasses.field(default=default, metadata={"setting": (default, help, more)})


def setting_of(field: dataclasses.Field[Any]) -> Setting:
    """Return the setting that a field made by :func:`setting_field` declares."""
    default, text, more = field.metadata["setting"]
    type_name = re.split(r"\W", str(field.type))[0]
    return Setting(field.name.rstrip("_"), default, text, type=type_name, **more)
