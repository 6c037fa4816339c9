"""``ncfbench settings``: the settings of a run, for ``--set``."""

from __future__ import annotations

from typing import Annotated

import typer

from ncfbench.cli import options
from ncfbench.cli.failures import reporting
from ncfbench.cli.output import print_json, print_views
from ncfbench.config import all_settings, setting_facts
from ncfbench.errors import UsageError, refusal
from ncfbench.settings import PANELS


@reporting
def settings(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="One setting.", show_default="all settings"),
    ] = None,
    json_: options.Json = False,
) -> None:
    """List the settings of a run: defaults, valid values, and who reads them.

    Each is given as --set NAME=VALUE, in a file of --config, or as a key of a sweep. "Tried" are
    the values that `ncfbench advise` tries by default. A setting that names readers changes the
    runs of these alone. Those of plug-ins stand in their own records.

    Example: ncfbench settings stratum_size
    """
    known = all_settings()
    wanted = None if name is None else name.replace("-", "_")
    if wanted is not None and wanted not in known:
        raise UsageError(refusal("Unknown setting", wanted, known))
    chosen = list(known.values()) if wanted is None else [known[wanted]]
    if json_:
        print_json({setting.name: setting_facts(setting) for setting in chosen})
        return
    from ncfbench.reporting.table import Col, Table

    name_, *facts = setting_facts(chosen[0])
    cols = [Col(name_, name_), *(Col(fact, fact, wraps=True) for fact in facts)]
    for panel in PANELS:
        rows = [setting_facts(setting) for setting in chosen if setting.panel == panel]
        if rows:
            print_views(Table.of(panel, cols, rows, name=panel.lower()))
