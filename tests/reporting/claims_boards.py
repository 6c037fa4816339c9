"""Claims of docs/results.md on ways to build batches, computed from the kept boards."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping
from functools import cache, partial

import board
import board_training
import search_reference as reference
from claims_readme import good_start, one_core
from claims_results import PAGE
from traced import Section, traces, traces_rows, word

from ncfbench.catalog import SAMPLERS
from ncfbench.reporting.render import markdown
from ncfbench.timing.intervals import QUALITY_SPREAD

TUNED = Section(PAGE, "Ways to build batches, eight trials each", "python benchmarks/board.py")


@cache
def boards(family: str = "") -> Mapping[str, Mapping[str, board.Standing]]:
    return board.kept_boards(family=family)


@cache
def repeated() -> Mapping[str, Mapping[str, Mapping[str, board.Standing]]]:
    return board.repeated_boards()


def alike_within(data: str, share: float = board.SHARES[0]) -> float:
    """Return the factor within which one seed cannot tell times apart."""
    return board.alike_within(board.spreads(repeated()), data, share)


def soonest(share: float) -> dict[str, set[str]]:
    """Return the contestants that are soonest, or level with that one, by data set."""
    standings = board.beside_each_other(boards(), board.spreads(repeated())).standings[share]
    return {
        name: {each for each, own in standings.items() if own[at] and own[at].is_tied}
        for at, name in enumerate(boards())
    }


def board_rows(table: int, family: str = "") -> list[str]:
    return markdown.render([board.boards_tables(boards(family))[table]]).splitlines()


HARD = ("ns, 32 hardest", "neg, 200 mined", "xbm")
CONTESTANTS = ["", *board.CONTESTANTS, "ridge", "profile"]
traces_rows(TUNED, CONTESTANTS)(partial(board_rows, 0))
traces_rows(TUNED, CONTESTANTS)(partial(board_rows, 1))


@traces(TUNED, "*Warm*: hard negatives")
def warm() -> list[str]:
    own = [board.CONTESTANTS[f"{name}, warm"][0] for name in HARD]
    (start,) = {changes["warm_start"] for changes in own}
    (margin,) = {changes["positive_margin"] for changes in own if "positive_margin" in changes}
    every, usual = own[1]["mine_every"], {each.name: each for each in SAMPLERS["neg"].settings}
    for name, changes in zip(HARD, own, strict=True):
        shared = board.CONTESTANTS[name][0].items()
        assert shared <= changes.items()
        apart = {"warm_start", "positive_margin", "mine_every"}
        assert dict(shared) == {key: changes[key] for key in changes if key not in apart}
    return [
        f"after {start} iterations",
        f"by {margin:g}",
        f"every {every} iterations, not every {usual['mine_every'].default}",
    ]


@traces(TUNED, "Nineteen ways")
def ways() -> list[str]:
    present = [own[each] for own in boards().values() for each in board.CONTESTANTS if each in own]
    assert {each.trials for each in present} == {board_training.TUNED}
    assert len(board_training.POINTWISE) == len(board_training.RANKING) == 2
    return [
        f"{word(len(board.CONTESTANTS)).capitalize()} ways to build batches on"
        f" {word(len(boards()))} of the data sets, each with {word(board_training.TUNED)} trials",
    ]


@traces(TUNED, "Seconds, features included,")
def targets() -> list[str]:
    return [" and ".join(map(str, board.SHARES)), "on one core of an Intel Xeon"]


@traces(TUNED, "Trials train for")
def longest_trials() -> list[str]:
    kept = [reference.read(board.BOARD / f"{name}.json.gz") for name in boards()]
    assert one_core(own["environment"] for own in kept)
    longest = max(trial["seconds"][-1] for own in kept for trial in own["trials"])
    assert board_training.HOPELESS == (0.5, 0.5)
    return [
        f"for {longest:.0f} s at most",
        "from half of that on they end if they have less than half",
    ]


@traces(TUNED, "On plots pointwise and ranking ways")
def same_on_plots() -> list[str]:
    """But for dropout of features, which are not read."""
    names = ("encoder", "user_tower", "dimension", "word_dropout", "item_dropout", "weight_decay")
    trials = reference.read(board.BOARD / "plots.json.gz")["trials"]
    assert len({tuple(each["config"][name] for name in names) for each in trials}) == 1
    return []


@traces(TUNED, "`ns` with the usual logQ also differs")
def scales() -> list[str]:
    found: dict[str, set[tuple[str, float]]] = {}
    for name in boards():
        trials = reference.read(board.BOARD / f"{name}.json.gz")["trials"]
        configs = (each["config"] for each in trials)
        found[name] = {
            (config["loss"], config["gamma"])
            for config in configs
            if config["loss"].startswith("softmax")
        }
    apart = {name: dict(of) for name, of in found.items() if len({scale for _, scale in of}) > 1}
    assert apart.keys() == {"plots", "yelp"}
    (own,) = {tuple(sorted(of.items())) for of in apart.values()}
    (_, softmax), (_, usual) = own
    return [f"is {usual:.0f}, where the softmax of the others has {softmax:.0f}"]


@traces(TUNED, "The eight trials of a way")
def tuning_time() -> list[str]:
    minutes = [
        sum(each["wall_seconds"] for each in own["trials"] if each["contestant"] == name) / 60
        for data, more in itertools.product(boards(), ("", f"-with-{board.MORE}"))
        for own in [reference.read(board.BOARD / f"{data}{more}.json.gz")]
        for name in {each["contestant"] for each in own["trials"]}
    ]
    return [
        f"{word(board_training.TUNED)} trials",
        f"took {min(minutes):.1f} to {max(minutes):.1f} minutes",
    ]


@traces(TUNED, "On Debian `ns-distinct`")
def distinct_on_debian() -> list[str]:
    assert [name for name, own in boards().items() if "ns-distinct" not in own] == ["debian"]
    return [f"{min(board_training.SMALL)} links"]


@traces(TUNED, "[Floors]")
def cores_of_floors() -> list[str]:
    paths = board.FLOORS[0].parent.glob("*/environment.json")
    assert one_core(json.loads(path.read_text()) for path in paths)
    return ["seconds of one fit"]


@traces(TUNED, "Features take")
def features() -> list[str]:
    names, kept = ("cite", "anime", "yelp", "debian"), {}
    for name in boards():
        own = reference.read(board.BOARD / f"{name}.json.gz")
        configs = [each["config"] for each in own["trials"]]
        if any(
            each["features"] == "add" or each.get("history_of") in ("features", "both", "content")
            for each in configs
        ):
            kept[name] = f"{own['feature_seconds']:.3g}"
    assert kept.keys() == {*names}
    cite, anime, yelp, debian = (kept[name] for name in names)
    ends = f"{anime} on anime, {yelp} on Yelp and {debian} on Debian"
    return [f"{cite} s of these on CiteULike, {ends}"]


@traces(TUNED, "Models are those of the best trials")
def models() -> list[str]:
    pointwise = {
        name
        for name, (_, losses) in board.CONTESTANTS.items()
        if losses == board_training.POINTWISE
    }
    found: dict[str, set[str]] = {}
    for name in boards():
        trials = reference.read(board.BOARD / f"{name}.json.gz")["trials"]
        for trial in trials:
            tower = trial["config"]["user_tower"]
            is_pointwise = trial["contestant"] in pointwise
            has_table = not is_pointwise if name == "debian" else is_pointwise
            has_table &= name in ("anime", "cite", "debian")
            assert tower == ("table" if has_table else "history")
            reads_features = trial["config"]["features"] == "add"
            assert reads_features == (name in ("anime", "cite", "debian"))
            found.setdefault(name, set()).add(trial["config"]["encoder"])
    assert found.pop("plots") == {"cnn"}
    assert found.pop("debian") == {"mlp"}
    assert {*map(frozenset, found.values())} == {frozenset({"bow"})}
    return []


@traces(TUNED, "One seed: times")
def one_seed_of_boards() -> list[str]:
    assert {(data, share) for data in boards() for share in board.SHARES} - {
        each
        for each, own in board.spreads(repeated()).items()
        if own.degrees >= board.LEAST_DEGREES
    } == {("anime", 0.97), *itertools.product(("debian", "plots", "yelp"), board.SHARES)}
    first, second = (f"{alike_within('cite', share):.2f} to {share}" for share in board.SHARES)
    return [
        f"a factor of {QUALITY_SPREAD.factor:.1f}",
        f"{alike_within('anime'):.2f} on anime to {board.SHARES[0]}",
        f"within {first} and {second} on CiteULike",
    ]


@traces(TUNED, "Test recalls have standard errors")
def errors_of_boards() -> list[str]:
    titles = ("anime", "CiteULike, `good`", "Debian's packages", "MovieLens with plots", "Yelp")
    errors = [f"{good_start()[title].arms[0].chosen.error:.3f}" for title in titles]
    names = ("anime", "CiteULike", "Debian", "plots", "Yelp")
    return [f"{of} on {name}" for of, name in zip(errors, names, strict=True)]


def behind(name: str) -> dict[str, float]:
    """Return how many times as long as the soonest a contestant takes to 0.9, by data set."""
    first = {data: min(each.seconds[0] for each in of.values()) for data, of in boards().items()}
    return {data: of[name].seconds[0] / first[data] for data, of in boards().items() if name in of}


@traces(TUNED, "*To 0.9 `strat-ns` with a ranking loss and `ns` with the usual logQ")
def soonest_to_first() -> list[str]:
    assert set.intersection(*soonest(0.9).values()) == {"strat-ns", "ns, usual logQ"}
    assert [name for name, own in soonest(0.9).items() if "ns-distinct" not in own] == ["debian"]
    return [f"To {board.SHARES[0]} `strat-ns`"]


@traces(TUNED, "`strat-ns` takes at most")
def at_most_behind() -> list[str]:
    strat, usual = (max(behind(name).values()) for name in ("strat-ns", "ns, usual logQ"))
    return [f"{strat:.2f} times as long as the soonest", f"at most {usual:.2f} times"]


@traces(TUNED, "Plain `ns` is behind on anime")
def others_behind() -> list[str]:
    late = {name: [at for at in boards() if name not in soonest(0.9)[at]] for name in CONTESTANTS}
    assert late["ns"] == ["anime"]
    assert late["mixed-ns"] == ["plots"]
    assert 0.89 < boards()["plots"]["mixed-ns"].share < board.SHARES[0]
    others = [of for family, of in repeated()["anime"].items() if family]
    for of in others:
        least = min(each.seconds[0] for each in of.values())
        assert of["ns"].seconds[0] < alike_within("anime") * least
    return [
        f"by {behind('ns')['anime']:.1f} times",
        f"with [{word(len(others))} other seeds]",
        f"just below {board.SHARES[0]}",
    ]


@traces(TUNED, "*To 0.97 `strat-ns` and `ns` are on three")
def at_second() -> list[str]:
    sets = [name for name, own in soonest(0.97).items() if {"strat-ns", "ns"} <= own]
    return [
        f"To 0.97 `strat-ns` and `ns` are on {word(len(sets))} of the {word(len(boards()))} sets"
    ]


@traces(TUNED, "By set, with what cannot be told from it")
def soonest_to_second() -> list[str]:
    assert soonest(0.97) == {
        "cite": {"strat-ns", "ns", "ns, usual logQ"},
        "anime": {"ns-distinct", "mixed-ns", "neg"},
        "debian": {"strat-ns", "ns", "ns, usual logQ"},
        "plots": set(),
        "yelp": {"ns", "strat-ns", "ns-distinct", "mixed-ns", "ns, 32 hardest, warm"},
    }
    reached = {name for name, own in boards()["anime"].items() if own.seconds[1] < math.inf}
    assert reached == soonest(0.97)["anime"]
    others = [
        {name for name, own in of.items() if own.seconds[1] < math.inf}
        for of in repeated()["anime"].values()
    ]
    assert set.intersection(*others) == {"ns-distinct"}
    return []


def drawn() -> dict[str, float]:
    """Return how many times as long drawn negatives take as `strat-ns` to 0.9, by data set."""
    return {
        name: own["neg"].seconds[0] / own["strat-ns"].seconds[0] for name, own in boards().items()
    }


@traces(TUNED, "To 0.9 `neg` with a softmax")
def drawn_negatives() -> list[str]:
    anime, cite, plots, yelp = (drawn()[name] for name in ("anime", "cite", "plots", "yelp"))
    return [
        f"To 0.9 `neg` with a softmax takes {anime:.1f} times as long as `strat-ns` on anime",
        f"{cite:.1f} times on CiteULike, {plots:.1f} on plots and {yelp:.1f} on Yelp",
    ]


@traces(TUNED, "One seed shows this on")
def shown_of_drawn() -> list[str]:
    reached = {name: ratio for name, ratio in drawn().items() if ratio < math.inf}
    assert [name for name in reached if reached[name] > alike_within(name)] == ["cite", "plots"]
    return []


@traces(TUNED, "`iid`, the paper's baseline")
def pointwise() -> list[str]:
    own = {name: boards()[name]["iid"] for name in boards()}
    assert [name for name in own if own[name].is_cut] == ["debian", "yelp"]
    at = {name: f"{each.share:.3f}" for name, each in own.items()}
    ended = f"it was ended at {at['yelp']} on Yelp and at {at['debian']} on Debian"
    ends = f"{at['anime']} on anime and {at['plots']} on plots; {ended}"
    return [f"to {at['cite']} of the best on CiteULike, {ends}"]


@traces(TUNED, "The best of these")
def best_pointwise() -> list[str]:
    names = [
        name
        for name, (_, losses) in board.CONTESTANTS.items()
        if losses == board_training.POINTWISE
    ]
    found = {at: max((own[name].share, name) for name in names) for at, own in boards().items()}
    assert {at: name for at, (_, name) in found.items()} == {
        "anime": "strat-all",
        "cite": "strat-ns, pointwise",
        "debian": "strat-ns, pointwise",
        "plots": "strat-ns, pointwise",
        "yelp": "ns, pointwise",
    }
    best = {name: f"{share:.3f}" for name, (share, _) in found.items()}
    return [
        f"`strat-ns`, with {best['cite']} on CiteULike, {best['plots']} on plots and"
        f" {best['debian']} on Debian",
        f"`strat-all`, with {best['anime']} on anime",
        f"`ns`, with {best['yelp']} on Yelp",
    ]


@traces(TUNED, "*Ridge regression*")
def ridge() -> list[str]:
    reached = [name for name, own in boards().items() if own["ridge"].seconds[0] < math.inf]
    assert reached == ["cite"]
    seconds = boards()["cite"]["ridge"].seconds[0]
    return [f"to {board.SHARES[0]} by validation", f"after {seconds:.1f} s"]


@traces(TUNED, "By test links it is nearer")
def ridge_by_test() -> list[str]:
    shares = {}
    for name, own in boards().items():
        best = max((each for each in own if each in board.CONTESTANTS), key=lambda x: own[x].share)
        shares[name] = f"{(own['ridge'].test or 0) / (own[best].test or 1):.2f}"
    ends = f"{shares['debian']} on Debian, {shares['plots']} on plots and {shares['yelp']} on Yelp"
    return [f"{shares['anime']} on anime, {shares['cite']} on CiteULike, {ends}"]
