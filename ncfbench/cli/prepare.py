"""``ncfbench prepare``: one command for each source of data, made from the source's options."""

from __future__ import annotations

import inspect
from contextlib import suppress
from dataclasses import MISSING, Field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from ncfbench.cli import options
from ncfbench.cli.failures import reporting
from ncfbench.cli.options import TYPES, option
from ncfbench.cli.output import print_json, print_views, progress_bar, say
from ncfbench.config import Locations, split_list
from ncfbench.data.options import declared
from ncfbench.data.sources import SOURCES, Source
from ncfbench.settings import setting_of

if TYPE_CHECKING:
    from ncfbench.cli.download import DownloadBar
    from ncfbench.data.features import Float32
    from ncfbench.data.text import Texts


class _SourceGroup(TyperGroup):
    """The commands of all sources; a source is imported only when its own command is used."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        # For the list of commands and for suggestions.
        self.commands = {name: TyperCommand(name, help=SOURCES[name].summary) for name in SOURCES}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the complete command that is to run."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and _command(str(name)), rest


prepare_app = typer.Typer(
    cls=_SourceGroup,
    rich_markup_mode="markdown",
    help="Make a data set ready: fetch or generate, verify, tokenise, split, store.",
    no_args_is_help=True,
)


@prepare_app.callback()
def _prepare() -> None:
    """Keep Typer from requiring a command here: those of the sources are found by name."""


def _command(name: str) -> Any:
    """Return the command of a source, with a flag for each field of its options."""
    source = SOURCES[name]
    module = source.load()
    settings = {field.name: setting_of(field) for field in declared(module.Options)}

    @reporting
    def prepare(**given: Any) -> None:
        from ncfbench.data import prepare as prepare_data

        values = {field: given[field] for field in settings}
        for field, setting in settings.items():
            if setting.type == "tuple" and values[field] is not None:
                values[field] = tuple(split_list(values[field]))  # as often as they are named
        manifest = prepare_data(
            name,
            module.Options(**values),
            Locations.of(given["data_dir"]).data_dir,
            given["name"],
            replace=given["force"],
            say=say,
            progress=_download_bar,
            embed=_embed,
        )
        _show(manifest, source, as_json=given["json_"])

    parameters = [_parameter(field) for field in declared(module.Options)]
    parameters += inspect.signature(_common, eval_str=True).parameters.values()
    prepare.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    prepare.__annotations__ = {each.name: each.annotation for each in parameters}
    app = typer.Typer(add_completion=False, rich_markup_mode="markdown")
    app.command(name, help="\n\n".join(filter(None, (source.summary, source.details))))(prepare)
    return typer.main.get_command(app)


def _common(
    *,
    name: Annotated[
        str | None, option(help="Store it under another name, to keep several versions.")
    ] = None,
    force: Annotated[
        bool, option("--force", help="Replace a data set of that name and other content.")
    ] = False,
    data_dir: options.DataDir = None,
    json_: options.Json = False,
) -> None:
    """Declare the flags that every source's command has."""


def _parameter(field: Field[Any]) -> inspect.Parameter:
    """Return the parameter of a command for a field of options."""
    setting, default = setting_of(field), field.default
    type_: Any = TYPES[setting.type]
    if isinstance(default, tuple):
        default = ",".join(default) or None
    if default is None:
        type_ = type_ | None
    flag = setting.flag
    # What manifests have as an option must be writable either way.
    if setting.type == "bool" and (field.default or field.metadata["is_stored"]):
        flag += flag.replace("--", "/--no-", 1)
    is_number = setting.type == "float"
    declaration = typer.Option(
        flag,
        help=setting.help,
        show_default=setting.shown or default is not None,
        rich_help_panel=setting.panel or None,
        parser=_number if is_number else None,
        metavar="<float>" if is_number else None,
    )
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if default is MISSING else default,
        annotation=Annotated[type_, declaration],
    )


def _number(text: str | float) -> float:
    advice = ""
    with suppress(ValueError):
        return float(text)
    with suppress(ValueError):
        advice = f" Write {float(str(text).removesuffix('%')) / 100:g}."
    raise typer.BadParameter(f"{text!r} is not a number.{advice}")


def _show(manifest: dict[str, Any], source: Source, *, as_json: bool) -> None:
    """Print what was prepared, beside published counts where there are any."""
    from ncfbench.data.content import cautions
    from ncfbench.reporting.views.run import statistics_table

    statistics = manifest["statistics"]
    for caution in cautions(manifest):
        say(f"Warning: {caution}")
    if as_json:
        print_json(manifest)
        return
    label = [f"{manifest['label']}."] if manifest.get("label") else []
    table = statistics_table(manifest["name"], statistics, source.counts, source.counted_by)
    print_views(*label, table, f"Fingerprint {manifest['fingerprint'][:12]}")


def _embed(checkpoint: Path, texts: Texts) -> tuple[Float32, float]:
    from ncfbench.models.embedding import embed_texts

    return embed_texts(checkpoint, texts, progress=progress_bar(quiet=False))


def _download_bar() -> DownloadBar:
    from ncfbench.cli.download import DownloadBar
    from ncfbench.reporting.render.terminal import make_console

    return DownloadBar(make_console(stderr=True))
