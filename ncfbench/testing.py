"""For a user's own tests: a loss must be what the lint expects."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any


def assert_no_findings(
    loss: Any,
    *,
    batch_size: int = 64,
    accept: Collection[str] = (),
    **options: Any,
) -> None:
    """Fail if ``ncfbench lint`` has an error to report; warnings and notes pass.

    Args:
        loss: a function, a class or an object; ``module:name`` works too.
        accept: codes of findings that are meant to be.
        options: values of the loss's own arguments.

    Raises:
        AssertionError: something is wrong; the message has a line for each finding.
    """
    from ncfbench.linting.lint import lint_loss

    lint = lint_loss(loss, batch_size=batch_size, accept=accept, options_=options)
    if lint.errors:
        lines = [f"{error.code}: {error.sentence} {error.fix}" for error in lint.errors]
        raise AssertionError("\n".join([f"{lint.name} is not what it is meant to be:", *lines]))
