"""``ncfbench lint``: what is wrong with a loss of the user's own."""

from __future__ import annotations

import ast
from typing import Annotated, Any

import typer

from ncfbench.cli import options
from ncfbench.cli.failures import reporting
from ncfbench.cli.options import option
from ncfbench.cli.output import print_json, print_views, progress_bar
from ncfbench.config import split_assignment
from ncfbench.errors import CheckFailedError


def _show_rules(wanted: bool) -> None:
    from ncfbench.linting.tables import rules_table

    if wanted:
        print_views(rules_table())
        raise typer.Exit


@reporting
def lint(
    loss: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:NAME", help="A function, a class or an object: my_losses:loss."
        ),
    ],
    batch_size: Annotated[int, typer.Option(help="Links in a batch.")] = 64,
    accept: Annotated[
        str,
        option(metavar="CODE[,CODE]", help="Findings that are meant to be, such as missing-logq."),
    ] = "",
    set_: Annotated[
        list[str] | None,
        option("--set", metavar="NAME=VALUE", help="An argument of the loss."),
    ] = None,
    rules: Annotated[
        bool,
        typer.Option(
            "--rules", callback=_show_rules, is_eager=True, help="List all findings, and end."
        ),
    ] = False,
    quiet: options.Quiet = False,
    json_: options.Json = False,
) -> None:
    """Find faults in a loss of your own, in PyTorch or JAX.

    Judges it by what a change of one score does to its gradient: which objective it has, which of
    its negatives are positives, which corrections, masks and options are wrong, and whether it does
    what a right loss must: pull each positive, as hard as it pushes the others, on one scale. Its
    arguments are recognised by their names; a row of the answer says as what. Ends with exit code 6
    if something is wrong.

    ncfbench lint my_losses:loss --batch-size 1024
    """
    from ncfbench.linting.lint import lint_loss
    from ncfbench.linting.tables import lint_tables

    result = lint_loss(
        loss,
        batch_size=batch_size,
        accept=options.names(accept),
        options_=dict(map(_assignment, set_ or ())),
        progress=progress_bar(quiet=quiet),
    )
    print_json(result.as_json()) if json_ else print_views(*lint_tables(result))
    if result.errors:
        codes = ", ".join(dict.fromkeys(finding.code for finding in result.errors))
        raise CheckFailedError(f"{loss} has faults: {codes}.")


def _assignment(text: str) -> tuple[str, Any]:
    """Return the name and the value of ``--set NAME=VALUE``, as Python reads it, or as text."""
    name, value = split_assignment(text, "margin=0.5")
    try:
        return name, ast.literal_eval(value)
    except (SyntaxError, ValueError):
        return name, value
