"""The floors of a data set: penalties chosen, fitted, measured on held-out links, and kept."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ncfbench.config import Folder, Locations, complete
from ncfbench.data.features import Float32
from ncfbench.data.lsa import Ids
from ncfbench.data.store import Dataset, open_dataset
from ncfbench.errors import DataError, UsageError, nearest
from ncfbench.floors.case import Case, recall_of
from ncfbench.floors.kept import FILE, Row, read
from ncfbench.floors.models import FLOORS, Fitted
from ncfbench.floors.task import (
    Task,
    columns_of_split,
    contents_of,
    tries_features,
)
from ncfbench.runs.quality import Evaluation
from ncfbench.runs.ranks import Scores
from ncfbench.storage import locks, tables
from ncfbench.storage.free_space import available_memory
from ncfbench.storage.schemas import FLOOR
from ncfbench.timing import environment

BUDGET_SECONDS = 600.0
IN_ORDER = ("popularity", "profile", "ease", "ials", "denoised", "ridge")
"""The order of floors where time is short: quick ones, then those of most recall."""
LEAST_SECONDS = 1.0
"""Seconds that each floor has, though others took the time of all."""
UNFITTED = -1.0
"""Recall by a penalty that is too small for single precision."""


@dataclass(frozen=True)
class Floors:
    """The floors of a data set.

    Attributes:
        path: the table that keeps them.
        rows: rows of :data:`ncfbench.storage.schemas.FLOOR`.
        left_out: why each of the other floors was not fitted, such as "it needs about 3 GiB ...".
    """

    dataset: str
    fingerprint: str
    path: Path
    rows: Sequence[Row]
    left_out: dict[str, str]

    @property
    def notes(self) -> list[str]:
        """A sentence for each reason to leave floors out."""
        return [
            f"No {', '.join(name for name in self.left_out if self.left_out[name] == reason)}:"
            f" {reason}"
            for reason in dict.fromkeys(self.left_out.values())
        ]


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
    for the same data, settings and machine is not fitted again. Where there is no time to choose a
    penalty, the usual one serves.

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
        UsageError: an unknown floor, an invalid penalty, no test links, or no floor that can be
            fitted.
    """
    names, end = _checked(floors, penalty), time.perf_counter() + total_seconds
    data_dir = Locations.of(data_dir).data_dir
    data = dataset
    if not isinstance(data, Dataset):
        name = complete({"dataset": data} if data else {}).dataset
        data = open_dataset(name, data_dir=data_dir, say=say)
    if not len(data.links("test")[0]):
        raise UsageError(
            f"{data.name} has no test links, and floors rank these. {data.advise_hold_out('test')}"
        )
    path, host = data_dir / data.name / FILE, environment.host_key()
    fits = {
        (row["floor"], row["settings"]): row
        for row in _read(path, data.fingerprint, say)
        if row["environment_key"] == host and not again
    }

    def known(name: str, given: float | None) -> Row | None:
        return fits.get((name, settings_text(name, given, data)))

    rows = {name: row for name in names if (row := known(name, penalty))}
    left_out = {name: reason for name in names if name not in rows and (reason := lack(data, name))}
    names = [name for name in names if name not in left_out]
    case: Case | None = None
    for name in [name for name in names if name not in rows]:
        if case is None:
            show("reading links and content")
            needs_content = any(FLOORS[floor].needs_content for floor in names if floor not in rows)
            case = Case.of(data, available_memory(), needs_content=needs_content)
        seconds = min(budget_seconds, max(end - time.perf_counter(), LEAST_SECONDS))
        try:
            given, lacks = penalty, case.refusal(name, penalty, seconds)
            if lacks and penalty is None and FLOORS[name].penalties:
                given, of_choice = FLOORS[name].usual_penalty, lacks
                lacks = None if known(name, given) else case.refusal(name, given, seconds)
                if lacks is None:
                    say(f"{name} has its usual penalty, {given:g}. To choose one, {of_choice}")
            if lacks:
                left_out[name] = lacks
            elif row := known(name, given):
                rows[name] = row
            else:
                rows[name] = measure(case, name, given, show) | {"environment_key": host}
                _keep(path, rows[name], say)
        except UsageError as error:
            left_out[name] = str(error)
        except MemoryError:
            left_out[name] = "it needs more memory than is free."
    fitted = Floors(
        data.name, data.fingerprint, path, [rows[name] for name in names if name in rows], left_out
    )
    if not rows:
        raise UsageError(" ".join(fitted.notes))
    return fitted


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


def lack(dataset: Dataset, name: str) -> str | None:
    """Return what a data set lacks for a floor; None if nothing."""
    floor = FLOORS[name]
    if floor.needs_links and not dataset.ranks_known_items:
        return (
            f"the held-out items of {dataset.name} have no training links to rank them by, as they"
            " have where data are prepared with --hold-out links, last or time."
        )
    if floor.needs_new_items and dataset.ranks_known_items:
        return "ease and ials use the links of the known items that are ranked."
    if floor.needs_content and not dataset.n_words and dataset.item_features is None:
        return f"the items of {dataset.name} have neither texts nor features."
    return None


def settings_text(name: str, penalty: float | None, dataset: Dataset) -> str:
    """Return as JSON the settings that decide a floor's scores on given data."""
    floor = FLOORS[name]
    settings: dict[str, Any] = {}
    if floor.needs_content and tries_features(dataset):
        settings["features"] = "tried"
    if floor.penalties and penalty is None:
        settings["penalties"] = list(floor.penalties)
    elif floor.penalties:
        settings["penalty"] = penalty
    return json.dumps({**settings, **floor.settings}, sort_keys=True)


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
        rows = [
            old
            for old in _read(path, row["data_fingerprint"], say)
            if (old["floor"], old["settings"]) != (row["floor"], row["settings"])
        ]
        order = [*FLOORS].index
        tables.write_rows(path, sorted([*rows, row], key=lambda row: order(row["floor"])), FLOOR)


def measure(
    case: Case, name: str, penalty: float | None, show: Callable[[str], object]
) -> dict[str, Any]:
    """Fit a floor, rank the held-out links, and return its row of
    :data:`ncfbench.storage.schemas.FLOOR`.

    Args:
        penalty: None to choose it, by :func:`choose_penalty`, if the floor has one.
        show: receives what is being done.

    Raises:
        UsageError: the penalty is too small for single precision.
    """
    floor, task, test = FLOORS[name], case.task, case.splits["test"]
    begin = time.perf_counter()
    chosen_by, recalls = "given", dict[float, float]()
    validation: Evaluation | None = None
    shared: Fit | None = None
    try:
        if floor.penalties and penalty is None:
            chosen_by, recalls, fit = choose_penalty(case, name, show)
            shared = fit if "validation" in case.splits else None
        best = max(recalls, key=lambda tried: recalls[tried], default=penalty or 0.0)
        chosen = time.perf_counter()
        show(f"{name}: test links" + f", penalty {best:g}" * bool(floor.penalties))
        fitted = shared.fitted if shared else floor.fit(task, best)
        scores = _finite(fitted(test.candidates))
        done = time.perf_counter()
        evaluation = test.evaluate(scores)
        ranked = time.perf_counter()
        if shared:
            validation = shared.quality
        elif links := case.splits.get("validation"):
            validation = links.evaluate(_finite(fitted(links.candidates)))
    except np.linalg.LinAlgError as error:
        raise UsageError(
            "its scores cannot be computed in single precision with so small a penalty: use a"
            " larger --penalty."
        ) from error
    fit_seconds = shared.seconds if shared else 0.0
    row = dict.fromkeys(FLOOR.names) | {
        "dataset": case.dataset.name,
        "floor": name,
        "content": case.content if floor.needs_content else None,
        "settings": settings_text(name, penalty, case.dataset),
        "penalty": best if floor.penalties else None,
        "chosen_by": chosen_by if floor.penalties else None,
        "penalties": [*recalls],
        "recalls": [*recalls.values()],
        "content_seconds": case.content_seconds if floor.needs_content else 0.0,
        "choice_seconds": chosen - begin - fit_seconds,
        "fit_seconds": done - chosen + fit_seconds,
        "ranking_seconds": ranked - done,
        "data_fingerprint": case.dataset.fingerprint,
    }
    row |= {} if validation is None else columns_of_split("validation", validation)
    return row | columns_of_split("test", evaluation)


def refit(dataset: Dataset, row: Mapping[str, Any]) -> tuple[Task, Fitted]:
    """Fit a kept floor again to the training links of a data set, with its content and penalty."""
    contents = contents_of(dataset)[0] if row["content"] else {}
    task = Task.of(dataset, contents.get(row["content"]))
    return task, FLOORS[row["floor"]].fit(task, row["penalty"] or 0.0)


class Fit(NamedTuple):
    """A fit with one penalty, the quality of the links that choose it, and seconds until these are
    ranked.
    """

    fitted: Fitted
    quality: Evaluation
    seconds: float


def choose_penalty(
    case: Case, name: str, show: Callable[[str], object]
) -> tuple[str, dict[float, float], Fit]:
    """Return the links that choose a floor's penalty, recall@50 of them by each penalty that was
    tried, and the best fit; test links are not read.

    Without validation a tenth of the training items or links stands in for it, which the fits of
    the choice leave out.
    """
    floor, task = FLOORS[name], case.task
    by, held_out = "validation", case.splits.get("validation")
    if held_out is None:
        task, held_out = task.apart()
        by = f"a tenth of the training {'links' if task.leaves_out_known else 'items'}"

    best: Fit | None = None

    def recall(penalty: float) -> float:
        nonlocal best
        show(f"{name}: choosing its penalty, {penalty:g}")
        begin = time.perf_counter()
        try:
            fitted = floor.fit(task, penalty)
            scores = _finite(fitted(held_out.candidates))
            seconds = time.perf_counter() - begin
            quality = held_out.evaluate(scores)
        except np.linalg.LinAlgError:  # too small for single precision
            return UNFITTED
        if best is None or recall_of(quality) > recall_of(best.quality):
            best = Fit(fitted, quality, seconds)
        return recall_of(quality)

    recalls = climb(floor.penalties, recall)
    recalls = {penalty: value for penalty, value in recalls.items() if value != UNFITTED}
    if best is None:
        raise np.linalg.LinAlgError("no penalty is large enough")
    return by, recalls, best


def climb(values: Sequence[float], height: Callable[[float], float]) -> dict[float, float]:
    """Return the heights of some values, from the middle upwards and then downwards while they
    rise: none of its neighbours is higher than the highest one.
    """
    heights: dict[float, float] = {}

    def at(index: int) -> float:
        if values[index] not in heights:
            heights[values[index]] = height(values[index])
        return heights[values[index]]

    best = len(values) // 2
    at(best)
    for step in (1, -1):
        while 0 <= best + step < len(values) and at(best + step) > at(best):
            best += step
    return heights


def _finite(scores: Scores) -> Scores:
    """Return the same scores, with a LinAlgError where one is not finite."""

    def checked(users: Ids) -> Float32:
        values = scores(users)
        if not np.isfinite(values).all():
            raise np.linalg.LinAlgError("scores are not finite")
        return values

    return checked
