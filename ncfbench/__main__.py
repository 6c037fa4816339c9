"""``python -m ncfbench``."""

from ncfbench.cli import main

main()
