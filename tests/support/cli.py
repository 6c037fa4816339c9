"""The command line, called in this process."""

import typer
from typer.testing import CliRunner

from ncfbench.cli import app


def invoke(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def parse(words):
    """Fail unless a command, its arguments and its flags are there."""
    command = typer.main.get_command(app)
    context = typer.Context(command)
    name, *left = words
    command = command.get_command(context, name)
    if name == "prepare":
        _, command, left = command.resolve_command(context, left)
    command.make_context(name, list(left), parent=context)


def check(result, code, *words):
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    flat = " ".join(result.output.split())
    for word in words:
        assert word in flat
