"""The race to a recall: the rival's loss and one recall for both by hand, and the figures."""

from __future__ import annotations

import json
import math
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import peer_recall as race
import pytest

from ncfbench.data.store import Dataset


@pytest.mark.parametrize("mask", ["user", "item"])
def test_the_rivals_loss_is_that_of_numpy(tiny: Dataset, mask: str) -> None:
    """Link by link, with the batch's other links as negatives, one by one."""
    torch, rival = pytest.importorskip("torch"), pytest.importorskip("peer_rival")
    given = {"dimension": 6, "temperature": 0.2, "word_dropout": 0.0, "mask": mask, "layer": True}
    links = rival.Links(tiny, rival.DEFAULTS | given)
    model, chosen = rival.TwoTower(tiny, rival.DEFAULTS | given), torch.arange(0, 960, 15)
    users, items, own, bias = links.batch(chosen)
    loss = model(users, own, bias, *model.bags(items)).item()

    words, table, kernel, shift = (value.detach().numpy().T for value in model.parameters())
    user, item = links.users[chosen].tolist(), links.items[chosen].tolist()
    linked = set(zip(*(ids.tolist() for ids in tiny.links("train")), strict=True))
    means = np.stack([table[:, tiny.texts[i]].mean(axis=1) for i in item]) @ kernel + shift
    scores = [[a @ b / math.hypot(*a) / math.hypot(*b) for b in means] for a in words.T[user]]
    losses, masked = [], 0
    for row, u in enumerate(user):
        total = math.exp(scores[row][row] / 0.2)
        for column, i in enumerate(item):
            is_other = (u, i) not in linked if mask == "user" else i != item[row]
            masked += i != item[row] and not is_other
            share = np.mean(tiny.links("train")[1] == i)
            total += is_other * math.exp(scores[row][column] / 0.2) / (63 * share)
        losses.append(math.log(total) - scores[row][row] / 0.2)
    assert len(set(item)) < 64 <= len(linked & set(zip(user, item, strict=True)))
    assert (masked > 5) == (mask == "user")
    assert loss == pytest.approx(np.mean(losses), rel=1e-5)


def test_recall_by_given_vectors_is_that_of_sorted_scores(tiny: Dataset) -> None:
    recall, rng = race.Recall(tiny), np.random.default_rng(0)
    users, items = (rng.normal(size=(n, 5)).astype("f") for n in (tiny.n_users, tiny.n_items))
    wanted = []
    for split in ("validation", "test"):
        ids, (by_user, linked), shares = tiny.items_of(split), tiny.links(split), []
        for user in np.unique(by_user):
            best = ids[np.argsort(-items[ids] @ users[user])[:50]]
            shares.append(np.mean(np.isin(linked[by_user == user], best)))
        wanted.append(np.mean(shares))
    assert list(recall(users, items[recall.items])) == pytest.approx(wanted)


def program(number: int, *points: tuple[float, ...], name: str = "ours") -> dict[str, Any]:
    settings = {"validation": "0.3,0.4", "test": "0.2,0.5", "seconds": 9}
    cell = {"program": name, "settings": settings, "trial": {"b": number}, "compile_seconds": 1.0}
    return cell | {"points": [(0, 0, 0.1, 0.1), *points]}


def texts(table: Any) -> list[list[str]]:
    return [[cell.text for cell in row] for row in table.rows]


def test_a_trial_is_timed_by_its_quickest_look() -> None:
    """0.4 lies half-way from 0.3 to 0.5, after 300 links, of 0.01 s each in the second look."""
    slow = program(1, (200, 4, 0.3, 0.2), (400, 6, 0.5, 0.3), (600, 9, 0.2, 0.2))
    assert race.reached(slow["points"], race.VALIDATION, 0.4) == pytest.approx(5)
    soon, never = program(2, (100, 1, 0.4, 0.2)), program(3, (100, 0.1, 0.39, 0.9))
    rows = texts(race.trial_table([slow, never, soon]))
    assert rows[0][1:] == ["10000.0", "0", "3.0", "0.500", ""]
    assert [row[3::2] for row in rows[1:]] == [["-", ""], ["1.0", "*"]]
    assert race.best_trial([never], "ours") is never
    with pytest.raises(race.UsageError, match="no trial of PyTorch is kept"):
        race.best_trial([slow], "PyTorch")


def test_the_ratio_is_within_a_seed() -> None:
    """To 0.2 ours takes 1 and 2 s, theirs 4 and 2: the geometric mean of 4 and 1 is 2."""
    both = [((10, 2, 0.3, 0.3), (20, 8, 0.5, 0.3)), ((10, 4, 0.3, 0.3), (20, 4, 0.5, 0.3))]
    races = [
        {"ours": program(0, ours), "PyTorch": program(0, theirs, name="PyTorch")}
        for ours, theirs in both
    ]
    rows = texts(race.race_table(races, races[0]["ours"]["settings"]))
    assert rows[1][:6] == ["validation", "0.4", "-", "0", "-", "4.5"]
    assert rows[2][4:7] == ["1.5", "3.0", "2.00"]
    assert rows[3] == ["test", "0.5", *["-"] * 6]


def test_a_race_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trials, then both programs in turn; here all in this process."""
    pytest.importorskip("torch")
    here = nullcontext(lambda function, *arguments: function(*arguments))
    monkeypatch.setattr(race, "process", lambda: here)
    words = ["--quick", f"--data-dir={tmp_path}", f"--json={tmp_path / 'race.json'}"]
    race.RaceToRecall().main(words)
    *trials, last = json.loads((tmp_path / "race.json").read_text())["cells"]
    assert [trial["program"] for trial in trials] == ["ours", "PyTorch"] == list(last["programs"])
    for one in last["programs"].values():
        points = np.array(one["points"])
        assert (np.diff(points[:, :2], axis=0) > 0).all()
        assert points[-1, race.TEST] > points[0, race.TEST] + 0.05
        assert one["compile_seconds"] > 0
    race.RaceToRecall().main([*words, "--resume"])
    assert "race 0 (3 of 3): kept" in capsys.readouterr().err
