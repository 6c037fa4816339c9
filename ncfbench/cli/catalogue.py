"""``ncfbench list``: everything that a user can choose."""

from __future__ import annotations

from ncfbench.cli import options
from ncfbench.cli.output import print_json, print_views, reporting
from ncfbench.config import Locations


@reporting
def catalogue(data_dir: options.DataDir = None, json_: options.Json = False) -> None:
    """List samplers, losses, encoders, noise distributions and data sets."""
    from ncfbench.reporting.views.catalogue import catalogue_tables, entries

    found = entries(Locations.of(data_dir).data_dir)
    if json_:
        print_json(found)
    else:
        print_views(*catalogue_tables(found))
