"""A race on held-out links: floors of known items, chance, and words."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.races import ask

from ncfbench.advice import summary
from ncfbench.data.store import prepare_dataset
from ncfbench.floors.models import FLOORS
from ncfbench.reporting.floors import standing
from ncfbench.reporting.quality import NEW_ITEMS


@pytest.mark.long
def test_a_race_on_held_out_links(tmp_path, tiny_options):
    """Chance by plain loops, and recall of new and known items apart."""
    options = replace(tiny_options, hold_out="links")
    data = prepare_dataset("synthetic", name="tiny", data_dir=tmp_path, **vars(options))
    few: dict[str, Any] = {"sampler": ("neg", "ns"), "learning_rate": (0.01,)}
    few |= {"encoder": "mf", "loss": ("log",), "metric": "recall@50"}
    advice, _ = ask(tmp_path, tmp_path, **few)
    answer = advice.answer
    assert {floor.row["floor"] for floor in answer.floors} == {*FLOORS} - {"denoised"}
    stands = [standing(arm, answer.floors[0]) for arm in answer.arms]
    assert any(at.error is not None for at in stands)
    assert all((at.word == "unknown") == (at.error is None) for at in stands)
    training = data.links("train")[0].tolist()
    left = [data.n_items - training.count(user) for user in set(data.links("test")[0].tolist())]
    assert answer.chance == pytest.approx(np.mean([50 / count for count in left]))
    tables, text = summary.answer_tables(answer), summary.headline(answer)
    notes = [note for table in tables for note in table.notes]
    notes += summary.as_json(answer, tmp_path, {})["trust"]
    assert not re.search("(test|validation|held-out) items", " ".join([text, *notes]))
    if answer.best is not None:
        assert answer.best.reported is not None
        assert f"(new items {answer.best.reported.text(NEW_ITEMS)}, known items 0." in text
