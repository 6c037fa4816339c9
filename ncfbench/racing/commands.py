"""Commands that race, with the values of their parameters."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ncfbench.errors import UsageError

SEED = "seed"
RATES = ("lr", "learning_rate", "learning-rate")
"""Parameters by which the rule knows a learning rate: a smaller one starts later and ends lower."""
LONGEST_NAME = 60
"""Characters of a command in an arm's name."""
PATTERN = re.compile(r"[A-Za-z_][\w-]*")


@dataclass(frozen=True)
class Command:
    """A command, in which ``{name}`` stands for a parameter's value.

    Attributes:
        values: of its parameters.
    """

    name: str
    text: str
    values: Mapping[str, str] = field(default_factory=dict)

    def filled(self, seed: int = 0) -> str:
        """Return the command with the values of the parameters and of the seed in place."""
        command = self.text
        for name, value in {**self.values, SEED: str(seed)}.items():
            command = command.replace(f"{{{name}}}", value)
        return command

    def uses(self, name: str) -> bool:
        """Return whether a parameter, or the seed, stands in the command."""
        return f"{{{name}}}" in self.text

    @property
    def learning_rate(self) -> float:
        """Value of the first parameter of :data:`RATES`; 0 without one."""
        for name in RATES:
            try:
                return float(self.values[name])
            except (KeyError, ValueError):
                continue
        return 0.0


def make_commands(
    commands: Sequence[str],
    *,
    names: Sequence[str] = (),
    parameters: Mapping[str, Sequence[str]] | None = None,
) -> list[Command]:
    """Return a command for each text and each combination of the parameters' values.

    Args:
        names: of the commands, instead of their texts.
        parameters: values of each, of which all combinations race.

    Raises:
        UsageError: a value cannot be used, two arms have one name, or there is one arm only.
    """
    if len(names) > len(commands):
        raise UsageError(f"--name: {len(names)} names of {len(commands)} commands.")
    words = (" ".join(text.split()) for text in commands[len(names) :])
    cut = (f"{text[:LONGEST_NAME]}..." if len(text) > LONGEST_NAME else text for text in words)
    titles = [*names, *cut]
    begun = [Command(name, text) for name, text in zip(titles, commands, strict=True)]
    parameters = parameters or {}
    for name in parameters:
        if not PATTERN.fullmatch(name):
            raise UsageError(f"{name!r} is no name of a parameter: use letters, digits and _.")
        if name == SEED:
            raise UsageError(
                "No parameter is called seed: {seed} stands for repeats, whose number is --seeds."
            )
        if not any(arm.uses(name) for arm in begun):
            raise UsageError(
                f"{{{name}}} stands in no command: write it where the values of {name} belong."
            )
    is_named = len(begun) > 1 or bool(names) or not parameters
    arms = []
    for command, chosen in itertools.product(begun, itertools.product(*parameters.values())):
        values = dict(zip(parameters, chosen, strict=True))
        texts = [command.name] * is_named + [f"{name}={value}" for name, value in values.items()]
        arms.append(replace(command, name=" ".join(texts), values=values))
    twice = [name for name, count in Counter(arm.name for arm in arms).items() if count > 1]
    if twice:
        raise UsageError(f"Two arms are called {twice[0]!r}. Name commands with --name.")
    if len(arms) < 2:
        raise UsageError(
            "There is one arm, so there is no race. Give values to choose from, such as"
            " --try lr=1e-3,1e-2 with {lr} in the command, or several commands."
        )
    return arms
