"""``python -m ncfbench``, and the ``ncfbench`` command."""

from __future__ import annotations

import sys

from ncfbench.timing import allocator

TRAINING = {"run", "sweep", "audit", "profile"}
"""Commands that compute for long enough to be worth a second start with other memory settings."""


def main() -> None:
    """Start again with other memory settings where it pays, then read the command line."""
    if TRAINING.intersection(sys.argv[1:2]):
        allocator.reexec_with_tunables()
    from ncfbench import cli

    cli.main()


if __name__ == "__main__":
    main()
