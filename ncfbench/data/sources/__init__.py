"""Sources of data: each is a module here and one entry of :data:`SOURCES`."""

from __future__ import annotations

import pkgutil
import shlex
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from ncfbench.data.options import as_flags, flags_of
from ncfbench.errors import UsageError, refusal

if TYPE_CHECKING:
    from ncfbench.data.content import Content


Progress: TypeAlias = Callable[[], AbstractContextManager[Any]]
"""Makes what shows a download; see :func:`ncfbench.data.prepare`."""


class Preparation(NamedTuple):
    """A data set to be stored.

    Args:
        origin: facts for the manifest. ``files``: facts of each, ``verified`` if it is a published
            one, ``name`` if it is the user's own. ``label``: shown by reports, for data that may be
            taken for others.
        options: options that decide the content; part of its fingerprint.
        read: makes the content.
    """

    origin: Mapping[str, Any]
    options: Mapping[str, Any]
    read: Callable[[], Content]


class SourceModule(Protocol):
    """The contract of a source's module."""

    Options: type[Any]
    """A subclass of :class:`ncfbench.data.options.SourceOptions`; its fields become the flags."""

    def plan(self, options: Any, *, say: Callable[[str], None], progress: Progress) -> Preparation:
        """Find the files, download them if need be, and verify them; do not parse them."""


@dataclass(frozen=True)
class Source:
    """A source of data.

    Args:
        module: name of a :class:`SourceModule`, or ``module:name`` of an object that is one;
            imported when the source is used.
        summary: one line for ``ncfbench prepare --help``.
        details: more for the help of the source's own command.
        needs: the flags without which nothing can be prepared.
        counts, counted_by: published counts, which ``prepare`` shows beside its own, and their
            heading.
    """

    module: str
    summary: str
    details: str = ""
    needs: str = ""
    counts: Mapping[str, float] = field(default_factory=dict)
    counted_by: str = ""

    def load(self) -> SourceModule:
        """Import the module, or what it defines."""
        loaded: SourceModule = pkgutil.resolve_name(self.module)
        return loaded


_DOWNLOADED = "Its files are downloaded at a pinned commit and verified by git blob id."
# fmt: off
SOURCES: dict[str, Source] = {
    "citeulike": Source(
        "ncfbench.data.sources.citeulike:CITEULIKE_A",
        "CiteULike-a: 5,551 users, 16,980 articles, 204,986 links, with titles, abstracts, tags.",
        _DOWNLOADED,
        counts={
            "users": 5551, "items": 16980, "links": 204986, "vocabulary": 23011,
            "words_max": 300, "words_min": 22, "words_mean": 194, "words_median": 186,
        },
        counted_by="paper",
    ),
    "citeulike-t": Source(
        "ncfbench.data.sources.citeulike:CITEULIKE_T",
        "CiteULike-t: 7,947 users, 25,975 articles, 134,860 links.",
        _DOWNLOADED,
        counts={"users": 7947, "items": 25975, "links": 134860},
        counted_by="published",
    ),
    "mind": Source(
        "ncfbench.data.sources.mind",
        "Microsoft News (MIND), a stand-in for the paper's Yahoo! News data, which is gone.",
        "Links are clicks. You have to get the files yourself: Microsoft asks you to accept a"
        " licence first.",
        needs="--from FOLDER",
    ),
    "synthetic": Source(
        "ncfbench.data.sources.synthetic",
        "Made-up data of any size: heavy-tailed links, and texts that predict cold items' links.",
    ),
    "custom": Source(
        "ncfbench.data.sources.custom",
        "Your own data: a file of links and a file of items.",
        "Columns with usual names are found, and the output names them. Ids are strings or whole"
        " numbers, and results use them.\n\nncfbench prepare custom --links ratings.csv --items"
        " movies.csv --rating-threshold 4",
        needs="--links LINKS.csv --items ITEMS.csv",
    ),
}
# fmt: on


def find_source(name: str, dataset: str | None = None) -> Source:
    """Return the source of a name; a UsageError if there is none, or if ``dataset``, the name for
    the data set, is that of another source, for which reports would take it.
    """
    if name not in SOURCES:
        raise UsageError(refusal("Unknown source", name, SOURCES))
    if dataset in SOURCES and dataset != name:
        raise UsageError(
            f"--name {dataset} is the name of a source, and these data come from {name}. Choose"
            f" another name, such as my-{dataset}."
        )
    return SOURCES[name]


def prepare_command(name: str, manifest: Mapping[str, Any]) -> str:
    """Return the command that prepares a data set again; FOLDER stands for that of the files.

    A comment names what only Python can have given.
    """
    source = str(manifest.get("source", name))
    words = ["ncfbench", "prepare", source] + ([] if name == source else ["--name", name])
    options, comment = flags_of(manifest["options"]), ""
    if source in SOURCES:
        kind = SOURCES[source].load().Options
        # What switches nothing on is not stored, and may not be the default any more.
        options |= {"lsa": 0} if kind.lsa and "lsa" not in options else {}
        usual = {field.name: field.default for field in fields(kind) if field.name in options}
        fixed = sorted(kind.fixed & usual.keys())
        given = [f"{field}={options[field]}" for field in fixed if options[field] != usual[field]]
        comment = f"  # from Python, with {', '.join(given)}" if given else ""
        options = {field: options[field] for field in options if field in usual.keys() - kind.fixed}
    words += as_flags(options | ({"embed": manifest["embed"]} if "embed" in manifest else {}))
    files = manifest.get("files", {})
    named = {role: file["name"] for role, file in files.items() if "name" in file}
    words += as_flags(named | {"tokenizer": (manifest.get("tokenizer") or {}).get("name")})
    verified = [file.get("verified") for role, file in files.items() if role not in named]
    words += [] if all(verified) else ["--from", "FOLDER"]
    # None, where nothing is published to verify a file by, needs no permission.
    words += ["--allow-unverified"] if False in verified else []
    return shlex.join(words) + comment


def how_to_prepare(name: str) -> str:
    """Return the command that prepares a data set of which only the name is known."""
    if name in SOURCES:
        return f"ncfbench prepare {name} {SOURCES[name].needs}".rstrip()
    return f"ncfbench prepare SOURCE --name {name} (sources: {', '.join(SOURCES)})"
