"""``ncfbench list``: what there is to choose from."""

from __future__ import annotations

from ncfbench.cli import options
from ncfbench.cli.output import print_json, print_views, reporting
from ncfbench.config import resolve


@reporting
def catalogue(data_dir: options.DataDir = None, json_: options.Json = False) -> None:
    """List samplers, losses, encoders, noise distributions and data sets, and which of them go
    together.
    """
    from ncfbench.report.catalogue import catalogue_view, entries

    _, places = resolve({"data_dir": data_dir})
    found = entries(places.data_dir)
    if json_:
        print_json(found)
    else:
        print_views(catalogue_view(found))
