"""``ncfbench doctor``: check whether times measured here can be trusted."""

from __future__ import annotations

import typer

from ncfbench.cli import options
from ncfbench.cli.failures import reporting
from ncfbench.cli.output import print_json, print_views, say
from ncfbench.errors import CheckFailedError


@reporting
def doctor(json_: options.Json = False) -> None:
    """Print the environment that times depend on, and warn of faults that would make them wrong.

    Runs keep the same description in environment.json, and `report` never divides times of
    different environments. The exit code is 6 if there is a warning.
    """
    from ncfbench.reporting.views.run import known_table
    from ncfbench.timing import allocator, environment
    from ncfbench.timing import doctor as doctors
    from ncfbench.timing.contention import OtherPrograms

    programs = OtherPrograms()
    described = environment.describe()
    warnings = list(doctors.warnings(described, programs.describe()))
    if json_:
        print_json({"environment": described, "warnings": warnings})
    else:
        print_views(known_table("Environment", described))
        if library := allocator.find_library():
            preload = f"env LD_PRELOAD={library} MALLOC_CONF={allocator.SETTINGS}"
            print_views(f"Start Python programs with jemalloc: {preload} python ...")
    for warning in warnings:
        say(f"Warning: {warning}")
    if warnings:
        raise typer.Exit(CheckFailedError.exit_code)
    if not json_:
        print_views("No warnings.")
