"""Claims of docs/boards.md on ways that have the same model, and on a frozen text model."""

from __future__ import annotations

from functools import partial

import board
import board_training
import search_reference as reference
from claims_boards import TUNED, board_rows, boards
from claims_families import PAGE
from traced import Section, traces, traces_rows, word

SAME = Section(PAGE, "The same model for all ways", "python benchmarks/board.py")
FROZEN = Section(PAGE, "With a frozen text model", "python benchmarks/board.py")
SETS = {"anime": "anime", "cite": "CiteULike", "debian": "Debian", "yelp": "Yelp"}
POINTWISE = [
    name for name, (_, losses) in board.CONTESTANTS.items() if losses == board_training.POINTWISE
]
MODEL = (
    *("encoder", "features", "dimension", "word_dimension", "mlp_layers", "bare_bag"),
    *("user_tower", "history_of", "own_vector", "user_layers", "user_units"),
    *("word_dropout", "item_dropout", "feature_dropout", "weight_decay"),
)


def share(own: board.Standing) -> str:
    return f"{own.share:.3f}{'+' * own.is_cut}"


@traces_rows(SAME, POINTWISE)
def same_rows() -> list[str]:
    rows = []
    for name in POINTWISE:
        cells = [f"{share(boards()[at][name])}, {share(boards('same')[at][name])}" for at in SETS]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return rows


def models(board_name: str, contestants: list[str]) -> set[tuple[str, ...]]:
    """Return the models of some contestants' trials."""
    trials = reference.read(board.BOARD / f"{board_name}.json.gz")["trials"]
    return {
        tuple(str(trial["config"].get(name)) for name in MODEL)
        for trial in trials
        if trial["contestant"] in contestants
    }


@traces(SAME, "Here they begin at")
def same_models() -> list[str]:
    for name in SETS:
        assert models(f"{name}-with-same", POINTWISE) == models(name, ["strat-ns"])
        assert models(name, POINTWISE) != models(name, ["strat-ns"])
    assert models("plots", POINTWISE) <= models("plots", ["strat-ns"])
    assert {boards("same")[at][name].trials for at in SETS for name in POINTWISE} == {
        board_training.TUNED
    }
    return [f"{word(board_training.TUNED)} trials"]
