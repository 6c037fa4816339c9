"""How many options the commands have, and values that several of them read alike."""

import pytest
import typer
from invoked import check, invoke

from ncfbench.cli import app

MOST_OPTIONS = 178
"""Options of all commands, without ``--help``. A command that loses some lowers this number."""


def count_options(command):
    """Return the options of a command and of those below it."""
    own = [each for each in command.params if each.param_type_name == "option"]
    below = [command.resolve_command(None, [name])[1] for name in getattr(command, "commands", {})]
    return len(own) + sum(map(count_options, below))


def test_the_commands_have_few_options():
    assert count_options(typer.main.get_command(app)) == MOST_OPTIONS


@pytest.mark.parametrize("value", ["1", "10"])
def test_a_bare_share_of_1_or_more_is_refused(value):
    words = "prepare custom --links a.csv --items b.csv --test-fraction"
    check(invoke(*words.split(), value), 2, value)
