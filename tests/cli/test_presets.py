"""``--preset``, and the floors in a run's last lines."""

import json
import math
import shutil
import tomllib
from pathlib import Path

import numpy as np
import pytest
from support.cli import check, invoke

from ncfbench.catalog.presets import PRESETS
from ncfbench.config import complete
from ncfbench.floors import floor as floors
from ncfbench.floors import kept as kept_floors
from ncfbench.storage import tables
from ncfbench.storage.schemas import EVALUATION, FLOOR
from ncfbench.training import run as training


def printed(*flags):
    return tomllib.loads(invoke("run", *flags, "--print-config").stdout)


def test_the_papers_preset_changes_nothing():
    assert PRESETS["paper"] == {}
    assert printed("--preset", "paper") == printed()


def test_a_preset_lies_below_flags_and_files(tmp_path):
    file = tmp_path / "own.toml"
    file.write_text("dimension = 40\n")

    settings = printed("--preset", "good", "--loss", "log", "--config", str(file))

    good = PRESETS["good"]
    assert (settings["loss"], settings["dimension"]) == ("log", 40)
    assert settings["encoder"] == good["encoder"]
    assert settings["word_dimension"] == good["word_dimension"]


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_names_settings_that_its_run_reads(name):
    config = complete(PRESETS[name])
    assert config.to_dict().items() >= PRESETS[name].items()
    assert all(config.reads(config.settings[setting]) for setting in PRESETS[name])


def test_settings_of_a_preset_that_another_encoder_lacks_are_left_out():
    answer = invoke("run", "--preset", "good", "--encoder", "mf", "--print-config")
    check(answer, 0, 'encoder = "mf"')
    assert "changes nothing" not in answer.stderr


def test_a_program_names_a_preset_too(monkeypatch):
    made = []
    monkeypatch.setattr(
        training, "run_and_blend", lambda config, *_, **__: made.append(config) or 1
    )
    training.train(dataset="tiny", preset="good", dimension=40)
    assert made == [complete({**PRESETS["good"], "dataset": "tiny", "dimension": 40})]


def test_a_run_ends_beside_the_floors(data_dir, tmp_path):
    """Those of its data alone, in words and in JSON; without any, how to get some."""
    data = tmp_path / "data"
    without = shutil.ignore_patterns(kept_floors.FILE)  # other tests may have fitted some
    shutil.copytree(data_dir / "tiny", data / "tiny", ignore=without)
    settings = "--encoder bow --loss softmax --epochs 1 --batch-size 64 --set dimension=4"
    words = ["run", "--dataset", "tiny", *settings.split(), "--set", "word_dimension=4", "--quiet"]
    words += ["--data-dir", str(data), "--runs-dir", str(tmp_path)]
    command = f"ncfbench floor tiny --data-dir {data}".replace(" ", "")

    def offers_floors(answer):
        check(answer, 0, "To see what is reached without training: ")
        return command in "".join(answer.output.split())  # however its lines fold

    assert offers_floors(invoke(*words))

    rows = floors.floor("tiny", floors=["profile"], data_dir=data, say=lambda text: None).rows
    kept = data / "tiny" / kept_floors.FILE
    others = rows[0] | {"floor": "ridge", "data_fingerprint": "another split"}
    tables.write_rows(kept, [*rows, others], FLOOR)

    recall = rows[0]["test_recall_at_50"]
    answer = invoke(*words)
    check(answer, 0, f"Without training: profile {recall:.3f} (", "This run's recall@50, ")
    assert "ridge" not in answer.stdout
    found = json.loads(invoke(*words, "--json").stdout)
    (floor,) = found["floors"]
    assert (floor["floor"], floor["test_recall_at_50"]) == ("profile", recall)
    evaluated = tables.read_rows(Path(found["folder"]) / "evaluation.parquet", EVALUATION)
    (own,) = (row for row in evaluated if row["split"] == "test")
    users, items = (
        np.subtract(own[name], rows[0][f"test_{name}"]) for name in ("user_recalls", "item_shares")
    )
    gap, n = found["test_recall_at_50"] - recall, len(items)
    error = math.hypot(users.std(ddof=1) / len(users) ** 0.5, np.sqrt(n / (n - 1) * items @ items))
    is_level = abs(gap) <= 2 * error
    assert floor["above_by"] == pytest.approx(gap)
    assert floor["above_by_error"] == pytest.approx(error)
    assert f"profile ({gap:+.3f} ± {error:.3f})." in answer.stdout
    assert floor["this_run"] == ("level" if is_level else "passes" if gap > 0 else "below")

    assert found["blend"] is None, "recall of so few validation items is 1, and chooses no weight"
    kept.write_bytes(b"damaged")
    answer = invoke(*words)
    check(answer, 0, "Skipped floors.parquet: ")
    assert offers_floors(answer)
    fitted = invoke(*words, "--preset", "good", "--again")
    check(fitted, 0, "Without training: ", "ridge 0.")
