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
    counts = {}
    for data in ("anime", "cite"):
        trials = reference.read(board.BOARD / f"{data}-with-transformer.json.gz")["trials"]
        (model,) = {
            tuple(trial["config"][name] for name in ("encoder", "layers", "width", "features"))
            for trial in trials
        }
        assert (model[0], model[3]) == ("transformer", "add")
        named = {trial["contestant"] for trial in trials}
        assert {of(data)[name].trials for name in named} == {board_training.TUNED}
        counts[data] = word(len(named))
    return [
        f"same {counts['anime']} ways on anime, and {counts['cite']} of them on CiteULike",
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


def weighed(data: str) -> tuple[float, float, float, str]:
    """Return a way's share at the usual weight of negatives and at the best of eight others, that
    weight, and the loss.
    """
    trials = reference.read(board.BOARD / f"{data}-with-weight.json.gz")["trials"]
    best = max(trials, key=reference.best)["config"]
    usual, own = boards()[data][WAY], boards("weight")[data][WAY]
    assert own.trials == board_training.TUNED
    return usual.share, own.share, best["lambda"], best["loss"]


@traces_rows(FURTHER, NAMES.values())
def weight_rows() -> list[str]:
    rows = []
    for data, name in NAMES.items():
        usual, own, weight, loss = weighed(data)
        test = boards("weight")[data][WAY].test
        rows.append(f"| {name} | {loss} | {usual:.3f} | {own:.3f} | {weight:g} | {test:.3f} |")
    return rows


@traces(FURTHER, "Eight more trials of each")
def usual_weights() -> list[str]:
    usual = {}
    for data in NAMES:
        trials = reference.read(board.BOARD / f"{data}.json.gz")["trials"]
        usual |= {
            each["config"]["loss"]: each["config"]["lambda"]
            for each in trials
            if each["contestant"] == WAY
        }
    weights = f"{usual['sg']:.0f} for skip-gram and {usual['mse']:.0f} for MSE"
    return [f"{word(board_training.TUNED).capitalize()} more trials", weights]


@traces(FURTHER, "*Eight more trials with other weights")
def more_with_weight() -> list[str]:
    gains = {data: weighed(data)[1] - weighed(data)[0] for data in NAMES}
    assert min(gains.values()) > 0
    anime, debian = gains.pop("anime"), gains.pop("debian")
    least, most = min(gains.values()), max(gains.values())
    ends = f"{debian:.3f} on Debian and {least:.3f} to {most:.3f} elsewhere"
    trials = f"{word(board_training.TUNED).capitalize()} more trials"
    return [trials, f"{anime:.3f} on anime, {ends}"]


@traces(FURTHER, "By test links there is nothing gained")
def test_with_weight() -> list[str]:
    usual, own = boards()["plots"][WAY].test, boards("weight")["plots"][WAY].test
    assert usual is not None
    assert own is not None
    assert own < usual
    return []


@traces(FURTHER, "On Debian the best weight is the lowest")
def lowest_weight() -> list[str]:
    trials = reference.read(board.BOARD / "debian-with-weight.json.gz")["trials"]
    assert weighed("debian")[2] == min(each["config"]["lambda"] for each in trials)
    return []


@traces(FURTHER, "On plots it comes to 0.9")
def plots_with_weight() -> list[str]:
    return [f"to 0.9, after {boards('weight')['plots'][WAY].seconds[0]:.3g} s"]


@traces(FURTHER, "With a ranking loss `strat-ns` has more still")
def below_ranking() -> list[str]:
    for data in NAMES:
        assert weighed(data)[1] < boards()[data]["strat-ns"].share
    return []


@traces(FURTHER, "*Drawn negatives on Debian*")
@traces(TUNED, "On Debian it was ended")
def drawn_on_debian() -> list[str]:
    usual, own = boards()["debian"]["neg"], boards("own")["debian"]["neg"]
    assert usual.is_cut
    assert not own.is_cut
    return [f"ended at {usual.share:.3f}", f"comes to {own.share:.3f}"]


@traces(TUNED, "With [other weights of negatives]")
def tuned_weights() -> list[str]:
    shares = [weighed(data)[1] for data in NAMES]
    return [
        f"{word(board_training.TUNED)} more trials",
        f"comes to {min(shares):.2f} to {max(shares):.2f}",
    ]
