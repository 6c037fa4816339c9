"""The board: ways to build batches, each tuned alike, on several data sets.

    python benchmarks/board.py cite --seconds 20      # trains, resumable
    python benchmarks/board.py                        # tables of what is kept
    python benchmarks/board.py cite --as cite-with-plain --set encoder=cnn,convolution=plain
    python benchmarks/board.py cite --as cite-with-seed-1 --set seed=1 --seconds 20
    python benchmarks/board.py --repeats    # all seeds of the data sets that have several
    python benchmarks/board.py cite --as cite-with-more --only '...'    # further ways
    python benchmarks/board.py cite --as cite-with-weight --vary lambda=1,4,16,64 --only 'iid'
    python benchmarks/board.py cite --as cite-with-same --like strat-ns --only 'iid'    # its model

A contestant begins at the best trial of the data set's reference search (search_reference.py) that
has one of its losses, with its own batches in place of the trial's. It has eight trials around
that, which differ in loss, learning rate and batch size. A trial ends when its recall has not risen
during the latter half of its training, from half of the time on, and then too if it has less than
half of the best recall by then. The file is written after each trial. Times need a quiet machine.

A contestant's time is that of its soonest trial to 0.9 or 0.97 of the best validation recall that
any trial of the data set reached, those of the search too, or a floor; of another family's board
those of the usual one too, with the same encoder. The test recall is that of
its best trial by validation. Floors have the seconds of one fit, as a contestant has those of one
trial. A plus sign says that the best trial was ended at half of its training, as hopeless.
Times of one seed cannot be told apart within a factor that repeats with other seeds show.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import search_reference as reference
from bench_search import curve_of
from board_training import CONTESTANTS as CONTESTANTS
from board_training import LEAST as LEAST
from board_training import train
from search_reference import Trial

from ncfbench.config import split_assignment
from ncfbench.reporting.board import SHARES, Board, TargetTime, ordered
from ncfbench.reporting.floors import FloorResult
from ncfbench.reporting.render import markdown
from ncfbench.reporting.render.terminal import make_console, show
from ncfbench.reporting.table import Col, Table
from ncfbench.reporting.views.board import board_tables
from ncfbench.storage import schemas
from ncfbench.storage.tables import read_rows
from ncfbench.timing.intervals import QUALITY_SPREAD, Spread

BOARD = Path(__file__).resolve().parent / "results" / "board"
STARTS = (BOARD.parents[2] / "results" / f"{name}-start" for name in ("good", "frozen"))
FLOORS = [folder / "floors.parquet" for folder in (*STARTS, BOARD)]
MORE = "more"
"""Ends the name of a file with further contestants of the data set's usual board."""
REPEATS = ("seed-1", "seed-2")
"""Families of the usual models with another seed."""
LEAST_DEGREES = 5
"""Least degrees of freedom of a spread that counts as measured."""


class Standing(NamedTuple):
    """How a contestant stands on a data set.

    Attributes:
        seconds: of features and training to each of :data:`SHARES`; infinity where no trial came
            there.
        share: its best validation recall as a share of the best known.
        test: test recall of its best trial by validation; None without a trial.
        top: the best validation recall known.
        is_cut: whether that trial was ended early, as hopeless.
    """

    trials: int
    seconds: tuple[float, ...]
    share: float
    test: float | None
    top: float
    is_cut: bool = False


def standings(
    board: Mapping[str, Any],
    searched: Sequence[Trial],
    floors: Iterable[Mapping[str, Any]] = (),
    *,
    is_repeat: bool = False,
) -> dict[str, Standing]:
    """Return how each contestant stands on a data set, by its kept trials, and what needs none.

    Args:
        floors: rows of the data set's floors.
        is_repeat: whether its own trials do not count for the best recall, so that the targets are
            those of the board that it repeats.
    """
    trials: Sequence[Trial] = board["trials"]
    families = {each["config"].get("encoder") for each in trials}
    alike = [each for each in searched if each["config"].get("encoder") in {None, *families}]
    reached = {floor["floor"]: floor["validation_recall_at_50"] for floor in floors}
    own_trials = () if is_repeat else trials
    top = max([*map(reference.best, [*own_trials, *alike]), *reached.values()], default=0.0) or 1.0
    found = {}
    for contestant in CONTESTANTS:
        tried = [each for each in trials if each["contestant"] == contestant]
        own = [each for each in tried if each["validation"]]
        curves = [curve_of(each, board) for each in own]
        seconds = tuple(
            min((curve.time_to(share * top) for curve in curves), default=math.inf)
            for share in SHARES
        )
        best = max(own, key=reference.best, default=None)
        if best is None:
            found[contestant] = Standing(len(tried), seconds, 0.0, None, top)
            continue
        at = best["validation"].index(reference.best(best))
        share, is_cut = reference.best(best) / top, best["status"] == "hopeless"
        found[contestant] = Standing(len(tried), seconds, share, best["test"][at], top, is_cut)
    for floor in floors:
        name, taken = floor["floor"], FloorResult(floor).seconds
        seconds = tuple(taken if reached[name] >= share * top else math.inf for share in SHARES)
        test = floor["test_recall_at_50"]
        found[name] = Standing(0, seconds, reached[name] / top, test, top)
    return found


def kept_floors(fingerprint: str) -> list[dict[str, Any]]:
    """Return the kept floors of a data set."""
    rows = itertools.chain.from_iterable(read_rows(path, schemas.FLOOR) for path in FLOORS)
    return [row for row in rows if row["data_fingerprint"] == fingerprint]


def kept_boards(
    folder: Path = BOARD, searches: Path = reference.SEARCHES, family: str = ""
) -> dict[str, dict[str, Standing]]:
    """Return the kept boards by data set, with the contestants that are complete.

    Args:
        family: of models, as files end that have one of their own.
    """
    found = {}
    for path in sorted(folder.glob("*.json.gz")):
        name, _, own = path.name.partition(".")[0].partition("-with-")
        kept = reference.read(path)
        searched = reference.read(searches / f"{kept['dataset']}.json.gz")["trials"]
        usual = folder / f"{name}.json.gz", folder / f"{name}-with-{MORE}.json.gz"
        beside = [reference.read(each) for each in usual if each.exists() and each != path]
        known = searched if own else kept["trials"]
        known += [trial for each in beside for trial in each["trials"]]
        floors = kept_floors(kept["fingerprint"])
        board = standings(kept, searched, floors, is_repeat=own in REPEATS)
        whole = {way for way, own_way in board.items() if own_way.trials >= LEAST and own_way.test}
        if own == family and whole:
            ways = whole | {way for way in board if way not in CONTESTANTS}
            found[name] = {way: each for way, each in board.items() if way in ways}
    return found


Repeats: TypeAlias = Mapping[str, Mapping[str, Mapping[str, Standing]]]
"""Boards by data set and family, the usual one first."""


def spreads(repeats: Repeats) -> dict[tuple[str, float], Spread]:
    """Return how much the times of a way differ between repeats, by data set and target.

    Times that are there in one repeat alone are left out, so that it is a lower bound.
    """
    found = {}
    for (data, of), (at, share) in itertools.product(repeats.items(), enumerate(SHARES)):
        squares, degrees = [], 0
        for name in CONTESTANTS:
            times = [board[name].seconds[at] for board in of.values() if name in board]
            logs = [math.log(seconds) for seconds in times if seconds < math.inf]
            if len(logs) > 1:
                squares.append(statistics.variance(logs) * (len(logs) - 1))
                degrees += len(logs) - 1
        if degrees:
            found[data, share] = Spread(math.sqrt(math.fsum(squares) / degrees), degrees)
    return found


def alike_within(spreads: Mapping[tuple[str, float], Spread], data: str, share: float) -> float:
    """Return the factor within which one seed cannot tell times apart: as repeats show it, or as is
    assumed of a recall where they have fewer than :data:`LEAST_DEGREES`.
    """
    found = spreads.get((data, share), QUALITY_SPREAD)
    return (found if found.degrees >= LEAST_DEGREES else QUALITY_SPREAD).factor


def beside_each_other(
    boards: Mapping[str, Mapping[str, Standing]],
    spreads: Mapping[tuple[str, float], Spread] = MappingProxyType({}),
) -> Board:
    """Return the board of several data sets.

    Args:
        spreads: of repeats of these boards.
    """

    def standing(data: str, name: str, at: int) -> TargetTime | None:
        if name not in boards[data]:
            return None
        own = boards[data][name].seconds[at]
        first = min(each.seconds[at] for each in boards[data].values())
        return TargetTime(own, own <= alike_within(spreads, data, SHARES[at]) * first < math.inf)

    names = dict.fromkeys(name for of in boards.values() for name in of)
    return Board(
        [*boards],
        {
            share: ordered({name: [standing(data, name, at) for data in boards] for name in names})
            for at, share in enumerate(SHARES)
        },
        left_out=(),
        differences={},
        seeds=1,
        metric="recall@50",
        split="validation",
        fingerprints=(),
        runs={},
    )


def repeated_boards(
    folder: Path = BOARD, searches: Path = reference.SEARCHES
) -> dict[str, dict[str, dict[str, Standing]]]:
    """Return the boards of the data sets that were repeated, with the contestants of any repeat: by
    data set, the usual one first and then those of :data:`REPEATS` by family.
    """
    found: dict[str, dict[str, dict[str, Standing]]] = {}
    usual = kept_boards(folder, searches)
    for family in REPEATS:
        for name, again in kept_boards(folder, searches, family).items():
            if name in usual:
                found.setdefault(name, {"": usual[name]})[family] = again
    for own in found.values():
        ways = {name for family in own if family for name in own[family]} & CONTESTANTS.keys()
        for family, board in own.items():
            own[family] = {name: each for name, each in board.items() if name in ways}
    return found


def boards_tables(boards: Mapping[str, Mapping[str, Standing]]) -> list[Table]:
    """Return the tables of docs/results.md: the seconds of each contestant on each data set, in the
    order in which they come to the first target, and what they reach.
    """
    order = beside_each_other(boards).standings[SHARES[0]]
    rows = [(name, [of.get(name) for of in boards.values()]) for name in order]

    def table(title: str, names: Iterable[str], show: Callable[[Standing], str]) -> Table:
        def shown(place: int) -> Callable[[Any], str | None]:
            return lambda row: None if row[1][place] is None else show(row[1][place])

        cols = [Col(name, shown(place), absent="-") for place, name in enumerate(names)]
        return Table.of(title, [Col("", 0), *cols], rows)

    shares, tops = " and ".join(map(str, SHARES)), {}
    for name, of in boards.items():
        (tops[name],) = {own.top for own in of.values()}
    return [
        table(f"Seconds to {shares} of the best validation recall", boards, _times),
        table(
            "Share of the best validation recall, and test recall",
            [f"{name}, of {top:.3f}" for name, top in tops.items()],
            lambda own: f"{_share(own)}, {own.test:.3f}",
        ),
    ]


def repeats_tables(repeats: Repeats) -> list[Table]:
    """Return the tables of repeats: the seconds of each contestant, and how much they differ."""

    def table(name: str, own: Mapping[str, Mapping[str, Standing]]) -> Table:
        def shown(family: str) -> Callable[[str], str | None]:
            return lambda row: _times(own[family][row]) if row in own[family] else None

        cols = [Col(family or "first", shown(family), absent="-") for family in own]
        order = beside_each_other({"": own[""]}).standings[SHARES[0]]
        return Table.of(f"Seconds to {shares}: {name}", [Col("", str), *cols], [*order])

    shares = " and ".join(map(str, SHARES))
    found = spreads(repeats)
    cols = [
        Col("", lambda row: f"{row[0]}, to {row[1]}"),
        Col("deviation of log seconds", lambda row: f"{found[row].deviation:.2f}"),
        Col("degrees of freedom", lambda row: str(found[row].degrees)),
        Col("alike within a factor of", lambda row: f"{alike_within(found, *row):.2f}"),
    ]
    tables = [table(*own) for own in repeats.items()]
    return [*tables, Table.of("Between seeds", cols, [*found])]


def _times(own: Standing) -> str:
    if math.isinf(own.seconds[0]):
        return "never"
    return ", ".join(_shown(own, at) for at in range(len(SHARES)))


def _shown(own: Standing, at: int) -> str:
    if math.isinf(own.seconds[at]):
        return "never"
    return f"{own.seconds[at]:.3g}"


def _share(own: Standing) -> str:
    return f"{own.share:.3f}{'+' * own.is_cut}"


def board_table(name: str, board: Mapping[str, Standing]) -> Table:
    """Return the table of one data set: seconds, share, and test recall of each contestant."""
    order = beside_each_other({name: board}).standings[SHARES[0]]
    (top,) = {own.top for own in board.values()}

    def seconds(at: int) -> Callable[[Any], str]:
        return lambda row: _shown(board[row], at)

    cols = [
        Col("", str),
        *(Col(f"s to {share}", seconds(at)) for at, share in enumerate(SHARES)),
        Col(f"share of {top:.3f}", lambda row: _share(board[row])),
        Col("test recall", lambda row: f"{board[row].test:.3f}"),
    ]
    return Table.of(f"Seconds, validation and test recall: {name}", cols, [*order])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dataset", nargs="?", help="trains its board")
    parser.add_argument("--seconds", type=float, default=40.0, help="longest training of a trial")
    parser.add_argument("--data-dir", type=Path, default=None)
    parser.add_argument("--searches", type=Path, default=reference.SEARCHES)
    parser.add_argument("--folder", type=Path, default=BOARD)
    parser.add_argument("--set", default="", help="settings of all trials: KEY=VALUE,KEY=VALUE")
    parser.add_argument("--vary", help="KEY=VALUE,VALUE: best trials with these values")
    parser.add_argument("--like", help="begin at this contestant's best trial, not the search's")
    parser.add_argument("--of", default="", help="the board of --like and --vary: NAME")
    parser.add_argument("--as", dest="name", help="name of the file; by default the data set's")
    parser.add_argument("--only", default=";".join(CONTESTANTS), help="contestants, by semicolons")
    parser.add_argument("--markdown", action="store_true", help="the tables of docs/results.md")
    parser.add_argument("--family", default="", help="show the boards of files NAME-with-FAMILY")
    parser.add_argument("--repeats", action="store_true", help="boards with other seeds, beside")
    given = parser.parse_args()
    if given.dataset:
        path = given.folder / f"{given.name or given.dataset}.json.gz"
        fixed = dict(split_assignment(each) for each in given.set.split(",") if each)
        vary = None
        if given.vary:
            setting, values = split_assignment(given.vary)
            vary = setting, [float(value) for value in values.split(",")]
        train(
            *(given.dataset, given.seconds, given.data_dir, given.searches, path, fixed),
            *(given.only.split(";"), vary, given.like, given.of),
        )
        return
    repeats = repeated_boards(given.folder, given.searches)
    if given.repeats:
        tables = repeats_tables(repeats)
    else:
        boards = kept_boards(given.folder, given.searches, given.family)
        tables = [board_table(*own) for own in boards.items()]
        if len(boards) > 1:
            tables = boards_tables(boards)
            profiles = board_tables(beside_each_other(boards, spreads(repeats)))
            tables += [] if given.markdown else profiles
    if given.markdown:
        print(markdown.render(tables))
        return
    for table in tables:
        show(make_console(), table)


if __name__ == "__main__":
    main()
