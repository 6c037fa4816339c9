"""Claims of docs/boards.md on ways that have the same model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import board
import board_training
import search_reference as reference
from claims_boards import TUNED, boards
from claims_families import PAGE
from traced import Section, traces, traces_rows, word

SAME = Section(PAGE, "The same model for all ways", "python benchmarks/board.py")
SETS = {"anime": "anime", "cite": "CiteULike", "debian": "Debian", "yelp": "Yelp"}
POINTWISE = [
    name for name, (_, losses) in board.CONTESTANTS.items() if losses == board_training.POINTWISE
]
MODEL = (
    *("encoder", "features", "dimension", "word_dimension", "mlp_layers", "bare_bag"),
    *("user_tower", "history_of", "own_vector", "user_layers", "user_units"),
    *("word_dropout", "item_dropout", "feature_dropout", "weight_decay"),
)


def share(own: board.Standing | None) -> str:
    return "-" if own is None else f"{own.share:.3f}{'+' * own.is_cut}"


@traces_rows(SAME, POINTWISE)
def same_rows() -> list[str]:
    rows = []
    for name in POINTWISE:
        cells = [
            f"{share(boards()[at][name])}, {share(boards('same')[at].get(name))}" for at in SETS
        ]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return rows


def models(board_name: str, contestants: Sequence[str] = POINTWISE) -> set[tuple[str, ...]]:
    """Return the models of some contestants' trials; without the dropout of features that nobody
    reads.
    """
    found = set()
    for trial in reference.read(board.BOARD / f"{board_name}.json.gz")["trials"]:
        own = {name: str(trial["config"].get(name)) for name in MODEL}
        if own["features"] == "ignore" and own["history_of"] in ("ids", "None"):
            del own["feature_dropout"]
        if trial["contestant"] in contestants:
            found.add(tuple(own.values()))
    return found


@traces(SAME, "Here they begin at")
def same_models() -> list[str]:
    for name in SETS:
        assert models(f"{name}-with-same", POINTWISE) == models(name, ["strat-ns"])
        assert models(name, POINTWISE) != models(name, ["strat-ns"])
    assert models("plots", POINTWISE) <= models("plots", ["strat-ns"])
    own = [
        boards("same")[at][name] for at in SETS for name in POINTWISE if name in boards("same")[at]
    ]
    assert {each.trials for each in own} == {board_training.TUNED}
    return [f"{word(board_training.TUNED)} trials"]


@traces(SAME, "The best pointwise way")
def ranking_of_same() -> list[str]:
    best = {
        at: max(boards("same")[at][name].share for name in POINTWISE if name in boards("same")[at])
        for at in SETS
    }
    ranking = {at: boards()[at]["strat-ns"].share for at in SETS}
    assert all(best[at] < ranking[at] for at in SETS)
    anime, cite, debian, yelp = (f"{best[at]:.3f}" for at in SETS)
    own = ", ".join(f"{ranking[at]:.3f}" for at in SETS)
    return [
        f"{anime} on anime, {cite} on CiteULike, {debian} on Debian and {yelp} on Yelp",
        f"to {' and '.join(own.rsplit(', ', 1))}",
    ]


@traces(SAME, "From this one `strat-ns`")
def suited_by_same() -> list[str]:
    way = "strat-ns, pointwise"
    gains = {at: boards("same")[at][way].share - boards()[at][way].share for at in SETS}
    assert [at for at, gain in gains.items() if gain > 0.05] == ["anime", "yelp"]
    assert gains["cite"] < -0.05
    assert abs(gains["debian"]) < 0.02
    sizes = [best_of(name, way)["batch_size"] for name in ("cite", "cite-with-same")]
    assert sizes[0] == 4 * sizes[1]
    return ["a quarter as large"]


def best_of(board_name: str, way: str) -> Mapping[str, Any]:
    """Return the settings of a way's best trial."""
    trials = reference.read(board.BOARD / f"{board_name}.json.gz")["trials"]
    own = (each for each in trials if each["contestant"] == way)
    config: Mapping[str, Any] = max(own, key=reference.best)["config"]
    return config


@traces(SAME, "`iid` comes lower")
def iid_of_same() -> list[str]:
    own = {at: boards("same")[at]["iid"] for at in SETS}
    assert all(own[at].share < boards()[at]["iid"].share for at in SETS)
    return [f"ended early on {word(sum(each.is_cut for each in own.values()))}"]


USUAL = "ns, usual logQ"


@traces(SAME, "*`ns` with the usual logQ* is here")
def alone_of_same() -> list[str]:
    for name in ("plots", "yelp", "debian"):
        assert models(f"{name}-with-same", [USUAL]) == models(name, ["strat-ns"])
    trials = {
        name: reference.read(board.BOARD / f"{name}-with-same.json.gz")["trials"]
        for name in ("plots", "yelp")
    }
    assert {
        each["config"]["gamma"]
        for own in trials.values()
        for each in own
        if each["contestant"] == USUAL
    } == {5.0}
    return []


@traces(SAME, "It comes to")
def usual_of_same() -> list[str]:
    own, before, plain = (
        [f"{boards(family)[at][name].share:.3f}" for at in ("plots", "yelp", "debian")]
        for family, name in (("same", USUAL), ("", USUAL), ("", "ns"))
    )
    return [
        f"comes to {own[0]} on plots, {own[1]} on Yelp and {own[2]} on Debian",
        f"plain `ns` to {plain[0]}, {plain[1]} and {plain[2]}",
        f"had {before[0]}, {before[1]} and {before[2]}",
    ]


@traces(SAME, "*With this model, too")
def trials_of_same() -> list[str]:
    trials = reference.read(board.BOARD / "cite-with-same.json.gz")["trials"]
    for way in POINTWISE:
        own = [each["config"] for each in trials if each["contestant"] == way]
        mse = [each["batch_size"] for each in own if each["loss"] == "mse"]
        assert (len(own), len(mse), len({*mse})) == (board_training.TUNED, 3, 1)
    return [f"in {word(board_training.TUNED)} trials each", "MSE has three"]


@traces(SAME, "This was trained on another machine")
def machine_of_same() -> list[str]:
    first, own = (
        reference.read(board.BOARD / f"{name}.json.gz")["environment"]
        for name in ("cite", "cite-with-same")
    )
    assert first["system"] != own["system"]
    assert first["cpu"] == own["cpu"]
    return ["the next two sections"]


@traces(TUNED, "A ranking loss reaches more")
def loss_decides() -> list[str]:
    return ranking_of_same()[:1]
