"""Tables of everything a user can choose, and which samplers go with which losses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ncfbench.catalog import (
    BUILT_IN,
    LOSSES,
    SAMPLERS,
    find,
    find_loss,
    find_sampler,
    losses_for,
    registered,
)
from ncfbench.data.sources import SOURCES, how_to_prepare
from ncfbench.data.store import read_manifest
from ncfbench.errors import DataError, NcfbenchError, UsageError
from ncfbench.reporting.table import Column, Header, Table, text_column
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
        "samplers": {name: _sampler(name) for name in (*SAMPLERS, *registered("sampler"))},
        "losses": {name: _loss(name) for name in (*LOSSES, *registered("loss"))},
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
    samplers = [
        [name, entry["title"], entry["summary"], *(_goes_with(entry, loss) for loss in LOSSES)]
        for name, entry in found["samplers"].items()
    ]
    losses = [
        [name, entry["title"], entry["summary"], entry["family"]]
        for name, entry in found["losses"].items()
    ]
    encoders, user_towers, interactions = (
        [[name, entry["title"], entry["summary"]] for name, entry in found[kind].items()]
        for kind in ("encoders", "user_towers", "interactions")
    )
    datasets = [[name, entry["summary"]] for name, entry in found["datasets"].items()]
    does, is_ = text_column("what it does"), text_column("what it is")
    titled: Header = ["name", Column("in tables", "left")]
    return [
        Table(
            "Samplers (--sampler)",
            [*titled, does, *(Column(loss, "left") for loss in LOSSES)],
            samplers,
            ["by user: with --strata user. A plug-in's losses go by family."],
        ),
        Table("Losses (--loss)", [*titled, is_, Column("family", "left")], losses),
        Table("Encoders (--encoder), for every sampler and loss", [*titled, is_], encoders),
        Table("User towers (--user-tower)", [*titled, is_], user_towers),
        Table("Interactions (--interaction)", [*titled, is_], interactions),
        Table("Data sets (--dataset)", ["name", is_], datasets),
        Table(
            "Noise distributions (--noise), for every sampler and loss",
            ["name", is_],
            found["noise"].items(),
            ["Name a plug-in as package.module:Class."],
        ),
    ]


def _unloaded(kind: Kind) -> dict[str, Any]:
    """Return the choices of a kind by what built-in ones declare and where plug-ins are."""
    built_in = {
        name: {"title": found.title, "summary": found.summary}
        for name in BUILT_IN[kind]
        for found in [find(kind, name)]
    }
    plugins = {
        name: {"title": "", "summary": f"plug-in {path}"} for name, path in registered(kind).items()
    }
    return built_in | plugins


def _goes_with(entry: dict[str, Any], loss: str) -> str:
    if loss in entry["losses"]:
        return "yes"
    return "by user" if loss in entry["losses_with_strata_by_user"] else "-"


def _sampler(name: str) -> dict[str, Any]:
    try:
        sampler = find_sampler(name)
    except NcfbenchError as error:
        return {**_broken(error), "losses": [], "losses_with_strata_by_user": []}
    return {
        "title": sampler.title,
        "summary": sampler.summary,
        "losses": losses_for(sampler),
        "losses_with_strata_by_user": losses_for(sampler.with_strata("user"))
        if sampler.reads("stratum_size")
        else [],
    }


def _loss(name: str) -> dict[str, Any]:
    try:
        loss = find_loss(name)
    except NcfbenchError as error:
        return {**_broken(error), "family": ""}
    return {"title": loss.title, "summary": loss.summary, "family": loss.family}


def _broken(error: NcfbenchError) -> dict[str, Any]:
    return {"title": "", "summary": f"broken plug-in: {error}"}


def _prepared(data_dir: Path) -> dict[str, Any]:
    """Return the data sets that are prepared in a folder."""
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
