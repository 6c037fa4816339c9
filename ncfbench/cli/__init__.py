"""The command line: parse, call one plain function, print. Heavy imports wait for a command."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ncfbench import __version__
from ncfbench.cli import (
    advise,
    audit,
    describe,
    doctor,
    export,
    failures,
    floor,
    lint,
    prepare,
    profile,
    race,
    report,
    run,
    settings,
    sweep,
)
from ncfbench.cli.options import SettingsCommand
from ncfbench.errors import CLOSED_PIPE_EXIT_CODE

EXIT_CODES = """Exit codes: 0 done; 2 usage or an impossible combination; 3 bad data;
4 a file is not the published one; 5 diverged; 6 a check failed, or a race has no answer;
7 nothing to report; 130 interrupted; 141 the reader of the output has gone."""


class _Commands(TyperGroup):
    """The commands, first those with which a user begins.

    What the system refuses, such as output to a full disk, ends in one sentence; a closed pipe in
    silence.
    """

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """See ``main`` of Click's commands."""
        failures.forget_unknown_size()
        try:
            try:
                return super().main(*args, **kwargs)
            finally:
                for stream in (sys.stdout, sys.stderr):
                    stream.flush()  # while a failure can still be reported
        except (OSError, SystemExit) as error:
            # Rich and Click end at a closed pipe with a code of their own, Rich without the pipe.
            cause = error.__context__ if isinstance(error, SystemExit) else error
            if isinstance(error, SystemExit) and isinstance(cause, BrokenPipeError):
                raise SystemExit(CLOSED_PIPE_EXIT_CODE) from None
            if not isinstance(cause, OSError):
                raise
            raise SystemExit(failures.report_system_error(cause)) from None

    def invoke(self, ctx: Any) -> Any:
        """See ``invoke`` of Click's commands, which has another code for a closed pipe."""
        try:
            return super().invoke(ctx)
        except OSError as error:
            raise typer.Exit(failures.report_system_error(error)) from None

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands in the order of help."""
        names = super().list_commands(ctx)
        return sorted(names, key=lambda name: {"prepare": 0, "advise": 1}.get(name, 2))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that is to run, and keep the words for advice that repeats them."""
        failures.typed[:] = args
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=_Commands,
    name="ncfbench",
    help=(
        "What to train a two-tower or content-based recommender with, to reach the quality that"
        " you need soonest on your data and machine, and whether to train at all.\n\nOn your own"
        " data: ncfbench prepare custom --links LINKS --items ITEMS, then ncfbench advise custom."
    ),
    epilog=EXIT_CODES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ncfbench {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options of the program itself."""


app.add_typer(prepare.prepare_app, name="prepare")
app.command("describe", cls=SettingsCommand)(describe.describe)
app.command("floor")(floor.floor)
app.command("advise")(advise.advise)
app.command("race")(race.race)
app.command("run", cls=SettingsCommand)(run.run)
app.command("settings")(settings.settings)
app.command("sweep")(sweep.sweep)
app.command("export")(export.export)
app.command("audit", cls=SettingsCommand)(audit.audit)
app.command("lint")(lint.lint)
app.command("profile", cls=SettingsCommand)(profile.profile)
app.command("doctor")(doctor.doctor)
app.command("report")(report.report)


def main() -> None:
    """The ``ncfbench`` command."""
    app()
