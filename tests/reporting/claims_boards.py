"""Claims of docs/results.md on ways to build batches, computed from the kept boards."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import cache, partial

import board
import search_reference as reference
from claims_readme import good_start, one_core
from claims_results import PAGE, alike_within, one_seed, spreads
from traced import Section, traces, traces_rows, word

from ncfbench.reporting.render import markdown

TUNED = Section(PAGE, "Ways to build batches, eight trials each", "python benchmarks/board.py")


@cache
def boards(family: str = "") -> Mapping[str, Mapping[str, board.Standing]]:
    return board.kept_boards(family=family)


def is_level(
    data: str, first: board.Standing, second: board.Standing, share: float = board.SHARES[0]
) -> bool:
    """Return whether one seed cannot tell the times of two contestants apart."""
    times = [each.seconds[board.SHARES.index(share)] for each in (first, second)]
    return max(times) / min(times) <= alike_within(data)


def soonest(share: float) -> dict[str, set[str]]:
    """Return the contestants that are soonest, or level with that one, by data set."""
    standings = board.beside_each_other(boards(), spreads()).standings[share]
    return {
        name: {each for each, own in standings.items() if own[at] and own[at].is_tied}
        for at, name in enumerate(boards())
    }


def board_rows(table: int, family: str = "") -> list[str]:
    return markdown.render([board.boards_tables(boards(family))[table]]).splitlines()


CONTESTANTS = ["", *board.CONTESTANTS, "ridge", "profile"]
traces_rows(TUNED, CONTESTANTS)(partial(board_rows, 0))
traces_rows(TUNED, CONTESTANTS)(partial(board_rows, 1))


@traces(TUNED, "Sixteen ways")
def ways() -> list[str]:
    present = [own[each] for own in boards().values() for each in board.CONTESTANTS if each in own]
    assert {each.trials for each in present} == {board.TUNED}
    assert len(board.POINTWISE) == len(board.RANKING) == 2
    return [
        f"{word(len(board.CONTESTANTS)).capitalize()} ways to build batches on"
        f" {word(len(boards()))} of the data sets, each with {word(board.TUNED)} trials",
    ]


@traces(TUNED, "Seconds, features included,")
def targets() -> list[str]:
    return [" and ".join(map(str, board.SHARES)), "on one core of an Intel Xeon"]


@traces(TUNED, "Trials train for")
def longest_trials() -> list[str]:
    kept = [reference.read(board.BOARD / f"{name}.json.gz") for name in boards()]
    assert one_core(own["environment"] for own in kept)
    longest = max(trial["seconds"][-1] for own in kept for trial in own["trials"])
    assert board.HOPELESS == (0.5, 0.5)
    return [
        f"for {longest:.0f} s at most",
        "from half of that on they end if they have less than half",
    ]


@traces(TUNED, "But there what is pointwise")
def dimensions_on_debian() -> list[str]:
    trials = reference.read(board.BOARD / "debian.json.gz")["trials"]

    def dimension(is_usual: bool) -> int:
        ranking = (
            each["config"]["dimension"]
            for each in trials
            if board.CONTESTANTS[each["contestant"]][1] != board.POINTWISE
            and is_usual == (each["contestant"] == "ns, usual logQ")
        )
        (found,) = {*ranking}
        return int(found)

    assert dimension(is_usual=True) == 2 * dimension(is_usual=False)
    return ["twice the dimensions"]


@traces(TUNED, "The eight trials of a way")
def tuning_time() -> list[str]:
    minutes = [
        sum(each["wall_seconds"] for each in own["trials"] if each["contestant"] == name) / 60
        for own in (reference.read(board.BOARD / f"{name}.json.gz") for name in boards())
        for name in {each["contestant"] for each in own["trials"]}
    ]
    return [f"{word(board.TUNED)} trials", f"took {min(minutes):.1f} to {max(minutes):.1f} minutes"]


@traces(TUNED, "On Debian `ns-distinct`")
def distinct_on_debian() -> list[str]:
    assert [name for name, own in boards().items() if "ns-distinct" not in own] == ["debian"]
    return [f"{min(board.SMALL)} links"]


@traces(TUNED, "[Floors]")
def cores_of_floors() -> list[str]:
    paths = board.FLOORS[0].parent.glob("*/environment.json")
    assert one_core(json.loads(path.read_text()) for path in paths)
    return ["seconds of one fit"]


@traces(TUNED, "Models are those of the best trials")
def models() -> list[str]:
    pointwise = {
        name for name, (_, losses) in board.CONTESTANTS.items() if losses == board.POINTWISE
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
            found.setdefault(name, set()).add(trial["config"]["encoder"])
    assert found.pop("plots") == {"cnn"}
    assert found.pop("debian") == {"mlp"}
    assert {*map(frozenset, found.values())} == {frozenset({"bow"})}
    return []


@traces(TUNED, "One seed: times")
def one_seed_of_boards() -> list[str]:
    titles = ("anime", "CiteULike, `good`", "Debian's packages", "MovieLens with plots", "Yelp")
    errors = [f"{good_start()[title].arms[0].chosen.error:.3f}" for title in titles]
    names = ("anime", "CiteULike", "Debian", "plots", "Yelp")
    return [*one_seed(), *(f"{of} on {name}" for of, name in zip(errors, names, strict=True))]


@traces(TUNED, "*`strat-ns` with a ranking loss is never clearly behind")
def soonest_to_first() -> list[str]:
    assert set.intersection(*soonest(0.9).values()) == {"strat-ns"}
    return ["to 0.9."]


@traces(TUNED, "It is first on plots")
def first_on_plots() -> list[str]:
    assert soonest(0.9)["plots"] == {"strat-ns"}
    plots = boards()["plots"]
    second = sorted(plots, key=lambda each: plots[each].seconds[0])[1]
    assert second == "ns, usual logQ"
    ratio = plots[second].seconds[0] / plots["strat-ns"].seconds[0]
    return [f"takes {ratio:.1f} times as long"]


@traces(TUNED, "It is level with four others")
def level_on_others() -> list[str]:
    names = ("anime", "cite", "yelp", "debian")
    anime, cite, yelp, debian = (word(len(soonest(0.9)[name]) - 1) for name in names)
    return [
        f"with {anime} others on anime, with {cite} on CiteULike, with {yelp} on Yelp and with"
        f" {debian} on Debian"
    ]


@traces(TUNED, "*To 0.97 no way is first everywhere")
def at_second() -> list[str]:
    assert not set.intersection(*soonest(0.97).values())
    return ["To 0.97 no way"]


@traces(TUNED, "On CiteULike `strat-ns` and `ns` with the usual logQ are")
@traces(TUNED, "On Yelp `ns`, `strat-ns`, `ns-distinct` and `mixed-ns` are")
@traces(TUNED, "On anime `ns-distinct`, `mixed-ns` and `neg` are")
@traces(TUNED, "On plots nobody comes there in this time")
def soonest_to_second() -> list[str]:
    assert soonest(0.97) == {
        "cite": {"strat-ns", "ns, usual logQ"},
        "anime": {"ns-distinct", "mixed-ns", "neg"},
        "debian": {"strat-ns", "ns", "ns, usual logQ"},
        "plots": set(),
        "yelp": {"ns", "strat-ns", "ns-distinct", "mixed-ns"},
    }
    assert 0.96 < boards()["anime"]["strat-ns"].share < 0.97
    return []


@traces(TUNED, "On anime `neg`")
def drawn_on_anime() -> list[str]:
    anime = boards()["anime"]
    assert is_level("anime", anime["neg"], anime["strat-ns"])
    return ["level with `strat-ns` to 0.9"]


@traces(TUNED, "On CiteULike it takes")
def drawn_elsewhere() -> list[str]:
    own = (boards()[name] for name in ("cite", "plots", "yelp"))
    cite, *others = (each["neg"].seconds[0] / each["strat-ns"].seconds[0] for each in own)
    return [
        f"takes {cite:.1f} times as long as `strat-ns`",
        "on plots {:.1f} and on Yelp {:.1f} times".format(*others),
        f"ended at {boards()['debian']['neg'].share:.2f}",
    ]


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
    names = [name for name, (_, losses) in board.CONTESTANTS.items() if losses == board.POINTWISE]
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


@traces(TUNED, "The 32 hardest")
def hard_negatives() -> list[str]:
    for name, plain in (("ns, 32 hardest", "ns"), ("neg, 200 mined", "neg"), ("xbm", "ns")):
        for own in boards().values():
            for own_time, plain_time in zip(own[name].seconds, own[plain].seconds, strict=True):
                assert own_time >= plain_time
            assert own[name].share < own[plain].share
    hardest, mined = (
        board.CONTESTANTS[name][0][setting]
        for name, setting in (("ns, 32 hardest", "hardest"), ("neg, 200 mined", "mined"))
    )
    return [f"The {hardest} hardest of a batch, {mined} mined ones"]


@traces(TUNED, "*Ridge regression*")
def ridge() -> list[str]:
    assert [name for name, own in boards().items() if own["ridge"].seconds[0] < math.inf] == [
        "cite"
    ]
    at = f"to {board.SHARES[0]} on CiteULike after {boards()['cite']['ridge'].seconds[0]:.1f} s"
    return [at, f"on the {word(len(boards()) - 1)} other sets"]
