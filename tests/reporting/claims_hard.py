"""Claims of docs/results.md on hard negatives and memories, computed from the kept boards."""

from __future__ import annotations

import math

import board
import search_reference as reference
from claims_boards import HARD, TUNED, alike_within, boards
from traced import traces


@traces(TUNED, "Without one the 32 hardest")
def hard_negatives() -> list[str]:
    for name, plain in zip(HARD, ("ns", "neg", "ns"), strict=True):
        for own in boards().values():
            for own_time, plain_time in zip(own[name].seconds, own[plain].seconds, strict=True):
                assert own_time >= plain_time
            assert own[name].share < own[plain].share
    hardest, mined = (
        board.CONTESTANTS[name][0][setting]
        for name, setting in (("ns, 32 hardest", "hardest"), ("neg, 200 mined", "mined"))
    )
    return [f"the {hardest} hardest of a batch, {mined} mined ones"]


@traces(TUNED, "With it, and a margin, the 32 hardest")
def warm_hardest() -> list[str]:
    name = "ns, 32 hardest, warm"
    for data, own in boards().items():
        factor, times = alike_within(data), (own[name].seconds[0], own["ns"].seconds[0])
        assert max(times) < min(factor * min(times), math.inf)
        assert own[name].is_warm[0] == (data == "cite")
        assert (own[name].share < own["ns"].share) == (data != "plots")
    late = boards()["debian"]
    assert math.isinf(late[name].seconds[1])
    assert late["ns"].seconds[1] < math.inf
    return [
        f"the {board.CONTESTANTS[name][0]['hardest']} hardest come to 0.9",
        "do not come to 0.97",
    ]


@traces(TUNED, "A memory ends lower than")
def warm_ends() -> list[str]:
    for data, own in boards().items():
        assert own["xbm, warm"].share < own["ns"].share
        mined, drawn = own["neg, 200 mined, warm"], own["neg"]
        assert mined.share < drawn.share or (data == "debian" and mined.is_cut and drawn.is_cut)
    return []


@traces(TUNED, "In the best trials with mined negatives")
def warm_mined() -> list[str]:
    name, ends = "neg, 200 mined, warm", []
    start = board.CONTESTANTS[name][0]["warm_start"]
    for data in ("anime", "cite"):
        trials = reference.read(board.BOARD / f"{data}-with-{board.MORE}.json.gz")["trials"]
        best = max((each for each in trials if each["contestant"] == name), key=reference.best)
        count = sum(iteration <= start for iteration in best["iterations"])
        ends.append((max(best["validation"][:count]), best["validation"][-1]))
    anime, cite = (f"from {before:.3f} to {after:.3f} on" for before, after in ends)
    return [f"{anime} anime and {cite} CiteULike"]
