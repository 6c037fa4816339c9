"""Claims of docs/results.md on boards beside the usual ones: a second seed, known items, and dear
ones.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import cache, partial
from typing import Any

import board
import search_reference as reference
from claims_boards import CONTESTANTS, board_rows, boards, repeated
from claims_readme import GOOD, good_start
from claims_results import PAGE
from traced import Section, traces, traces_rows, word

from ncfbench.reporting.render import markdown
from ncfbench.timing.intervals import CONFIDENCE, QUALITY_SPREAD

KNOWN = Section(PAGE, "Known items, by time", "python benchmarks/board.py")
DEAR = Section(PAGE, "Where items are dear", "python benchmarks/board.py")
ORDINALS = ("first", "second", "third", "fourth")
SEEDS = Section(PAGE, "Repeated with another seed", "python benchmarks/board.py")


def dear() -> list[Mapping[str, board.Standing]]:
    """Return the boards of CiteULike and anime with a dear encoder."""
    own = boards("plain")
    assert own.keys() == {"anime", "cite"}
    return [own["cite"], own["anime"]]


def first_three(of: Mapping[str, board.Standing]) -> list[str]:
    """Return the three contestants that are soonest to the first target."""
    trained = (name for name in of if name in board.CONTESTANTS)
    return sorted(trained, key=lambda name: of[name].seconds)[:3]


def repeats_rows(table: int) -> list[str]:
    return markdown.render([board.repeats_tables(repeated())[table]]).splitlines()


SPREADS = [f"{data}, to {share}" for data, share in board.spreads(repeated())]
for number, ways in enumerate([*(of[""] for of in repeated().values()), SPREADS]):
    traces_rows(SEEDS, ["", *ways])(partial(repeats_rows, number))


def settings(trials: Iterable[Mapping[str, Any]], contestants: Iterable[str]) -> list[str]:
    """Return the settings of some contestants' trials but the seed, as texts."""
    own = (each["config"] for each in trials if each["contestant"] in {*contestants})
    return sorted(json.dumps(config | {"seed": 0}, sort_keys=True) for config in own)


@traces(SEEDS, "Six ways")
def repeated_ways() -> list[str]:
    for name in ("anime", "cite"):
        path = board.BOARD / f"{name}-with-seed-1.json.gz"
        kept, first = reference.read(path), reference.read(board.BOARD / f"{name}.json.gz")
        counts = Counter(each["contestant"] for each in kept["trials"])
        assert {*counts.values()} == {board.TUNED}
        assert len(counts) == 6

        assert settings(kept["trials"], counts) == settings(first["trials"], counts)
        assert {each["config"]["seed"] for each in kept["trials"]} == {1}
        ends = [datetime.fromisoformat(each["environment"]["time"]) for each in (first, kept)]
        assert ends[0].date() == ends[1].date()
        assert ends[1] - ends[0] > timedelta(hours=7)
    shares = " and ".join(map(str, board.SHARES))
    return ["Six ways", "seven hours", "eight trials", f"to {shares} of the same recalls"]


@traces(SEEDS, "*On CiteULike the first three")
def same_order() -> list[str]:
    for of in repeated()["cite"].values():
        assert first_three(of) == ["strat-ns", "ns", "ns, usual logQ"]
    return ["first three to 0.9"]


@traces(SEEDS, "*On anime two of the first three are the same*")
def same_of_anime() -> list[str]:
    one, other = map(first_three, repeated()["anime"].values())
    assert {*one} & {*other} == {"mixed-ns", "strat-ns"}
    return [f"{word(len({*one} & {*other}))} of the first three"]


@traces(SEEDS, "The third is")
def third_of_anime() -> list[str]:
    one, other = map(first_three, repeated()["anime"].values())
    assert {*one} - {*other} == {"neg"}
    assert {*other} - {*one} == {"ns, usual logQ"}
    return ["The third"]


@traces(SEEDS, "How much the times of a way differ")
def assumed() -> list[str]:
    return [f"at {100 * CONFIDENCE:.0f} % ({QUALITY_SPREAD.factor:.2f} is assumed"]


@traces(SEEDS, "*To 0.97 the seeds agree less")
def second_target() -> list[str]:
    return [f"To {board.SHARES[1]} the seeds agree less"]


@traces(SEEDS, "On anime `ns-distinct` alone")
def less_alike() -> list[str]:
    reached = [
        {name for name, own in of.items() if own.seconds[1] < math.inf}
        for of in repeated()["anime"].values()
    ]
    assert set.intersection(*reached) == {"ns-distinct"}
    return []


@traces(SEEDS, "On CiteULike plain `ns` is the first")
def first_to_second() -> list[str]:
    one, other = (
        sorted(of, key=lambda name: of[name].seconds[1]) for of in repeated()["cite"].values()
    )
    places = [ORDINALS[each.index("ns")] for each in (other, one)]
    return ["plain `ns` is the {} of the second seed and the {}".format(*places)]


def known() -> Mapping[str, board.Standing]:
    (own,) = boards("known").values()
    return own


def known_rows() -> list[str]:
    return markdown.render([board.board_table("ml-time", known())]).splitlines()


traces_rows(KNOWN, ["", *CONTESTANTS[1:], "ease", "ials", "popularity"])(known_rows)


@traces(KNOWN, "The same ways on MovieLens by time")
def trials_of_known() -> list[str]:
    kept = reference.read(board.BOARD / "ml-time-with-known.json.gz")
    assert {each["config"]["encoder"] for each in kept["trials"]} == {"cnn"}
    counts = {name: known()[name].trials for name in board.CONTESTANTS}
    fewer = counts.pop("ns-distinct")
    assert {*counts.values()} == {board.TUNED}
    return [f"with {word(board.TUNED)} trials each", f"{word(fewer)} of `ns-distinct`"]


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
    trained = max((known()[name] for name in board.CONTESTANTS), key=lambda own: own.share)
    at = f"EASE has {ease.test:.3f} after {ease.seconds[0]:.2f} s and iALS {ials.test:.3f}"
    return [at, f"has {trained.test:.3f}"]


@traces(KNOWN, "The standard error of these")
def test_error_of_known() -> list[str]:
    (title,) = (title for title in GOOD if title.startswith("MovieLens 100K by time"))
    errors = {answer.error for answer in good_start()[title].floors[:2]}
    errors.add(good_start()[title].arms[0].chosen.error)
    (shown,) = {f"{error:.2f}" for error in errors}
    return [shown]


@traces(KNOWN, "*No pointwise loss passes popularity*")
def pointwise_of_known() -> list[str]:
    least = known()["popularity"]
    for name, (_, losses) in board.CONTESTANTS.items():
        if losses == board.POINTWISE:
            assert known()[name].share < least.share
            assert known()[name].test < least.test
    return []


@traces(DEAR, "Nine of these ways")
def dear_ways() -> list[str]:
    kept = [
        reference.read(board.BOARD / f"{name}-with-plain.json.gz") for name in ("anime", "cite")
    ]
    trials = [trial for own in kept for trial in own["trials"]]
    assert {own["environment"]["cores"] for own in kept} == {1}
    named = {trial["contestant"] for trial in trials}
    assert {own[each].trials for own in dear() for each in named} == {board.TUNED}
    assert {trial["config"]["convolution"] for trial in trials} == {"plain"}
    longest = max(trial["seconds"][-1] for trial in trials)
    return [
        f"{word(len(named)).capitalize()} of these ways",
        f"{word(board.TUNED)} trials",
        f"{longest:.0f} s",
    ]


DEARS = ["", *dict.fromkeys(board.beside_each_other(boards("plain")).standings[0.9])]
traces_rows(DEAR, DEARS)(partial(board_rows, 0, "plain"))
traces_rows(DEAR, DEARS)(partial(board_rows, 1, "plain"))


SHARING = {"strat-ns", "ns", "ns, usual logQ", "mixed-ns", "ns-distinct"}


def times_of_dear(share: float) -> list[dict[str, float]]:
    """Return the seconds of what trains and comes to a target, by contestant."""
    at = board.SHARES.index(share)
    return [
        {
            name: own[name].seconds[at]
            for name in board.CONTESTANTS
            if name in own and own[name].seconds[at] < math.inf
        }
        for own in dear()
    ]


@traces(DEAR, "The five ways that share them")
def sharing_of_dear() -> list[str]:
    for times in times_of_dear(0.9):
        level = {
            name for name in times if times[name] <= QUALITY_SPREAD.factor * min(times.values())
        }
        assert level == SHARING
    return [f"The {word(len(SHARING))} ways", "to 0.9"]


@traces(DEAR, "To 0.97 `strat-ns` comes alone on anime")
def second_of_dear() -> list[str]:
    cite, anime = times_of_dear(0.97)
    assert [*anime] == ["strat-ns"]
    assert cite.keys() == SHARING
    assert min(cite, key=lambda name: cite[name]) == "strat-ns"
    return ["To 0.97", f"first of {word(len(cite))}"]


@traces(DEAR, "Samplers that share no negatives")
def iterations_of_dear() -> list[str]:
    kept = reference.read(board.BOARD / "cite-with-plain.json.gz")["trials"]

    def seconds(name: str) -> float:
        own = (trial for trial in kept if trial["contestant"] == name)
        return float(max(own, key=reference.best)["iteration_seconds"])

    return [
        f"`neg` takes {seconds('neg'):.2f} s and one of `iid` {seconds('iid'):.2f}",
        f"one of `strat-ns` takes {seconds('strat-ns'):.3f}",
    ]


@traces(DEAR, "They come to 0.9 on neither set")
def never_of_dear() -> list[str]:
    assert all(math.isinf(own[name].seconds[0]) for own in dear() for name in ("neg", "iid"))
    return ["come to 0.9"]


@traces(DEAR, "With a pointwise loss")
def loss_of_dear() -> list[str]:
    cite, anime = dear()
    assert math.isinf(anime["strat-ns, pointwise"].seconds[0])
    ratio = cite["strat-ns, pointwise"].seconds[0] / cite["strat-ns"].seconds[0]
    return [f"comes to 0.9 on CiteULike after {ratio:.1f} times as long"]


@traces(DEAR, "LSA stands beside the CNN")
def features_of_dear() -> list[str]:
    for name in ("anime", "cite"):
        for trial in reference.read(board.BOARD / f"{name}-with-plain.json.gz")["trials"]:
            is_without = name == "anime" and trial["config"]["loss"] in board.POINTWISE
            assert (trial["config"]["features"] == "ignore") == is_without
    return []


@traces(DEAR, "Ridge regression has 0.97")
def floors_of_dear() -> list[str]:
    for own in dear():
        assert max(own, key=lambda each: own[each].test or 0) == "ridge"
    cite, anime = dear()
    return [
        f"has 0.97 after {cite['ridge'].seconds[1]:.1f} s on CiteULike",
        f"{anime['ridge'].seconds[1]:.2f} s on anime",
        f"have 0.9 after {cite['profile'].seconds[0]:.2f} s",
    ]
