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
    configs = []
    monkeypatch.setattr(
        training, "run_and_blend", lambda config, *_, **__: configs.append(config) or 1
    )
    training.train(dataset="tiny", preset="good", dimension=40)
    assert configs == [complete({**PRESETS["good"], "dataset": "tiny", "dimension": 40})]


def test_a_run_ends_beside_the_floors(data_dir, tmp_path):
    """Those of its data alone, in words and in JSON; without any, how to get some."""
    data = tmp_path / "data"
    without = shutil.ignore_patterns(kept_floors.FILE)  # other tests may have fitted some
    shutil.copytree(data_dir / "tiny", data / "tiny", ignore=without)
    settings = "--dataset tiny --encoder bow --loss softmax --epochs 1 --batch-size 64"
    words = ["run", *settings.split(), "--set", "dimension=8", "--set", "word_dimension=8"]
    words += ["--quiet", "--data-dir", data, "--runs-dir", tmp_path]
    command = f"ncfbench floor tiny --data-dir {data}".replace(" ", "")

    def offers_floors(answer):
        check(answer, 0, "To see what is reached without training: ")
        return command in "".join(answer.output.split())  # however its lines fold

    assert offers_floors(invoke(*words))

    (row,) = floors.floor("tiny", floors=["profile"], data_dir=data, say=lambda text: None).rows
    kept, recall = data / "tiny" / kept_floors.FILE, row["test_recall_at_50"]
    tables.write_rows(kept, [row, row | {"floor": "ridge", "data_fingerprint": "another"}], FLOOR)
    printed = invoke(*words)
    check(printed, 0, f"Without training: profile {recall:.3f} (", "This run's recall@50, ")
    assert "ridge" not in printed.stdout
    answer = json.loads(invoke(*words, "--json").stdout)
    (floor,) = answer["floors"]
    assert (floor["floor"], floor["test_recall_at_50"]) == ("profile", recall)
    evaluated = tables.read_rows(Path(answer["folder"]) / "evaluation.parquet", EVALUATION)
    (of_run,) = (evaluation for evaluation in evaluated if evaluation["split"] == "test")
    users, items = (
        np.subtract(of_run[name], row[f"test_{name}"]) for name in ("user_recalls", "item_shares")
    )
    gap, n = answer["test_recall_at_50"] - recall, len(items)
    error = math.hypot(users.std(ddof=1) / len(users) ** 0.5, np.sqrt(n / (n - 1) * items @ items))
    assert (floor["above_by"], floor["above_by_error"]) == pytest.approx((gap, error))
    assert f"profile ({gap:+.3f} ± {error:.3f})." in printed.stdout
    word = "level" if abs(gap) <= 2 * error else "passes" if gap > 0 else "below"
    assert floor["this_run"] == word
    assert answer["blend"] is None, "recall of so few validation items is 1, and chooses no weight"

    kept.write_bytes(b"damaged")
    printed = invoke(*words)
    check(printed, 0, "Skipped floors.parquet: ")
    assert offers_floors(printed)
    check(invoke(*words, "--preset", "good", "--again"), 0, "Without training: ", "ridge 0.")
