"""Everything a user can choose, with one line each, and which samplers go with which losses.
Imports no JAX.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ncfbench.data.store import read_manifest
from ncfbench.errors import NcfbenchError
from ncfbench.registry import ENCODERS, LOSSES, SAMPLERS, find_loss, find_sampler, registered

NOISES = {
    "unigram": "P_n proportional to an item's training links (exponent 1)",
    "uniform": "every item in use alike (exponent 0)",
    "EXPONENT": "P_n proportional to the training links to this power, such as 0.75",
}
SOURCES = {
    "citeulike": "CiteULike-a: ncfbench prepare citeulike",
    "citeulike-t": "CiteULike-t, more users and articles: ncfbench prepare citeulike-t",
    "mind": (
        "Microsoft News, a stand-in for the paper's Yahoo! News data: ncfbench prepare mind --from"
        " FOLDER"
    ),
    "synthetic": "made-up data of any size: ncfbench prepare synthetic",
}


def entries(data_dir: Path) -> dict[str, Any]:
    """Names and summaries by kind. Registered plug-ins are loaded, and said to be broken where they
    are.
    """
    found: dict[str, Any] = {
        "samplers": {},
        "losses": {},
        "encoders": {},
        "noise": dict(NOISES),
        "datasets": {},
    }
    for name in (*SAMPLERS, *registered("sampler")):
        try:
            sampler = find_sampler(name)
        except NcfbenchError as error:
            found["samplers"][name] = {
                "summary": f"broken plug-in: {error}",
                "losses": [],
                "losses_with_strata_by_user": [],
            }
            continue
        found["samplers"][name] = {
            "summary": sampler.summary,
            "losses": [loss for loss, entry in LOSSES.items() if entry.family in sampler.families],
            "losses_with_strata_by_user": (
                [
                    loss
                    for loss, entry in LOSSES.items()
                    if entry.family in sampler.families_with("user")
                ]
                if sampler.uses_strata
                else []
            ),
        }
    for name in (*LOSSES, *registered("loss")):
        try:
            loss = find_loss(name)
        except NcfbenchError as error:
            found["losses"][name] = {"summary": f"broken plug-in: {error}", "family": ""}
            continue
        found["losses"][name] = {"summary": loss.summary, "family": loss.family}
    for name, encoder in ENCODERS.items():
        found["encoders"][name] = {"summary": encoder.summary}
    for name, path in registered("encoder").items():
        # Loading an encoder would start JAX.
        found["encoders"][name] = {"summary": f"plug-in {path}"}
    for name, summary in SOURCES.items():
        found["datasets"][name] = {"summary": summary, "prepared": False}
    for folder in sorted(path for path in data_dir.glob("*") if path.is_dir()):
        try:
            manifest = read_manifest(data_dir, folder.name)
        except NcfbenchError:
            continue
        if manifest:
            counts = manifest["statistics"]
            summary = (
                f"{counts['users']:,} users, {counts['items']:,} items, {counts['links']:,} links "
                f"({manifest.get('label') or manifest['source']})"
            )
            found["datasets"][folder.name] = {"summary": summary, "prepared": True}
    return found


def catalogue_view(found: dict[str, Any]) -> RenderableType:
    """The catalogue as tables."""
    tables: list[RenderableType] = []
    samplers = _table("Samplers (--sampler)", "what it does", *LOSSES)
    for name, entry in found["samplers"].items():
        marks = [
            (
                "yes"
                if loss in entry["losses"]
                else "by user"
                if loss in entry["losses_with_strata_by_user"]
                else "-"
            )
            for loss in LOSSES
        ]
        samplers.add_row(name, Text(entry["summary"]), *marks)
    tables += [
        samplers,
        Text("by user: with --strata user. A plug-in's losses go by family.", style="dim"),
        Text(""),
    ]
    losses = _table("Losses (--loss)", "what it is", "family")
    for name, entry in found["losses"].items():
        losses.add_row(name, Text(entry["summary"]), entry["family"])
    tables += [losses, Text("")]
    for title, kind in (
        ("Encoders (--encoder), for every sampler and loss", "encoders"),
        ("Data sets (--dataset)", "datasets"),
    ):
        table = _table(title, "what it is")
        for name, entry in found[kind].items():
            table.add_row(name, Text(entry["summary"]))
        tables += [table, Text("")]
    noise = _table("Noise distributions (--noise), for every sampler and loss", "what it is")
    for name, summary in found["noise"].items():
        noise.add_row(name, summary)
    tables += [
        noise,
        Text(
            "Anything of your own, as package.module:object: see the README on plug-ins.",
            style="dim",
        ),
    ]
    return Group(*tables)


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("name")
    for heading in headings:
        table.add_column(heading)
    return table
