"""The files of MIND: where they lie, and their lines, as they are published."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ncfbench.data.readers.files import Member, find_members
from ncfbench.errors import DataError, UsageError, shown

HOW_TO_GET = (
    "MIND is not downloaded for you: its licence (Microsoft Research License Terms) is yours to"
    " accept, at https://msnews.github.io. Get MINDsmall_train.zip and MINDsmall_dev.zip there, or"
    " those of MINDlarge, into one folder, and run: ncfbench prepare mind --from FOLDER"
)
NEWS, BEHAVIORS = "news.tsv", "behaviors.tsv"
FIELDS = {NEWS: 8, BEHAVIORS: 5}
TEXT_PARTS = ("title", "abstract", "category", "subcategory")
_FIELD_OF = {"category": 1, "subcategory": 2, "title": 3, "abstract": 4}
PARTS = ("train", "dev")
"""Parts with clicks."""
LONGEST_ID = 100
"""Characters that an id may have; real ids are far shorter."""
_PART = re.compile(r"(?:(MIND[A-Za-z]+)_)?(train|dev|test)(?:\.zip)?")


def find_parts(
    folder: Path, wanted: Sequence[str] | None, say: Callable[[str], None]
) -> dict[str, dict[str, Member]]:
    """Return the two files of each part, ``train`` before ``dev``; files in the folder itself are a
    part with an empty name.

    Raises:
        DataError: a wanted part or one of its files is missing, or the parts are of several sizes.
        UsageError: parts are wanted of a folder that holds the files themselves.
    """
    if not folder.exists():
        raise DataError(f"{folder} does not exist. {HOW_TO_GET}")
    direct = find_members(folder, tuple(FIELDS))
    paths = list(folder.iterdir()) if folder.is_dir() else []
    homes: dict[str, Path] = {}
    sizes = set()
    # Folders first: an unpacked part is preferred to its archive.
    for path in sorted(paths, key=lambda path: (path.is_file(), path.name)):
        match = _PART.fullmatch(path.name)
        if match and (path.is_dir() or path.suffix == ".zip"):
            homes.setdefault(match[2], path)
            sizes.add(match[1])
    named = ", ".join(sorted(home.name for home in homes.values()))
    if direct and homes:
        raise DataError(
            f"{folder} holds {next(iter(direct))} and also {named}. Give one of them to --from, or"
            " a folder of parts only."
        )
    if direct:
        if wanted is not None:
            raise UsageError(
                f"{folder} has no parts to choose from: it holds {next(iter(direct))} itself."
            )
        return {"": _complete(folder, direct)}
    if len(sizes) > 1:
        raise DataError(
            f"{folder} holds parts of several data sets: {named}. Give each a folder of its own."
        )
    if "test" in homes:
        say(f"Left out: {homes['test'].name} is published without clicks.")
    for part in wanted or ():
        if part not in homes:
            raise DataError(f"{folder} has no part {part!r}; it has {named or 'none'}.")
    chosen = [part for part in PARTS if part in (wanted or homes)]
    if not chosen:
        raise DataError(
            f"{folder} holds neither {NEWS} and {BEHAVIORS} nor a part such as MINDsmall_train."
            f" {HOW_TO_GET}"
        )
    return {
        part: _complete(homes[part], find_members(homes[part], tuple(FIELDS))) for part in chosen
    }


def _complete(home: Path, files: dict[str, Member]) -> dict[str, Member]:
    for name in FIELDS:
        if name not in files:
            raise DataError(f"{name} is missing in {shown(home)}.")
    return files


def read_news(file: Member, text: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the id and the parts of the text of each line of news.tsv; a DataError names a line."""
    columns = [_FIELD_OF[part] for part in text]
    for where, fields in _rows(file, NEWS):
        yield _id(fields[0], where, "news"), [fields[column] for column in columns]


def read_clicks(file: Member, *, history: bool) -> Iterator[tuple[str, list[str]]]:
    """Yield the user of each line of behaviors.tsv and the news clicked there, with ``history``
    also those clicked before; a DataError names a line.
    """
    for where, (_, user, _, before, impressions) in _rows(file, BEHAVIORS):
        clicked = before.split() if history else []
        shown = impressions.split()
        if not shown:
            raise DataError(f"{where}: no impression.")
        for impression in shown:
            id_, _, mark = impression.rpartition("-")
            if mark == "1" and id_:
                clicked.append(id_)
            elif mark != "0" or not id_:
                raise DataError(
                    f"{where}: impression {impression[:40]!r} does not end in -0 or -1. (MIND's"
                    " test part is published without these marks.)"
                )
        yield _id(user, where, "user"), clicked


def _rows(file: Member, kind: str) -> Iterator[tuple[str, list[str]]]:
    """Yield where each line stands, for messages, and its fields; quotes are plain characters."""
    for number, line in enumerate(file.lines(), start=1):
        fields = line.rstrip("\r\n").split("\t")
        where = f"{file.path}, line {number}"
        if len(fields) != FIELDS[kind]:
            raise DataError(
                f"{where}: {len(fields)} fields, separated by tabs, where {kind} has"
                f" {FIELDS[kind]}. Is the file truncated?"
            )
        yield where, fields


def _id(text: str, where: str, what: str) -> str:
    if text.split() != [text] or len(text) > LONGEST_ID:
        raise DataError(f"{where}: {text[:40]!r} is no {what} id.")
    return text
