"""Tables of everything a user can choose, and which samplers go with which losses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ncfbench.catalog import BUILT_IN, LOSSES, SamplerInfo, find, losses_for, registered
from ncfbench.data.sources import SOURCES, how_to_prepare
from ncfbench.data.store import read_manifest
from ncfbench.errors import DataError, NcfbenchError, UsageError
from ncfbench.reporting.table import Col, Table
from ncfbench.settings import Kind

NOISES = {
    "unigram": "P_n proportional to an item's training links (exponent 1)",
    "uniform": "every item in use alike (exponent 0)",
    "EXPONENT": "P_n proportional to the training links to this power, such as 0.75",
}


def entries(data_dir: Path) -> dict[str, Any]:
    """Return names and summaries by kind.

    Samplers and losses of plug-ins are loaded; a broken one says so in its summary. Parts of models
    are not, since loading one starts JAX.
    """
    return {
        "samplers": _loaded("sampler", _losses, {"losses": [], "losses_with_strata_by_user": []}),
        "losses": _loaded("loss", lambda loss: {"family": loss.family}, {"family": ""}),
        "encoders": _unloaded("encoder"),
        "user_towers": _unloaded("user_tower"),
        "interactions": _unloaded("interaction"),
        "noise": dict(NOISES),
        "datasets": {
            **{
                name: {"summary": f"{source.summary} {how_to_prepare(name)}", "prepared": False}
                for name, source in SOURCES.items()
            },
            **_prepared(data_dir),
        },
    }


def catalogue_tables(found: dict[str, Any]) -> list[Table]:
    """Return a table for each kind."""

    def column(heading: str, key: str, *, wraps: bool = False) -> Col:
        return Col(heading, lambda item: item[1][key], align="left", wraps=wraps)

    name, is_ = Col("name", 0), column("what it is", "summary", wraps=True)
    titled = [name, column("in tables", "title")]
    losses = [Col(loss, partial(_goes_with, loss), align="left") for loss in LOSSES]
    kinds = {kind: entries.items() for kind, entries in found.items()}
    return [
        Table.of(
            "Samplers (--sampler)",
            [name, column("what it does", "summary", wraps=True), *losses],
            kinds["samplers"],
            ["by user: with --strata user. A plug-in's losses go by family."],
        ),
        Table.of("Losses (--loss)", [*titled, is_, column("family", "family")], kinds["losses"]),
        Table.of(
            "Encoders (--encoder), for every sampler and loss", [*titled, is_], kinds["encoders"]
        ),
        Table.of("User towers (--user-tower)", [*titled, is_], kinds["user_towers"]),
        Table.of("Interactions (--interaction)", [*titled, is_], kinds["interactions"]),
        Table.of("Data sets (--dataset)", [name, is_], kinds["datasets"]),
        Table.of(
            "Noise distributions (--noise), for every sampler and loss",
            [name, Col("what it is", 1, wraps=True)],
            kinds["noise"],
            ["Name a plug-in as package.module:Class."],
        ),
    ]


def _unloaded(kind: Kind) -> dict[str, Any]:
    """Return the choices of a kind by what built-in ones declare and where plug-ins are."""
    infos = {name: find(kind, name) for name in BUILT_IN[kind]}
    return {
        name: {"title": info.title, "summary": info.summary} for name, info in infos.items()
    } | {
        name: {"title": "", "summary": f"plug-in {path}"} for name, path in registered(kind).items()
    }


def _goes_with(loss: str, item: tuple[str, dict[str, Any]]) -> str:
    entry = item[1]
    if loss in entry["losses"]:
        return "yes"
    return "by user" if loss in entry["losses_with_strata_by_user"] else "-"


def _loaded(
    kind: Kind, own: Callable[[Any], dict[str, Any]], broken: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the choices of a kind, with what it has of its own; a broken one has other values."""
    found: dict[str, Any] = {}
    for name in (*BUILT_IN[kind], *registered(kind)):
        try:
            info = find(kind, name)
            found[name] = {"title": info.title, "summary": info.summary, **own(info)}
        except NcfbenchError as error:
            found[name] = {"title": "", "summary": f"broken plug-in: {error}", **broken}
    return found


def _losses(sampler: SamplerInfo) -> dict[str, Any]:
    by_user = losses_for(sampler.with_strata("user")) if sampler.reads("stratum_size") else []
    return {"losses": losses_for(sampler), "losses_with_strata_by_user": by_user}


def _prepared(data_dir: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for folder in sorted(path for path in data_dir.glob("*") if path.is_dir()):
        try:
            manifest = read_manifest(data_dir, folder.name)
        except DataError as error:
            found[folder.name] = {"summary": str(error), "prepared": False}
            continue
        except UsageError:  # a folder whose name no data set can have
            continue
        if manifest:
            counts = manifest["statistics"]
            label = manifest.get("label") or manifest["source"]
            summary = (
                f"{counts['users']:,} users, {counts['items']:,} items, {counts['links']:,} links"
                f" ({label})"
            )
            found[folder.name] = {"summary": summary, "prepared": True}
    return found
