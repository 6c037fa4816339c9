"""``python -m ncfbench``, and the ``ncfbench`` command."""

from __future__ import annotations

import os
import sys

from ncfbench.timing import allocator

TIMED = {"run", "sweep", "advise", "audit", "profile", "floor", "doctor"}
"""Commands that measure times or describe what they depend on."""


def main() -> None:
    """Run the program, so that Ctrl-C ends it with its own exit code from the start."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed: a file would get its number
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))
    try:
        start()
    except KeyboardInterrupt:  # while a command is imported; later its own handlers answer
        from ncfbench.errors import INTERRUPTED_EXIT_CODE

        print("Interrupted.", file=sys.stderr)
        raise SystemExit(INTERRUPTED_EXIT_CODE) from None


def start() -> None:
    """Start again with jemalloc where it pays and is installed, then read the command line."""
    if TIMED.intersection(sys.argv[1:2]) and not {"-h", "--help"}.intersection(sys.argv):
        allocator.restart()
    from ncfbench import cli

    cli.main()


if __name__ == "__main__":
    main()
