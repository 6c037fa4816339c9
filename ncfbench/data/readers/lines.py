"""Text files read line by line: in UTF-8, whatever their line ends, and never a line longer than
memory is meant for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from ncfbench.errors import DataError, reason

MOST_BYTES = 2**24
"""Of a line; no real text is so long, and what claims to be would fill the memory."""


def read_lines(path: Path, on_invalid: Callable[[int], object] | None = None) -> Iterator[str]:
    """The lines of a file with their ends, without a byte order mark.

    Args:
        on_invalid: told the number of each line that is not UTF-8, of which U+FFFD then stands for
            what cannot be read; None to refuse it.

    Raises:
        DataError: it cannot be read, holds nothing, or a line is not UTF-8 or longer than
            :data:`MOST_BYTES`.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise DataError(f"Cannot read {path}: {reason(error)}.") from error
    with file:
        yield from decoded(file, path, on_invalid=on_invalid)


def decoded(
    file: BinaryIO,
    path: Path,
    encoding: str = "utf-8",
    on_invalid: Callable[[int], object] | None = None,
) -> Iterator[str]:
    """The lines of an open file; see :func:`read_lines`. ``path`` is what messages call it."""
    number = 0
    while True:
        try:
            line = file.readline(MOST_BYTES + 1)
        except (OSError, EOFError) as error:
            raise DataError(f"Cannot read {path} after line {number}: {reason(error)}.") from error
        if not line:
            break
        number += 1
        if len(line) > MOST_BYTES:
            raise DataError(
                f"{path}, line {number}: longer than {MOST_BYTES // 2**20} MiB. Is this a text"
                " file?"
            )
        if number == 1 and line.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise DataError(
                f"{path}, line 1: this is UTF-16. Convert it: iconv -f UTF-16 -t UTF-8 {path.name}"
                " > new."
            )
        try:
            text = line.decode(encoding)
        except UnicodeDecodeError as error:
            if on_invalid is None:
                name = "UTF-8" if encoding == "utf-8" else encoding
                raise DataError(
                    f"{path}, line {number}: byte 0x{line[error.start]:02x} is not valid {name}."
                ) from error
            on_invalid(number)
            text = line.decode(encoding, errors="replace")
        yield text.removeprefix("\ufeff") if number == 1 else text
    if not number:
        raise DataError(f"{path} is empty.")


def read_lists(path: Path, limit: int, what: str) -> Iterator[list[int]]:
    """Parse lines of ``count id id ...`` with ids in 0..limit-1, one list a line.

    Raises:
        DataError: no id at all, a malformed number, a count that does not match (a truncated line),
            an id out of range.
    """
    named = False
    for number, line in enumerate(read_lines(path), start=1):
        try:
            count, *ids = [int(field) for field in line.split()]
        except ValueError:
            raise DataError(
                f"{path}, line {number}: expected whole numbers, a count and then {what} numbers."
            ) from None
        if count != len(ids):
            raise DataError(
                f"{path}, line {number}: says {count} {what}s and lists {len(ids)}. Is the file"
                " truncated?"
            )
        if ids and (min(ids) < 0 or max(ids) >= limit):
            outside = next(id_ for id_ in ids if not 0 <= id_ < limit)
            raise DataError(
                f"{path}, line {number}: {what} {outside} is outside 0..{limit - 1}. Is another"
                " file cut off?"
            )
        named |= bool(ids)
        yield ids
    if not named:
        raise DataError(f"{path} names no {what} at all.")
