"""Claims of docs/boards.md on other seeds and dear items, and of the summary of all."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import board
import board_training
import search_reference as reference
from claims_boards import alike_within, board_rows, boards, repeated
from traced import Section, traces, traces_rows, word

from ncfbench.reporting.render import markdown
from ncfbench.timing.intervals import CONFIDENCE, QUALITY_SPREAD

PAGE = "docs/boards.md"
HEAD = Section(PAGE, "More boards", "python benchmarks/board.py")
MORE = Section("docs/results.md", "More boards", "python benchmarks/board.py")
DEAR = Section(PAGE, "Where items are dear", "python benchmarks/board.py")
SEEDS = Section(PAGE, "Repeated with other seeds", "python benchmarks/board.py")


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


@traces(HEAD, "Tables have the seconds")
def targets() -> list[str]:
    return [f"the seconds to {' and '.join(map(str, board.SHARES))} of the best validation recall"]


@traces(HEAD, "One seed: times")
def one_seed() -> list[str]:
    return [f"within a factor of {QUALITY_SPREAD.factor:.1f}"]


@traces(MORE, "*With other seeds* the first three")
def same_first() -> list[str]:
    cite_first(), anime_first()
    return ["the first three to 0.9"]


@traces(MORE, "To 0.97 the seeds agree less")
def less_alike_to_second() -> list[str]:
    return second_target()


def settings(trials: Iterable[Mapping[str, Any]], contestants: Iterable[str]) -> list[str]:
    """Return the settings of some contestants' trials but the seed, as texts."""
    own = (each["config"] for each in trials if each["contestant"] in {*contestants})
    return sorted(json.dumps(config | {"seed": 0}, sort_keys=True) for config in own)


@traces(SEEDS, "Anime and CiteULike once more")
def repeated_ways() -> list[str]:
    counts = {}
    for name, seed in itertools.product(("anime", "cite"), (1, 2)):
        first = reference.read(board.BOARD / f"{name}.json.gz")
        kept = reference.read(board.BOARD / f"{name}-with-seed-{seed}.json.gz")
        trials = Counter(each["contestant"] for each in kept["trials"])
        assert {*trials.values()} == {board_training.TUNED}
        assert settings(kept["trials"], trials) == settings(first["trials"], trials)
        assert {each["config"]["seed"] for each in kept["trials"]} == {seed}
        counts[seed] = len(trials)
        own, other = (each["environment"] for each in (first, kept))
        began, ended = (datetime.fromisoformat(each["time"]) for each in (own, other))
        assert (ended.date() - began.date()).days == seed - 1
        assert (own["system"] == other["system"]) == (seed == 1)
        assert own["cpu"] == other["cpu"]
        assert seed == 2 or ended - began > timedelta(hours=7)
    return [
        f"the same {word(board_training.TUNED)} trials",
        f"{word(counts[1])} ways seven hours later",
        f"all {word(counts[2])} on the next day",
    ]


@traces(SEEDS, "Seconds to 0.9")
def same_targets() -> list[str]:
    return [f"to {' and '.join(map(str, board.SHARES))} of the same recalls"]


def each_first(name: str) -> list[list[str]]:
    """Return the first three of each seed, which cannot be told from the soonest of the others."""
    boards = [*repeated()[name].values()]
    firsts, factor = [first_three(of) for of in boards], alike_within(name)
    for of in boards:
        soonest = min(each.seconds[0] for each in of.values())
        assert all(of[way].seconds[0] <= factor * soonest for first in firsts for way in first)
    return firsts


@traces(SEEDS, "*On CiteULike the first three to 0.9")
def cite_first() -> list[str]:
    firsts = each_first("cite")
    assert {frozenset(each) for each in firsts} == {frozenset({"strat-ns", "ns", "ns, usual logQ"})}
    assert {each[0] for each in firsts} == {"strat-ns"}
    return ["first three to 0.9"]


@traces(SEEDS, "*On anime `strat-ns` and `mixed-ns`")
def anime_first() -> list[str]:
    shared = set.intersection(*map(set, each_first("anime")))
    assert shared == {"strat-ns", "mixed-ns"}
    return ["among the first three"]


@traces(SEEDS, "The third is")
def anime_third() -> list[str]:
    thirds = [{*first} - {"strat-ns", "mixed-ns"} for first in each_first("anime")]
    assert thirds == [{"neg"}, {"ns, usual logQ"}, {"ns-distinct"}]
    return ["The third"]


@traces(SEEDS, "How much the times of a way differ")
def assumed() -> list[str]:
    return [
        "two seeds or more",
        f"at {100 * CONFIDENCE:.0f} % ({QUALITY_SPREAD.factor:.2f} is assumed",
    ]


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


@traces(SEEDS, "On CiteULike the soonest is")
def first_to_second() -> list[str]:
    firsts = [min(of, key=lambda name: of[name].seconds[1]) for of in repeated()["cite"].values()]
    assert sorted(firsts) == ["ns", "strat-ns", "strat-ns"]
    return ["`strat-ns` twice"]


def first_iterations(name: str, contestants: Iterable[str]) -> tuple[int, list[float]]:
    """Return the batch size of some contestants' first trials, and the seconds of an iteration."""
    trials = reference.read(board.BOARD / f"{name}.json.gz")["trials"]
    first = {each["contestant"]: each for each in trials if each["number"] == 0}
    (size,) = {first[each]["config"]["batch_size"] for each in contestants}
    return size, [first[each]["iteration_seconds"] for each in contestants]


@traces(DEAR, "Nine of these ways")
def dear_ways() -> list[str]:
    kept = [
        reference.read(board.BOARD / f"{name}-with-plain.json.gz") for name in ("anime", "cite")
    ]
    trials = [trial for own in kept for trial in own["trials"]]
    assert {own["environment"]["cores"] for own in kept} == {1}
    named = {trial["contestant"] for trial in trials}
    assert {own[each].trials for own in dear() for each in named} == {board_training.TUNED}
    assert {trial["config"]["convolution"] for trial in trials} == {"plain"}
    longest = max(trial["seconds"][-1] for trial in trials)
    return [
        f"{word(len(named)).capitalize()} of these ways",
        f"{word(board_training.TUNED)} trials",
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


@traces(DEAR, "To 0.97 `strat-ns` is the only one of them on anime")
def second_of_dear() -> list[str]:
    cite, anime = times_of_dear(0.97)
    assert [*anime] == ["strat-ns"]
    assert cite.keys() == SHARING
    assert min(cite, key=lambda name: cite[name]) == "strat-ns"
    behind = {name for name in cite if cite[name] > QUALITY_SPREAD.factor * cite["strat-ns"]}
    assert behind == {"mixed-ns"}
    return ["To 0.97", f"all {word(len(cite))} come there"]


@traces(DEAR, "Samplers that share no negatives")
def iterations_of_dear() -> list[str]:
    size, times = first_iterations("cite-with-plain", ("neg", "iid", "strat-ns"))
    neg, iid, strat = times
    first = f"an iteration of {size} links takes `neg` {neg:.2f} s and `iid` {iid:.2f}"
    return [f"{first}, where it takes `strat-ns` {strat:.3f}"]


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
            is_without = name == "anime" and trial["config"]["loss"] in board_training.POINTWISE
            assert (trial["config"]["features"] == "ignore") == is_without
    return []


@traces(DEAR, "The pointwise ways on anime have none")
def smaller_on_anime() -> list[str]:
    trials = reference.read(board.BOARD / "anime-with-plain.json.gz")["trials"]
    sizes = {
        each["config"]["loss"] in board_training.POINTWISE: each["config"]["dimension"]
        for each in trials
    }
    assert len({(each["config"]["dimension"]) for each in trials}) == len(sizes)
    return [f"{sizes[True]} dimensions instead of {sizes[False]}"]


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
