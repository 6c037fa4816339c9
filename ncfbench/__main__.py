"""``python -m ncfbench``, and the ``ncfbench`` command."""

from __future__ import annotations

import sys

from ncfbench.timing import allocator

TIMED = {"run", "sweep", "advise", "audit", "profile", "doctor"}
"""Commands that measure times or describe what they depend on, so they choose an allocator."""


def main() -> None:
    """Start again with another allocator where it pays, then read the command line."""
    if TIMED.intersection(sys.argv[1:2]) and not {"-h", "--help"}.intersection(sys.argv):
        from ncfbench.errors import NcfbenchError

        try:
            allocator.restart()
        except NcfbenchError as error:
            from ncfbench.cli.output import say

            say(f"Error: {error}")
            raise SystemExit(error.exit_code) from error
    from ncfbench import cli

    cli.main()


if __name__ == "__main__":
    main()
