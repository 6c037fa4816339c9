"""Options that several commands have, each declared once: the settings of a run, made from their
catalog, and the rest.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from ncfbench.catalog import BUILT_IN, INFOS, find
from ncfbench.config import SETTINGS, all_settings, default_text, users_of
from ncfbench.errors import UsageError
from ncfbench.settings import PANELS, Kind, Setting

Flags = Mapping[str, Any]
"""Settings given by flags; None stands for "not given"."""
TYPES: Mapping[str, type] = {
    "bool": bool,
    "int": int,
    "float": float,
    "str": str,
    "Path": Path,
    "tuple": str,
}
"""The types of options by those of settings; a list is a text with commas."""
UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0}
Command = Callable[..., Any]


def with_settings(
    *names: str,
    own: Iterable[Kind] = (),
    are_lists: bool = False,
    **defaults: Any,
) -> Callable[[Command], Command]:
    """Give a command the options of settings; their values are its first argument.

    Args:
        names: settings of every run.
        own: kinds of choices whose own settings are options too: those of built-in ones, and those
            of the plug-ins that the command line names (:class:`SettingsCommand`).
        are_lists: whether an option takes several values, separated by commas.
        defaults: the command's own defaults.
    """

    kinds = set(own)
    settings = {name: SETTINGS[name] for name in names} | {
        name: setting
        for name, setting in all_settings().items()
        if name not in SETTINGS and setting.used_by in kinds
    }
    return lambda command: _with_options(command, settings, defaults, are_lists=are_lists)


class SettingsCommand(TyperCommand):
    """A command with the options of the plug-ins that its command line names."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See ``parse_args`` of Typer's commands."""
        more = _settings_of_plugins(args)
        if more and self.callback:
            app = typer.Typer(add_completion=False)
            app.command()(self.callback.with_more(more))  # type: ignore[attr-defined]
            made = typer.main.get_command(app)
            self.params, self.callback = made.params, made.callback
        return super().parse_args(ctx, args)


def help_text(setting: Setting) -> str:
    """Return what a setting is, with its choices, or those whose runs use it."""
    if setting.name in BUILT_IN:
        more = ", or a plug-in" * bool(INFOS[setting.name].group)
        return f"{setting.help}: {', '.join(BUILT_IN[setting.name])}{more}."
    if setting.choices:
        return f"{setting.help}: {setting.range}."
    users = users_of(setting)
    return f"{setting.help} ({', '.join(users)})." if users else f"{setting.help}."


def _with_options(
    command: Command,
    settings: Mapping[str, Setting],
    defaults: Mapping[str, Any],
    *,
    are_lists: bool,
) -> Command:
    _, *parameters = inspect.signature(command, eval_str=True).parameters.values()
    own = {parameter.name for parameter in parameters}

    @functools.wraps(command)
    def wrapped(**given: Any) -> Any:
        flags = {name.rstrip("_"): given.pop(name) for name in [*given] if name not in own}
        return command(flags, **given)

    added = [
        inspect.Parameter(
            f"{name}_",  # no parameter can be called "lambda"
            inspect.Parameter.KEYWORD_ONLY,
            default=defaults.get(name),
            annotation=_annotation(setting, name in defaults, are_lists=are_lists),
        )
        for name, setting in settings.items()
        if name not in own
    ]
    ordered = [
        each.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for each in sorted([*added, *parameters], key=_panel)
    ]
    made: Any = wrapped
    made.__signature__ = inspect.Signature(ordered)
    made.__annotations__ = {each.name: each.annotation for each in ordered}
    made.with_more = lambda more: _with_options(
        command, {**settings, **more}, defaults, are_lists=are_lists
    )
    return wrapped


def _annotation(setting: Setting, has_default: bool, *, are_lists: bool) -> Any:
    off = setting.flag.replace("--", "/--no-", 1) if setting.type == "bool" else ""
    shown = default_text(setting) or False
    option = typer.Option(
        setting.flag if are_lists else setting.flag + off,
        help=help_text(setting),
        show_default="the sweep's" if are_lists else has_default or shown,
        metavar="VALUE[,VALUE]" if are_lists else None,
        rich_help_panel=setting.panel,
    )
    kind = str if are_lists else TYPES[setting.type]
    return Annotated[kind | None, option]


def _panel(parameter: inspect.Parameter) -> int:
    (about,) = parameter.annotation.__metadata__
    return PANELS.index(about.rich_help_panel) if about.rich_help_panel else -1


def _settings_of_plugins(arguments: Sequence[str]) -> dict[str, Setting]:
    """Return the own settings of the plug-ins that a command line names."""
    words = [part for word in arguments for part in word.split("=", 1)]
    found: dict[str, Setting] = {}
    for kind, (word, value) in itertools.product(BUILT_IN, itertools.pairwise(words)):
        flag = SETTINGS[kind].flag
        if word not in (flag, f"{flag}s"):
            continue
        for name in names(value):
            if name not in BUILT_IN[kind] and name != "all":
                try:
                    found |= find(kind, name).own
                except UsageError:
                    continue  # The command itself refuses the name.
    return found


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
ConfigFile = Annotated[Path | None, option(help="TOML file of settings, named like the flags.")]
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
    option("--set", metavar="KEY=VALUE", help="Any setting, a plug-in's too."),
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


def as_keywords(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as arguments of a function; with an underscore none is called as another."""
    return {f"{name}_": value for name, value in settings.items()}


def parse_tried(texts: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the values of each name of ``--try NAME=V,V``.

    Raises:
        UsageError: a text has no name or no values, or a name is given twice.
    """
    found: dict[str, tuple[str, ...]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        name = name.strip()
        if not equals or not name or not names(values):
            raise UsageError(f"--try {text!r}: give a name and its values, such as lr=1e-4,1e-3.")
        if name in found:
            raise UsageError(f"--try {name}: it is given twice. Give all its values at once.")
        found[name] = names(values)
    return found


def names(text: str, valid: Iterable[str] = ()) -> tuple[str, ...]:
    """Split a list at its commas, each part once; ``all`` stands for the valid ones."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    return tuple(
        dict.fromkeys(
            name for part in parts for name in (valid if part == "all" and valid else (part,))
        )
    )


def parse_duration(text: str, flag: str) -> float:
    """Return the seconds of ``2h``, ``90m`` or ``1h30m``.

    Raises:
        UsageError: it is no such time.
    """
    bare = text.replace(" ", "")
    if not re.fullmatch(r"(\d+(\.\d+)?[hms])+", bare):
        raise UsageError(f"{flag} {text!r} is not a time. Use for example 2h, 90m or 1h30m.")
    parts = re.findall(r"(\d+(?:\.\d+)?)([hms])", bare)
    return sum(float(number) * UNITS[unit] for number, unit in parts)
