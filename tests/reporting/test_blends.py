"""Blends beside both parts: what the answer says of them."""

from typing import Any

import pytest
from support.cli import check, invoke
from support.records import floor_row, write_run

from ncfbench.blending import blend
from ncfbench.floors.kept import FILE
from ncfbench.reporting.results import collect
from ncfbench.reporting.views.sentences import worth_sentence
from ncfbench.storage import schemas, tables

ERRORS = (0.003, 0.004)


def write_blend(folder, recall, apart=0.05):
    """A run of recall 0.53 and its blend, whose two users are so far from the mean."""
    run = write_run(folder, "ns", [9, 5, 3], 20, [0, 0.4, 0.53], errors=ERRORS)
    row = dict.fromkeys(schemas.BLEND.names) | {"floor": "ridge", "iteration": 200}
    for of in ("test", "validation"):
        row |= {f"{of}_user_recalls": [recall - apart, recall + apart]}
        row |= {f"{of}_item_shares": [recall / 400] * 400}
    recalls = dict.fromkeys(["test_recall_at_50", "validation_recall_at_50"], recall)
    blend.write(run, row | recalls | {"weight": 0.7})


@pytest.mark.parametrize(
    ("recall", "apart", "begins"),
    [
        (
            0.70,
            0.04,
            "Training is worth it: both together have +0.160 ± ",
        ),
        (
            0.55,
            0.14,
            "Training is not clearly worth it: both together have +0.010 ± ",
        ),
    ],
)
def test_what_is_clearly_above_the_floor_is_no_reason_against_training(
    tmp_path, recall, apart, begins
):
    """Its users are as far apart as the floor's, or farther."""
    write_blend(tmp_path, recall, apart)
    own: dict[str, Any] = {"test_user_recalls": [0.5, 0.58], "test_item_shares": [0.54 / 400] * 400}
    floors = [floor_row("ridge", 0.54, 1.0, **own)]
    tables.write_rows(tmp_path / FILE, floors, schemas.FLOOR)
    results = collect(tmp_path, tmp_path)
    assert worth_sentence(results.answers[0]).startswith(begins)
    (answer,) = results.answer_rows
    assert f"of ridge), {recall:.3f}, are " in answer["headline"]
    assert f"ridge ({recall - 0.54:+.3f} ± " in answer["headline"]


def test_a_blend_beside_a_floor_of_other_users_is_not_compared(tmp_path):
    """As where floors are older than a rule of who counts: nothing is said of a difference."""
    write_blend(tmp_path, 0.55)
    more = {"test_user_recalls": [0.5] * 3, "test_item_shares": [0.25] * 2}
    tables.write_rows(tmp_path / FILE, [floor_row("ridge", 0.5, 1.0, **more)], schemas.FLOOR)
    check(invoke("report", tmp_path), 0, "are beside ridge (not compared) and training alone")
