"""A file in a folder or in a zip archive, read as a stream: archives are not unpacked."""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from ncfbench.data.published import PIECE
from ncfbench.data.readers.lines import decoded
from ncfbench.errors import DataError, reason

_NOT_ZIP = (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError)
"""What :mod:`zipfile` raises on a damaged, encrypted or unusually compressed archive."""


@dataclass(frozen=True)
class Member:
    """One file.

    Args:
        home: a folder or a zip archive.
        name: of the file in it, with the folders that an archive has around it.
    """

    home: Path
    name: str

    @property
    def path(self) -> Path:
        """What messages call it; of an archive's member ``archive.zip/name``."""
        return self.home / self.name

    def lines(self) -> Iterator[str]:
        """Its lines with their ends; see :func:`ncfbench.data.readers.lines.read_lines`.

        Raises:
            DataError: it cannot be read, is damaged or empty, or a line is not UTF-8.
        """
        with self._open() as file:
            yield from decoded(file, self.path)

    def sha256(self) -> str:
        """SHA-256 of its content, hexadecimal: the same in a folder and in an archive."""
        digest = hashlib.sha256()
        with self._open() as file:
            while piece := file.read(PIECE):
                digest.update(piece)
        return digest.hexdigest()

    @contextmanager
    def _open(self) -> Iterator[BinaryIO]:
        try:
            if self.home.is_dir():
                with self.path.open("rb") as file:
                    yield file
            else:
                with zipfile.ZipFile(self.home) as archive, archive.open(self.name) as member:
                    yield cast(BinaryIO, member)
        except OSError as error:
            raise DataError(f"Cannot read {self.path}: {reason(error)}.") from error
        except _NOT_ZIP as error:
            raise DataError(
                f"Cannot read {self.path}: {reason(error)}. Is the archive whole?"
            ) from error


def find_members(home: Path, names: tuple[str, ...]) -> dict[str, Member]:
    """The named files in a folder, or in a zip archive in whichever folder of it, as far as they
    are there.

    Raises:
        DataError: a damaged archive, or one that has a file twice.
    """
    if home.is_dir():
        return {name: Member(home, name) for name in names if (home / name).exists()}
    try:
        with zipfile.ZipFile(home) as archive:
            inside = [name for name in archive.namelist() if not name.startswith("__MACOSX/")]
    except OSError as error:
        raise DataError(f"Cannot read {home}: {reason(error)}.") from error
    except _NOT_ZIP as error:
        raise DataError(
            f"Cannot read {home}: {reason(error)}. Is it a whole zip archive?"
        ) from error
    found = {}
    for name in names:
        places = [place for place in inside if place.rsplit("/", 1)[-1] == name]
        if len(places) > 1:
            raise DataError(f"{home} has {name} more than once: {', '.join(places[:3])}.")
        if places:
            found[name] = Member(home, places[0])
    return found
