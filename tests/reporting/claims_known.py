"""Claims of docs/boards.md on known items: by time, and the last link."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any

import board
import board_training
import search_reference as reference
from claims_boards import boards
from claims_readme import GOOD, good_start
from claims_same import POINTWISE, models
from traced import Section, traces, traces_rows, word

from ncfbench.reporting.render import markdown
from ncfbench.timing.intervals import QUALITY_SPREAD

PAGE = "docs/boards.md"
MORE = Section("docs/results.md", "More boards", "python benchmarks/board.py")
KNOWN = Section(PAGE, "Known items, by time", "python benchmarks/board.py")
LAST = Section(PAGE, "Known items, the last link", "python benchmarks/board.py")
WAYS = {way: own for way, own in board.CONTESTANTS.items() if not way.endswith(", warm")}
"""Those that these boards have."""


def known() -> Mapping[str, board.Standing]:
    (own,) = boards("known").values()
    return own


def known_rows() -> list[str]:
    return markdown.render([board.board_table("ml-time", known())]).splitlines()


def same(family: str) -> Mapping[str, board.Standing]:
    (own,) = boards(family).values()
    return {name: own[name] for name in POINTWISE}


def same_shares(family: str, own_model: Mapping[str, board.Standing]) -> list[str]:
    """Return what the pointwise ways come to with the ranking ways' model."""
    own = same(family)
    assert {each.trials for each in own.values()} == {board_training.TUNED}
    assert {each.top for each in own.values()} == {each.top for each in own_model.values()}
    shares = [each.share for each in own.values()]
    return [f"{word(board_training.TUNED)} trials", f"{min(shares):.2f} to {max(shares):.2f}"]


traces_rows(KNOWN, ["", *WAYS, "ridge", "profile", "ease", "ials", "popularity"])(known_rows)


@traces(KNOWN, "The same ways but the warm ones on MovieLens by time")
def trials_of_known() -> list[str]:
    kept = reference.read(board.BOARD / "ml-time-with-known.json.gz")
    assert {each["config"]["encoder"] for each in kept["trials"]} == {"cnn"}
    counts = {name: known()[name].trials for name in WAYS}
    fewer = counts.pop("ns-distinct")
    assert {*counts.values()} == {board_training.TUNED}
    return [f"with {word(board_training.TUNED)} trials each", f"{word(fewer)} of `ns-distinct`"]


@traces(KNOWN, "The best known is")
def best_of_known() -> list[str]:
    assert max(own.share for own in known().values()) < 1
    return []


@cache
def floors_of_known() -> Mapping[str, Mapping[str, Any]]:
    kept = reference.read(board.BOARD / "ml-time-with-known.json.gz")
    return {row["floor"]: row for row in board.kept_floors(kept["fingerprint"])}


@traces(KNOWN, "EASE's recall of validation links")
def error_of_known() -> list[str]:
    error = floors_of_known()["ease"]["validation_recall_at_50_error"]
    assert error > 0.1 * known()["ease"].top
    return [f"error of {error:.3f}, more than a tenth", f"times to {board.SHARES[0]} of that"]


@traces(KNOWN, "By test links EASE has")
def tests_of_known() -> list[str]:
    ease, ials = (known()[name] for name in ("ease", "ials"))
    trained = max((known()[name] for name in WAYS), key=lambda own: own.share)
    at = f"EASE has {ease.test:.3f} after {ease.seconds[0]:.2f} s and iALS {ials.test:.3f}"
    return [at, f"has {trained.test:.3f}"]


@traces(KNOWN, "The standard error of these")
def test_error_of_known() -> list[str]:
    (title,) = (title for title in GOOD if title.startswith("MovieLens 100K by time"))
    floors = good_start()[title].floors
    errors = {floor.error for floor in floors if floor.row["floor"] in ("ease", "ials")}
    errors.add(good_start()[title].arms[0].chosen.error)
    (shown,) = {f"{error:.2f}" for error in errors}
    return [shown]


@traces(KNOWN, "*No pointwise loss passes popularity*")
def pointwise_of_known() -> list[str]:
    least = known()["popularity"]
    for name, (_, losses) in WAYS.items():
        if losses == board_training.POINTWISE:
            assert known()[name].share < least.share
            assert known()[name].test < least.test
    return []


@traces(KNOWN, "With the model of the ranking ways, and eight")
def same_of_known() -> list[str]:
    assert models("ml-time-with-known-same") == models("ml-time-with-known", ["strat-ns"])
    own = [known()[name].share for name in POINTWISE]
    assert all(each.share < known()["popularity"].share for each in same("known-same").values())
    return [*same_shares("known-same", known()), f"{min(own):.2f} to {max(own):.2f} with their own"]


def last() -> Mapping[str, board.Standing]:
    (own,) = boards("last").values()
    return own


def last_rows() -> list[str]:
    return markdown.render([board.board_table("yelp-last", last())]).splitlines()


traces_rows(LAST, ["", *last()])(last_rows)


@cache
def kept_of_last() -> Mapping[str, Any]:
    return reference.read(board.BOARD / "yelp-last-with-last.json.gz")


@traces(LAST, "The same ways but the warm ones on a sample")
def data_of_last() -> list[str]:
    floors = board.kept_floors(kept_of_last()["fingerprint"])
    (chance,) = {f"{row['test_recall_at_50_chance']:.3f}" for row in floors}
    (users,) = {len(row["test_user_recalls"]) for row in floors}
    return [f"each of {users:,}", f"{kept_of_last()['n_links']:,} training", chance]


@traces(LAST, "Each has eight trials")
def trials_of_last() -> list[str]:
    assert {last()[name].trials for name in WAYS} == {board_training.TUNED}
    models = {
        (each["config"]["encoder"], each["config"]["user_tower"])
        for each in kept_of_last()["trials"]
    }
    assert models == {("mf", "history"), ("mf", "table")}
    for trial in kept_of_last()["trials"]:
        is_pointwise = trial["config"]["loss"] in board_training.POINTWISE
        assert (trial["config"]["user_tower"] == "table") == is_pointwise
    searched = reference.read(reference.SEARCHES / "yelp-last.json.gz")["trials"]
    return [f"has {word(board_training.TUNED)} trials", f"a search of {len(searched)}"]


@traces(LAST, "It has the highest recall")
def ials_of_last() -> list[str]:
    own = last()["ials"]
    assert max(last(), key=lambda name: last()[name].share) == "ials"
    assert max(last(), key=lambda name: last()[name].test or 0) == "ials"
    recalls = f"{own.top:.3f} of validation and {own.test:.3f} of test links"
    return [f"{recalls}, after {own.seconds[0]:.1f} s"]


@traces(LAST, "By test links `mixed-ns` has")
def tests_of_last() -> list[str]:
    best = sorted(WAYS, key=lambda name: last()[name].test or 0, reverse=True)[:2]
    assert best == ["mixed-ns", "strat-ns"]
    (row,) = (
        row for row in board.kept_floors(kept_of_last()["fingerprint"]) if row["floor"] == "ials"
    )
    tests = " and ".join(f"`{name}` {last()[name].test:.3f}" for name in best)
    errors = (row[f"test_recall_at_50_{of}"] for of in ("error", "item_error"))
    return [tests.replace("` ", "` has ", 1), f"of iALS's is {math.hypot(*errors):.3f}"]


@traces(LAST, "To 0.9 `ns` takes")
def seconds_of_last() -> list[str]:
    times = {name: last()[name].seconds[0] for name in ("ns", "mixed-ns", "strat-ns", "ials")}
    first, second, third, _ = times.values()
    assert max(times.values()) < QUALITY_SPREAD.factor * first
    return [f"To 0.9 `ns` takes {first:.3g} s, `mixed-ns` {second:.3g} and `strat-ns` {third:.3g}"]


@traces(LAST, "Of these `ns` and `mixed-ns` alone")
def second_of_last() -> list[str]:
    reached = [name for name in WAYS if last()[name].seconds[1] < math.inf]
    assert {*reached} == {"ns", "mixed-ns"}
    return ["come to 0.97"]


@traces(LAST, "*`ns` with the usual logQ comes to")
def usual_of_last() -> list[str]:
    usual, plain = (f"{last()[name].share:.3f}" for name in ("ns, usual logQ", "ns"))
    return [f"comes to {usual}*, and to {plain} without it"]


@traces(LAST, "That is the scale of scores")
def scale_of_last() -> list[str]:
    usual, softmax = (
        {each["config"]["gamma"] for each in kept_of_last()["trials"] if of(each)}
        for of in (
            lambda each: each["contestant"] == "ns, usual logQ",
            lambda each: each["contestant"] == "ns" and each["config"]["loss"] == "softmax",
        )
    )
    trials = reference.read(board.BOARD / "yelp-last-with-scale.json.gz")["trials"]
    best = max(trials, key=reference.best)
    assert models("yelp-last-with-scale", [best["contestant"]]) == models(
        "yelp-last-with-last", ["strat-ns"]
    )
    (own,) = boards("scale").values()
    return [
        f"{usual.pop():.0f} with it and {softmax.pop():.0f} without",
        f"with {word(len(trials))} other scales",
        f"{own[best['contestant']].share:.3f} with {best['config']['gamma']:.0f}",
    ]


@traces(LAST, "*Pointwise losses come to")
def pointwise_of_last() -> list[str]:
    names = [name for name, (_, losses) in WAYS.items() if losses == board_training.POINTWISE]
    assert all(last()[name].is_cut for name in names)
    shares = [last()[name].share for name in names]
    ends = f"come to {min(shares):.2f} to {max(shares):.2f} of the best"
    return [ends, f"popularity has {last()['popularity'].share:.2f}"]


@traces(LAST, "With the model of the ranking ways, and eight")
def same_of_last() -> list[str]:
    assert models("yelp-last-with-last-same") == models("yelp-last-with-last", ["strat-ns"])
    return same_shares("last-same", last())


@traces(MORE, "*Where known items are ranked*")
def floors_of_both() -> list[str]:
    for own in (known(), last()):
        assert max(own, key=lambda name: own[name].test or 0) == "ials"
    return []


@traces(MORE, "On Yelp `ns`, `mixed-ns` and `strat-ns`")
def soonest_on_yelp() -> list[str]:
    first = min(last()[name].seconds[0] for name in WAYS if name in last())
    for name in ("ns", "mixed-ns", "strat-ns"):
        assert last()[name].seconds[0] <= QUALITY_SPREAD.factor * first
    return ["to 0.9"]
