"""Options that several commands have, each declared once: the settings of a run, made from their
catalog, and the rest.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from ncfbench.catalog import BUILT_IN
from ncfbench.config import SETTINGS, all_settings, default_text, split_list
from ncfbench.errors import UsageError
from ncfbench.settings import PANELS, Setting

Flags = Mapping[str, Any]
"""Settings given by flags; None stands for "not given"."""
TYPES: Mapping[str, type] = {
    **{kind.__name__: kind for kind in (bool, int, float, str, Path)},
    "tuple": str,
}
"""The types of options by those of settings; a list is a text with commas."""
UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0}
Command = Callable[..., Any]


def with_settings(*names: str, are_lists: bool = False) -> Callable[[Command], Command]:
    """Give a command the options of settings; their values are its first argument.

    Args:
        names: settings of every run.
        are_lists: whether an option takes several values, separated by commas.
    """

    def decorate(command: Command) -> Command:
        _, *parameters = inspect.signature(command, eval_str=True).parameters.values()

        @functools.wraps(command)
        def wrapped(**given: Any) -> Any:
            return command({name: given.pop(name) for name in names}, **given)

        added = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=_annotation(SETTINGS[name], are_lists=are_lists),
            )
            for name in names
        ]
        ordered = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in sorted([*added, *parameters], key=_panel)
        ]
        command_: Any = wrapped
        command_.__signature__ = inspect.Signature(ordered)
        command_.__annotations__ = {parameter.name: parameter.annotation for parameter in ordered}
        return wrapped

    return decorate


class SettingsCommand(TyperCommand):
    """A command with ``--set``, which it names where a setting is given as an option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See ``parse_args`` of Typer's commands."""
        known = {"--help", *(flag for parameter in self.params for flag in parameter.opts)}
        for flag in (word.partition("=")[0] for word in args if word.startswith("--")):
            name = flag.removeprefix("--").removeprefix("no-").replace("-", "_")
            if flag not in known and name in all_settings():
                raise typer.BadParameter(f"{flag} is no option. Use --set {name}=VALUE.")
        return super().parse_args(ctx, args)


def _annotation(setting: Setting, *, are_lists: bool) -> Any:
    help_ = f"{setting.help}."
    if setting.name in BUILT_IN:
        help_ = f"{setting.help}: {', '.join(BUILT_IN[setting.name])}, or a plug-in."
    option = typer.Option(
        setting.flag,
        help=help_,
        show_default="the sweep's" if are_lists else default_text(setting),
        metavar="VALUE[,VALUE]" if are_lists else None,
        rich_help_panel=setting.panel,
    )
    return Annotated[(str if are_lists else TYPES[setting.type]) | None, option]


def _panel(parameter: inspect.Parameter) -> int:
    (about,) = parameter.annotation.__metadata__
    return PANELS.index(about.rich_help_panel) if about.rich_help_panel else -1


def option(
    *names: str,
    help: str,
    panel: str | None = None,
    metavar: str | None = None,
    default: str | bool = False,
) -> Any:
    """Return the declaration of a command's option, for its annotation.

    Args:
        names: its flags, unless they follow from the parameter's name.
        panel: a group of options in ``--help``.
        default: words for the default there; False shows none, True that of the parameter.
    """
    return typer.Option(
        *names, help=help, metavar=metavar, rich_help_panel=panel, show_default=default
    )


Dataset = Annotated[
    str | None,
    typer.Argument(help="Prepared data set.", metavar="DATASET", show_default="citeulike"),
]
Preset = Annotated[
    str,
    option(
        metavar="paper|good",
        help=(
            "Settings to begin with: the paper's, or good: a bag of words with softmax, chosen by"
            " validation on five real data sets. Other flags replace them."
        ),
        default=True,
    ),
]
Set = Annotated[
    list[str] | None,
    option(
        "--set",
        metavar="NAME=VALUE",
        help="Any setting, a plug-in's too; `ncfbench settings` lists them.",
    ),
]
DataDir = Annotated[
    Path | None,
    option(help="Prepared data sets. Default: $NCFBENCH_DATA_DIR, or ./data.", panel="Data"),
]
RunsDir = Annotated[
    Path | None,
    option(help="Run folders. Default: $NCFBENCH_RUNS_DIR, or ./runs.", panel="Output"),
]
Quiet = Annotated[bool, option("--quiet", "-q", help="No progress.", panel="Output")]
Json = Annotated[
    bool, option("--json", help="Print one JSON object on standard output.", panel="Output")
]


def samplers(meaning_of_all: str) -> Any:
    """Return the declaration of an option that names samplers, for its annotation."""
    help = f"Samplers, separated by commas; plug-ins too. all: {meaning_of_all}."
    return option("--samplers", "--sampler", help=help, panel="Sampler", default=True)


def as_keywords(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as arguments of a function; with an underscore none is called as another."""
    return {f"{name}_": value for name, value in settings.items()}


def parse_values(flag: str, texts: Iterable[str], example: str) -> dict[str, tuple[str, ...]]:
    """Return the values of each name of ``NAME=V,V``; those of a name that comes again add up.

    Raises:
        UsageError: a text has no name or no values; the message has the flag and an example.
    """
    lists: dict[str, list[str]] = {}
    for text in texts:
        name, _, values = text.partition("=")
        if not name.strip() or not names(values):
            raise UsageError(f"{flag} {text!r}: give a name and its values, such as {example}.")
        lists.setdefault(name.strip(), []).append(values)
    return {name: names(",".join(parts)) for name, parts in lists.items()}


def names(text: str, valid: Iterable[str] = ()) -> tuple[str, ...]:
    """Split a list at its commas, each part once; ``all`` stands for the valid ones."""
    parts = (valid if part == "all" and valid else (part,) for part in split_list(text))
    return tuple(dict.fromkeys(chain.from_iterable(parts)))


def parse_duration(text: str, flag: str) -> float:
    """Return the seconds of ``2h``, ``90m`` or ``1h30m``.

    Raises:
        UsageError: it is no such time.
    """
    bare = text.replace(" ", "")
    if not re.fullmatch(r"(\d+(\.\d+)?[hms])+", bare):
        raise UsageError(f"{flag} {text!r} is not a time. Write it as 2h, 90m, 200s or 1h30m.")
    parts = re.findall(r"(\d+(?:\.\d+)?)([hms])", bare)
    return sum(float(number) * UNITS[unit] for number, unit in parts)
