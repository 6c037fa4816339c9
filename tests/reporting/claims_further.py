"""Claims of docs/boards.md on a transformer and on rivals that were tuned further, and of the
summary of dear items.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

import board
import board_training
import search_reference as reference
from claims_boards import TUNED, board_rows, boards
from claims_families import MORE, PAGE, SHARING, dear, first_iterations
from traced import Section, traces, traces_rows, word

from ncfbench.timing.intervals import QUALITY_SPREAD

TRANSFORMER = Section(PAGE, "A transformer", "python benchmarks/board.py")
FURTHER = Section(PAGE, "Rivals tuned further", "python benchmarks/board.py")
NAMES = {
    "cite": "CiteULike",
    "anime": "anime",
    "debian": "Debian",
    "plots": "plots",
    "yelp": "Yelp",
}
WAY = "strat-ns, pointwise"

TITLES = ["", *dict.fromkeys(board.beside_each_other(boards("transformer")).standings[0.9])]
traces_rows(TRANSFORMER, TITLES)(partial(board_rows, 0, "transformer"))
traces_rows(TRANSFORMER, TITLES)(partial(board_rows, 1, "transformer"))


def of(data: str) -> Mapping[str, board.Standing]:
    """Return a data set's board of a transformer."""
    return boards("transformer")[data]


@traces(MORE, "*Where items are dear*")
def dear_and_shared() -> list[str]:
    for standing in (*dear(), of("anime"), of("cite")):
        ranking = {
            name
            for name in standing
            if board.CONTESTANTS.get(name, ({}, ""))[1] != board_training.POINTWISE
        }
        reached = {
            name
            for name in ranking & board.CONTESTANTS.keys()
            if standing[name].seconds[0] < math.inf
        }
        assert reached == SHARING - ({"mixed-ns"} if standing == of("cite") else set())
        assert math.isinf(standing["iid"].seconds[0])
        assert max(standing, key=lambda name: standing[name].test or 0) == "ridge"
    return [f"the {word(len(SHARING))} ways that share them", "come to 0.9"]


@traces(TRANSFORMER, "The same nine ways on anime")
def ways_of_transformer() -> list[str]:
    counts = set()
    for data in ("anime", "cite"):
        trials = reference.read(board.BOARD / f"{data}-with-transformer.json.gz")["trials"]
        (model,) = {
            tuple(trial["config"][name] for name in ("encoder", "layers", "width", "features"))
            for trial in trials
        }
        assert (model[0], model[3]) == ("transformer", "add")
        named = {trial["contestant"] for trial in trials}
        assert {of(data)[name].trials for name in named} == {board_training.TUNED}
        counts.add(word(len(named)))
    (count,) = counts
    return [
        f"same {count} ways on anime and on CiteULike",
        f"{word(model[1])} blocks of width {model[2]}",
    ]


@traces(TRANSFORMER, "*Ridge regression has")
def ridge_beside_transformer() -> list[str]:
    for data in ("anime", "cite"):
        assert max(of(data), key=lambda name: of(data)[name].test or 0) == "ridge"
    anime, cite = of("anime")["ridge"], of("cite")["ridge"]
    return [
        f"has {anime.share:.3f} of the best after {anime.seconds[0]:.2f} s on anime",
        f"{cite.share:.3f} after {cite.seconds[0]:.1f} s on CiteULike",
    ]


def trained(data: str, at: int) -> dict[str, float]:
    """Return the seconds of what is trained by gradients and comes to a target."""
    ways = board.CONTESTANTS.keys() & of(data).keys()
    return {
        name: of(data)[name].seconds[at] for name in ways if of(data)[name].seconds[at] < math.inf
    }


@traces(TRANSFORMER, "*Again the ways that share")
def sharing_of_transformer() -> list[str]:
    assert trained("anime", 0).keys() == SHARING
    assert trained("cite", 0).keys() == SHARING - {"mixed-ns"}
    for data in ("anime", "cite"):
        times = trained(data, 0).values()
        assert max(times) < QUALITY_SPREAD.factor * min(times)
    return ["come to 0.9", f"ends at {of('cite')['mixed-ns'].share:.3f}"]


@traces(TRANSFORMER, "To 0.97 `ns` comes")
def second_of_transformer() -> list[str]:
    assert trained("anime", 1).keys() == {"ns", "ns, usual logQ", "strat-ns"}
    assert trained("cite", 1).keys() == {"strat-ns"}
    return ["To 0.97"]


@traces(TRANSFORMER, "*Drawn negatives do not*")
def pointwise_of_transformer() -> list[str]:
    standings = [of(data)["strat-ns, pointwise"] for data in ("cite", "anime")]
    assert [own.is_cut for own in standings] == [False, True]
    assert all(
        own.share > of(data)["ns, pointwise"].share
        for own, data in zip(standings, ("cite", "anime"), strict=True)
    )
    trials = reference.read(board.BOARD / "cite-with-transformer.json.gz")["trials"]
    own = (each for each in trials if each["contestant"] == "strat-ns, pointwise")
    assert max(own, key=reference.best)["config"]["loss"] == "mse"
    cite, anime = (f"{each.share:.3f}" for each in standings)
    return [f"comes to {cite} on CiteULike", f"ended at {anime} on anime"]


@traces(TRANSFORMER, "On CiteULike an iteration of")
def iterations_of_transformer() -> list[str]:
    names = ("iid", "neg", "ns", "strat-ns")
    size, times = first_iterations("cite-with-transformer", names)
    iid, neg, ns, strat = (f"{each:.2f}" for each in times)
    first = f"an iteration of {size} links takes `iid` {iid} s, `neg` {neg}"
    return [f"{first}, `ns` {ns} and `strat-ns` {strat}"]


@traces(TRANSFORMER, "`neg` ends at")
def ends_of_transformer() -> list[str]:
    anime, cite = (of(data)["neg"] for data in ("anime", "cite"))
    assert cite.is_cut
    assert not anime.is_cut
    assert all(of(data)["iid"].is_cut for data in ("anime", "cite"))
    ends = " and at ".join(f"{of(data)['iid'].share:.3f}" for data in ("anime", "cite"))
    return [
        f"ends at {anime.share:.3f} on anime, and was ended at {cite.share:.3f} on CiteULike",
        f"`iid` at {ends}",
    ]


def shares(data: str) -> list[float]:
    """Return a way's shares: with its own model, with other weights of negatives, and the same with
    the ranking ways' model where that is another one.
    """
    families = ("", "weight", "same", "same-weight") if data != "plots" else ("", "weight")
    return [boards(family)[data][WAY].share for family in families]


@traces_rows(FURTHER, NAMES.values())
def weight_rows() -> list[str]:
    rows = []
    for data, name in NAMES.items():
        own = [f"{each:.3f}" for each in shares(data)]
        cells = [*own, *["-"] * (4 - len(own)), f"{boards()[data]['strat-ns'].share:.3f}"]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return rows


def weights(data: str, family: str) -> set[float]:
    """Return the weights of negatives that were tried in a board."""
    trials = reference.read(board.BOARD / f"{data}{family}.json.gz")["trials"]
    return {each["config"]["lambda"] for each in trials if each["contestant"] == WAY}


@traces(FURTHER, "More trials of each")
def usual_weights() -> list[str]:
    usual: dict[str, float] = {}
    for data in NAMES:
        trials = reference.read(board.BOARD / f"{data}.json.gz")["trials"]
        usual |= {
            each["config"]["loss"]: each["config"]["lambda"]
            for each in trials
            if each["contestant"] == WAY
        }
        for family in ("-with-weight", "-with-same-weight")[: 1 + (data != "plots")]:
            tried = weights(data, family)
            assert tried.isdisjoint(weights(data, ""))
            more = 4 if (data, family) == ("debian", "-with-weight") else 0
            assert len(tried) == board_training.TUNED + more
    own = boards("weight")["debian"][WAY].trials
    return [
        f"{word(board_training.TUNED)} other weights",
        f"{usual['sg']:.0f} for skip-gram and {usual['mse']:.0f} for MSE, {word(own)} on Debian",
    ]


@traces(FURTHER, "*Other weights bring more by validation")
def more_with_weight() -> list[str]:
    gains = {data: shares(data)[1] - shares(data)[0] for data in NAMES}
    assert min(gains.values()) > 0
    anime, debian = gains.pop("anime"), gains.pop("debian")
    least, most = min(gains.values()), max(gains.values())
    ends = f"{debian:.3f} on Debian and {least:.3f} to {most:.3f} elsewhere"
    return [f"{anime:.3f} on anime, {ends}"]


@traces(FURTHER, "On plots `strat-ns` then comes to 0.9")
def plots_with_weight() -> list[str]:
    usual, own = (boards(family)["plots"][WAY] for family in ("", "weight"))
    assert (own.test or 0) < (usual.test or 0)
    return [f"to 0.9 after {own.seconds[0]:.3g} s"]


@traces(FURTHER, "With a pointwise one `strat-ns` had")
def below_ranking() -> list[str]:
    tried = {}
    for data in NAMES:
        families = ("", "weight", "same", "same-weight")[: len(shares(data))]
        tried[data] = sum(boards(family)[data][WAY].trials for family in families)
        assert max(shares(data)) < boards()[data]["strat-ns"].share
    plots = tried.pop("plots")
    return [f"had {min(tried.values())} trials or more, and {plots} on plots"]


@traces(FURTHER, "*Drawn negatives on Debian*")
@traces(TUNED, "On Debian it was ended")
def drawn_on_debian() -> list[str]:
    usual, own = boards()["debian"]["neg"], boards("own")["debian"]["neg"]
    assert usual.is_cut
    assert not own.is_cut
    return [f"ended at {usual.share:.3f}", f"comes to {own.share:.3f}"]


@traces(TUNED, "`strat-ns` with such a loss")
def tuned_weights() -> list[str]:
    best = [max(shares(data)) for data in NAMES]
    below_ranking()
    return [f"comes to {min(best):.2f} to {max(best):.2f}"]
