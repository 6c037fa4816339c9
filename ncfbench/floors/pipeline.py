"""The floors of a data set: fitted one after another, and kept beside it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ncfbench.config import Folder, Locations, complete
from ncfbench.data.store import Dataset, open_dataset
from ncfbench.errors import DataError, UsageError, nearest
from ncfbench.floors.kept import FILE, Row, columns_of, read
from ncfbench.floors.measure import WIDTHS, Case, lack, measure, refusal, settings_text
from ncfbench.floors.models import FLOORS
from ncfbench.storage import locks, tables
from ncfbench.storage.free_space import available_memory
from ncfbench.storage.schemas import FLOOR
from ncfbench.timing import environment

BUDGET_SECONDS = 600.0
IN_ORDER = ("popularity", "profile", "ease", "ials", "ridge")
"""The order of floors where time is short: those that rank known items best first."""


@dataclass(frozen=True)
class Floors:
    """The floors of a data set.

    Attributes:
        path: the table that keeps them.
        rows: rows of :data:`ncfbench.storage.schemas.FLOOR`.
        left_out: the reason of each floor that was not fitted, as the end of a sentence.
    """

    dataset: str
    fingerprint: str
    path: Path
    rows: Sequence[Row]
    left_out: dict[str, str]

    @property
    def missing(self) -> list[str]:
        """A sentence for each reason to leave floors out."""
        return _sentences(self.left_out)

    @property
    def notes(self) -> list[str]:
        """A sentence for each floor that read less than all of its content, and :attr:`missing`."""
        narrow = [
            f"{row['floor']} reads the {columns:,} heaviest columns of its content: with more it"
            " would take longer than its time, or more memory than was free."
            for row in self.rows
            if (columns := columns_of(row))
        ]
        return narrow + self.missing


def floor(
    dataset: str | Dataset | None = None,
    *,
    floors: Sequence[str] = (),
    penalty: float | None = None,
    budget_seconds: float = BUDGET_SECONDS,
    total_seconds: float = math.inf,
    again: bool = False,
    data_dir: Folder = None,
    say: Callable[[str], None] = print,
    show: Callable[[str], object] = lambda text: None,
) -> Floors:
    """Fit the floors of a data set and rank its held-out links, and keep what they reach.

    Each is kept as soon as it is done, in ``floors.parquet`` beside the data set. One that is kept
    for the same data, settings and machine is not fitted again. One that has too little time for
    all of its content reads the heaviest columns of it, as many as it has time for.

    Args:
        dataset: a prepared data set, or its name; by default ``citeulike``.
        floors: names of :data:`ncfbench.floors.models.FLOORS`; all by default.
        penalty: of the floors that have one; by default each one's best by validation.
        budget_seconds: that one floor may take.
        total_seconds: that all may take.
        again: fit floors that are kept, too.
        show: receives what is being done.

    Raises:
        DataError: the data set is not prepared, or its folder cannot be written.
        UsageError: an unknown floor, a penalty that cannot be, nothing to rank, or no floor that
            can be fitted.
    """
    names, began = _checked(floors, penalty), time.perf_counter()
    locations = Locations.of(data_dir)
    data = dataset
    if not isinstance(data, Dataset):
        name = complete({"dataset": data} if data else {}).dataset
        data = open_dataset(name, data_dir=locations.data_dir, say=say)
    name = data.name
    if not len(data.links("test")[0]):
        raise UsageError(
            f"{name} has no test links, and floors rank these. {data.advise_hold_out('test')}"
        )
    path, host = locations.data_dir / name / FILE, environment.host_key()
    wide = {
        (row["floor"], columns_of(row)): row
        for row in _read(path, data.fingerprint, say)
        if row["settings"] == settings_text(FLOORS[row["floor"]], penalty, data, columns_of(row))
        and row["environment_key"] == host
        and not again
    }
    kept = {name: row for (name, columns), row in wide.items() if columns is None}
    missing = [each for each in names if each not in kept]
    left_out = {each: why for each in missing if (why := lack(data, each)) is not None}
    able = [each for each in missing if each not in left_out]
    case: Case | None = None
    for each in able:
        if case is None:
            show("reading links and content")
            needs_content = any(FLOORS[other].needs_content for other in able)
            case = Case.of(data, available_memory(), needs_content=needs_content)
        try:
            left = min(budget_seconds, total_seconds + began - time.perf_counter())
            reason = None
            fits = case.within(each, penalty, left)
            least = 0 if fits is None else fits.columns or math.inf
            wider = (wide.get((each, columns)) for columns in WIDTHS if columns >= least)
            if (row := next(filter(None, wider), None)) is not None:
                kept[each] = row
            elif fits is None:
                reason = refusal(case, each, penalty, left)
            else:
                kept[each] = measure(fits, each, penalty, show) | {"environment_key": host}
                _keep(path, kept[each], say)
        except UsageError as error:
            reason = str(error)
        except MemoryError:
            reason = "it needs more memory than is free."
        if reason is not None:
            left_out[each] = reason
    rows = [kept[each] for each in names if each in kept]
    if not rows:
        raise UsageError(" ".join(_sentences(left_out)))
    return Floors(name, data.fingerprint, path, rows, left_out)


def fit_within(
    data: Dataset,
    seconds: float,
    data_dir: Folder = None,
    say: Callable[[str], None] = print,
    show: Callable[[str], object] = lambda text: None,
) -> Floors | None:
    """Fit those floors of a data set that have time and are not kept; None where it can have none.

    Raises:
        DataError, UsageError: see :func:`floor`.
    """
    names = [name for name in IN_ORDER if lack(data, name) is None]
    if not names or not data.holds_out("test"):
        return None
    return floor(data, floors=names, total_seconds=seconds, data_dir=data_dir, say=say, show=show)


def _sentences(left_out: Mapping[str, str]) -> list[str]:
    names = {
        reason: ", ".join(name for name in left_out if left_out[name] == reason)
        for reason in left_out.values()
    }
    return [f"No {alike}: {reason}" for reason, alike in names.items()]


def _checked(floors: Sequence[str], penalty: float | None) -> list[str]:
    """Return the floors to fit, each once."""
    for name in floors:
        if name not in FLOORS:
            raise UsageError(
                f"There is no floor {name!r}{nearest(name, FLOORS)} Valid: {', '.join(FLOORS)}."
            )
    names = [*dict.fromkeys(floors)] or [*FLOORS]
    if penalty is not None and not (math.isfinite(penalty) and penalty > 0):
        raise UsageError(f"--penalty {penalty:g}: it must be above 0.")
    if penalty is not None and not any(FLOORS[name].penalties for name in names):
        raise UsageError(f"--penalty has no meaning for {' and '.join(names)}: leave it out.")
    return names


def _read(path: Path, fingerprint: str, say: Callable[[str], None]) -> list[Row]:
    """Return the kept rows of all settings; a damaged table is made again."""
    try:
        return [row for row in read(path.parent, fingerprint) if row["floor"] in FLOORS]
    except DataError as error:
        say(f"Warning: {error} The floors are fitted again.")
        return []


def _keep(path: Path, row: Row, say: Callable[[str], None]) -> None:
    """Add a row to the kept ones of the same data, in place of that of its floor and settings."""
    with locks.held(path.parent, "keeping floors in", wait=say):
        others = [
            other
            for other in _read(path, row["data_fingerprint"], say)
            if (other["floor"], other["settings"]) != (row["floor"], row["settings"])
        ]
        order = [*FLOORS].index
        rows = sorted([*others, row], key=lambda kept: order(kept["floor"]))
        tables.write_rows(path, rows, FLOOR)
