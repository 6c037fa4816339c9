"""Claims of README.md and docs/boards.md on a frozen text model."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from typing import Any

import board
import board_training
import search_reference as reference
from claims_boards import board_rows, boards
from claims_families import PAGE
from claims_readme import SIX, good_start
from kept import kept
from traced import Section, traces, traces_rows, word

from ncfbench.reporting.floors import standing
from ncfbench.runs.quality import difference
from ncfbench.timing.intervals import Difference

REPORT = "ncfbench report results/frozen-start"
FROZEN = Section(PAGE, "With a frozen text model", REPORT)
SETS = {
    "cite": ("CiteULike", "CiteULike, `good`"),
    "plots": ("plots", "MovieLens with plots"),
    "anime": ("anime", "anime"),
    "yelp": ("Yelp", "Yelp"),
}
"""Names of data sets on the page, and in README's table."""


@cache
def frozen() -> Mapping[str, Any]:
    """Return the answers of results/frozen-start by data set."""
    found = {
        each.config.dataset.removesuffix("-frozen"): each for each in kept("frozen-start").answers
    }
    assert found.keys() == SETS.keys()
    return found


def floor_of(answer: Any, name: str) -> Any:
    (found,) = (each for each in answer.floors if each.row["floor"] == name)
    return found


def ridges() -> dict[str, tuple[float, float]]:
    """Return recall of ridge regression on TF-IDF alone, and with vectors beside it."""
    found = {}
    for data, (_, title) in SETS.items():
        before, after = (floor_of(each, "ridge") for each in (good_start()[title], frozen()[data]))
        assert (before.row["content"], after.row["content"]) == ("TF-IDF", "TF-IDF and features")
        found[data] = before.recall, after.recall
    return found


def above() -> dict[str, Any]:
    """Return how what is trained with the vectors stands to ridge regression with them."""
    return {
        data: standing(answer.arms[0], floor_of(answer, "ridge"))
        for data, answer in frozen().items()
    }


@traces_rows(FROZEN, ["", *(name for name, _ in SETS.values())])
def start_rows() -> list[str]:
    rows = ["| | ridge | ridge, vectors | `good` | `good`, vectors | above it by |"]
    for data, (name, title) in SETS.items():
        before, after = ridges()[data]
        own, good = (each.arms[0].chosen for each in (frozen()[data], good_start()[title]))
        by = above()[data]
        cells = [f"{each:.3f}" for each in (before, after, good.recall, own.recall)]
        rows.append(f"| {name} | {' | '.join(cells)} | {by.above_by:.3f} ± {by.error:.3f} |")
    return rows


@traces(FROZEN, "Recall of test links on four sets")
def start_seeds() -> list[str]:
    (seeds,) = {len(each.arms[0].runs) for each in frozen().values()}
    (usual,) = {len(good_start()[title].arms[0].runs) for _, title in SETS.values()}
    return [
        f"on {word(len(SETS))} sets of new items",
        f"({word(usual)} seeds)",
        f"({word(seeds)} seeds)",
    ]


def gain(data: str, name: str) -> Difference:
    """Return by how much vectors raise a floor, and the paired error."""
    before, after = (
        floor_of(each, name).evaluation for each in (good_start()[SETS[data][1]], frozen()[data])
    )
    found = difference(after, before)
    assert found is not None
    return found


@traces(FROZEN, "*The vectors raise ridge regression on each set*")
def raised() -> list[str]:
    gains = [gain(data, "ridge") for data in SETS]
    assert min(own.value for own in gains) > 0
    cite, plots, anime, yelp = (f"{own.value:.3f} ± {own.error:.3f}" for own in gains)
    return [f"by {cite} on CiteULike, {plots} on plots, {anime} on anime and {yelp} on Yelp"]


@traces(FROZEN, "They take 34")
def seconds_of_vectors() -> list[str]:
    manifests = [kept("frozen-start").manifests[own] for own in kept("frozen-start").floors]
    seconds = [own["derived_features"]["embed"]["seconds"] for own in manifests]
    return [f"{min(seconds):.0f} to {max(seconds):.0f} s of a core"]


@traces(FROZEN, "Profiles with them come to")
def raised_profiles() -> list[str]:
    own = gain("anime", "profile")
    assert abs(own.value) < own.error
    anime = [
        floor_of(each, "profile").recall for each in (good_start()["anime"], frozen()["anime"])
    ]
    titles = [SETS[data][1] for data in ("cite", "plots")]
    after = [floor_of(frozen()[data], "profile").recall for data in ("cite", "plots")]
    before = [floor_of(good_start()[title], "profile").recall for title in titles]
    return [
        f"come to {after[0]:.3f} on CiteULike and {after[1]:.3f} on plots",
        f"had {before[0]:.3f} and {before[1]:.3f}",
        f"have {anime[1]:.3f} instead of {anime[0]:.3f}",
    ]


@traces(FROZEN, "*With them `good` is clearly above")
def worth_it() -> list[str]:
    errors = {data: own.above_by / own.error for data, own in above().items()}
    assert [data for data, own in errors.items() if own > 2] == ["yelp"]
    assert [data for data, own in errors.items() if own < -2] == ["cite"]
    return ["more than two standard errors"]


@traces(SIX, "With MiniLM's vectors", REPORT)
def first_page() -> list[str]:
    worth_it()
    cite, plots, anime, yelp = (f"{after:.3f}" for _, after in ridges().values())
    good = [f"{answer.arms[0].chosen.recall:.3f}" for answer in map(frozen().get, SETS)]
    seeds = start_seeds()[-1].strip("()")
    return [
        seconds_of_vectors()[0].removesuffix(" of a core"),
        f"has {cite} on CiteULike, {plots} on MovieLens, {anime} on anime and {yelp} on Yelp",
        f"in place of LSA, {', '.join(good[:-1])} and {good[-1]}",
        f"({seeds}",
    ]


WAYS = ["", "strat-ns", "ns", "ns, usual logQ", "ridge", "profile"]
traces_rows(FROZEN, WAYS)(partial(board_rows, 0, "minilm"))
traces_rows(FROZEN, WAYS)(partial(board_rows, 1, "minilm"))


def trained(data: str) -> dict[str, board.Standing]:
    """Return the ways of a data set's board with these vectors."""
    return {name: own for name, own in boards("minilm")[data].items() if name in board.CONTESTANTS}


@traces(FROZEN, "Three ways of the board", "python benchmarks/board.py")
def ways() -> list[str]:
    (count,) = {len(trained(data)) for data in ("anime", "cite")}
    trials = {own.trials for data in ("anime", "cite") for own in trained(data).values()}
    assert trials == {board_training.TUNED}
    return [f"{word(count).capitalize()} ways", f"{word(board_training.TUNED)} trials"]


@traces(FROZEN, "*On CiteULike none of the three", "python benchmarks/board.py")
def none_on_cite() -> list[str]:
    ridge, own = boards("minilm")["cite"]["ridge"], trained("cite").values()
    best = max(each.test or 0 for each in own)
    assert max(each.share for each in own) < ridge.share
    assert best < (ridge.test or 0)
    trials = reference.read(board.BOARD / "cite-with-minilm.json.gz")["trials"]
    longest = max(each["seconds"][-1] for each in trials)
    for name in trained("cite"):
        whole = max((each for each in trials if each["contestant"] == name), key=reference.best)
        assert whole["validation"][-1] == reference.best(whole)
    return [
        f"none of the {word(len(own))} comes",
        f"within {longest:.0f} s of training",
        f"is {best:.3f}",
    ]


@traces(FROZEN, "By test links they cannot be told apart", "python benchmarks/board.py")
def level_on_anime() -> list[str]:
    ridge, own = boards("minilm")["anime"]["ridge"], trained("anime").values()
    assert min(each.share for each in own) > ridge.share
    tests = [each.test or 0 for each in own]
    error = floor_of(frozen()["anime"], "ridge").error
    assert (ridge.test or 0) - min(tests) < error
    return [
        f"{min(tests):.3f} to {max(tests):.3f}",
        f"ridge regression {ridge.test:.3f}, with a standard error of {error:.2f}",
    ]
