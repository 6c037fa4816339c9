"""What a race decides while arms are at chance, from records that literals make."""

import json

import pytest
from support.records import answered, entered, written

from ncfbench.advice import summary
from ncfbench.cli.output import json_text
from ncfbench.runs.quality import chance
from ncfbench.storage import tables


@pytest.fixture
def learned(monkeypatch):
    """Lets runs of some samplers be better than chance from 1 s on, and no others."""

    def learn(*samplers):
        monkeypatch.setattr(
            "ncfbench.advice.answer.learned_at",
            lambda record, dataset: 1.0 if record.config.sampler in samplers else None,
        )

    return learn


def test_an_arm_at_chance_is_not_recommended(tmp_path, tiny, learned):
    """However high its recall: noise alone may have brought it there. While all are at chance there
    is no choice, and nothing to compare.
    """
    best, high = entered("best", "ns"), entered("high", "iid")
    records = {
        "best": written(tmp_path, best, [0, 0.2, 0.4], 10),
        "high": written(tmp_path, high, [0, 0.3, 0.5], 40),
    }
    learned("ns")
    found = answered(tiny, [high, best], records)
    assert [(each.name, each.status) for each in found.arms] == [
        ("best", "recommended"),
        ("high", "slower"),
    ]
    assert found.arms[1].behind is None
    learned()
    none = answered(tiny, [high, best], records)
    assert none.best is None
    assert summary.headline(none).startswith(
        "No choice can be justified: after 2 s of training each, the validation recall@50 of none"
        f" of 2 is clearly above chance ({chance(tiny, 'validation'):.3f})."
    )
    assert "tied" not in summary.headline(none)
    assert summary.answer_tables(none) == []
    document = json.loads(json_text(summary.as_json(none, tmp_path, {})))
    assert (document["recommended"], document["tied"]) == (None, [])


def test_an_answer_before_any_evaluation(tmp_path, tiny):
    """A race may be interrupted in its first rung; such an arm is neither the best nor worth
    anything beside another. At most 50 items are ranked for validation links here, so that recall
    cannot tell who is at chance.
    """
    early, best = entered("early", "ns"), entered("best", "iid")
    records = {"early": written(tmp_path, early, [], 10), "best": []}
    found = answered(tiny, [early, best], records)
    assert summary.headline(found).startswith("No choice yet: no arm has been evaluated.")
    assert (found.best, found.target) == (None, None)
    tables.write_json(tmp_path / "answer.json", summary.as_json(found, tmp_path, {}))
    shown = tables.read_json(tmp_path / "answer.json")
    assert [row["level"] for row in shown["arms"]] == [None, None]
    records["best"] = written(tmp_path, best, [0, 0.2, 0.4], 10)
    found = answered(tiny, [early, best], records)
    assert found.best is not None
    assert found.best.name == "best"
    (table,) = summary.answer_tables(found)
    assert [row[0].text for row in table.rows] == ["the recommended"]
    tables.write_json(tmp_path / "answer.json", summary.as_json(found, tmp_path, {}))
