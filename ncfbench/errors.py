"""Exceptions, each with its exit code.

Logic raises these; only :mod:`ncfbench.cli` prints them and exits.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Iterable
from pathlib import Path

INTERRUPTED_EXIT_CODE = 130
CLOSED_PIPE_EXIT_CODE = 141
"""Exit code, as of SIGPIPE, where the reader of the output has closed it: ``| head``."""


class NcfbenchError(Exception):
    """A failure with a message for the user: what happened, where, and what to do about it."""

    exit_code = 1


class UsageError(NcfbenchError):
    """An unknown name, a malformed value, or a combination that cannot work."""

    exit_code = 2


class TooFewTextsError(UsageError):
    """Texts, if any, have no more directions than features are asked for."""


class DataError(NcfbenchError):
    """Data that is missing, malformed or cannot be read or written."""

    exit_code = 3


class VerificationError(NcfbenchError):
    """A file is not the published one."""

    exit_code = 4


class DivergedError(NcfbenchError):
    """The loss or a parameter stopped being finite."""

    exit_code = 5


class CheckFailedError(NcfbenchError):
    """A check did not hold."""

    exit_code = 6


class NothingToReportError(NcfbenchError):
    """There is no finished run to report on."""

    exit_code = 7


class Interrupted(KeyboardInterrupt):
    """An interrupt of a run that was saved."""

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__(
            "" if folder is None else f"the run so far is in {folder}; it can be resumed"
        )
        self.folder = folder
        """Folder of the run; None in processes that write nothing."""


def reason(error: BaseException) -> str:
    """Return what an error says on one line, without a full stop, to put it into a sentence."""
    text = str(getattr(error, "strerror", None) or error).strip() or type(error).__name__
    return text.splitlines()[0].rstrip(". ")


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message; XLA's messages have pages."""
    text = next(iter(str(error).splitlines()), "")[:300]
    return text if isinstance(error, NcfbenchError) else f"{type(error).__name__}: {text}"


def shown(path: Path) -> str:
    """Return a path for a sentence; one that ends with a full stop, as ``.`` does, is resolved."""
    return str(path.resolve() if str(path).endswith(".") else path)


def install_command(extra: str) -> str:
    """Return the command that installs an extra of this program, which no package index has."""
    folder = Path(__file__).resolve().parents[1]
    if (folder / "pyproject.toml").exists():
        return f"pip install {shlex.quote(f'{folder}[{extra}]')}"
    return f"pip install '.[{extra}]' in a checkout of ncfbench"


def nearest(name: str, valid: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` for the closest valid name, or a full stop.

    Where none is close, one that the name abbreviates counts: ``md`` stands for ``markdown``.
    """
    known = list(valid)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    if not close and len(name) > 1:
        letters = re.compile(".*".join(map(re.escape, name)), re.DOTALL)
        close = list(filter(letters.match, known))
    return f"; did you mean {close[0]!r}?" if close else "."


def refusal(what: str, name: str, valid: Iterable[str]) -> str:
    """Return ``what 'name'`` with the nearest valid name and all of them: why a name is refused."""
    known = list(valid)
    return f"{what} {name!r}{nearest(name, known)} Valid: {', '.join(known)}."


def either(names: Iterable[str], word: str = "or") -> str:
    """Return names as they stand in a sentence: ``neg, ns or strat-ns``."""
    *first, last = names
    return f"{', '.join(first)} {word} {last}" if first else last
