"""Samplers, losses and encoders of the user's own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ncfbench import registry
from ncfbench.cli import app
from ncfbench.config import Locations, complete
from ncfbench.errors import UsageError
from ncfbench.training.run import run

MODULE = '''
import jax, jax.numpy as jnp
from flax import nnx
from ncfbench.sampling.listed import NegativeSampler


class Listless:
    """A loss of two lines."""

    family = "pairwise"
    learning_rate = 0.005

    def pair(self, positive, negative):
        return jnp.square(jnp.maximum(negative - positive + 0.2, 0))


class Bag(nnx.Module):
    """The mean of the words."""

    def __init__(self, config, n_items, n_words, *, rngs):
        self.words = nnx.Embed(n_words + 1, config.dimension, rngs=rngs)

    def __call__(self, texts):
        count = jnp.maximum(texts.present.sum(axis=1, keepdims=True), 1)
        return (self.words(texts.tokens) * texts.present[..., None]).sum(axis=1) / count


class Own(NegativeSampler):
    """Negatives of my own."""

    families = ("pairwise",)


class Undeclared(NegativeSampler):
    pass


class Odd(NegativeSampler):
    families = ("sideways",)


number = 3
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"mine_{abs(hash(tmp_path)) % 10**9}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    (tmp_path / f"broken_{name}.py").write_text("raise RuntimeError('no luck')")
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def test_train_with_a_sampler_a_loss_and_an_encoder_of_ones_own(
    module: str, data_dir: Path, tmp_path: Path
) -> None:
    settings = {"dataset": "tiny", "batch_size": 64, "epochs": 2, "dimension": 8}
    own = {"sampler": f"{module}:Own", "loss": f"{module}:Listless", "encoder": f"{module}:Bag"}
    record = run(complete(settings | own), Locations(data_dir, tmp_path / "runs"))
    assert record.curve[-1]["probe_loss"] < record.curve[0]["probe_loss"]
    assert record.config.learning_rate == 0.005
    assert ":" not in record.name
    shown = CliRunner().invoke(app, ["report", "--runs-dir", str(tmp_path / "runs")])
    assert shown.exit_code == 0, shown.output
    assert "Own" in shown.stdout


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"sampler": "{}:Own", "loss": "sg"}, ["serves pairwise losses only"]),
        ({"sampler": "iid", "loss": "{}:Listless"}, ["a pairwise loss compares two items"]),
        ({"sampler": "{}:Undeclared"}, ["has no 'families'"]),
        ({"sampler": "{}:Odd"}, ["sideways", "'listwise'"]),
        ({"sampler": "{}:Owl"}, ["has no 'Owl'", "did you mean 'Own'"]),
        ({"sampler": "{}:number"}, ["is not a class"]),
        ({"sampler": "broken_{}:Own"}, ["RuntimeError: no luck"]),
        ({"sampler": "nowhere.at_all:Own"}, ["No module named", "Run from the folder"]),
        ({"loss": "{}:Own"}, ["has no 'family'"]),
        ({"encoder": "{}:number"}, ["not a class with a __call__"]),
    ],
)
def test_what_cannot_work_is_refused_early(
    module: str, settings: dict[str, str], words: list[str]
) -> None:
    with pytest.raises(UsageError) as caught:
        complete({key: value.format(module) for key, value in settings.items()})
    for word in words:
        assert word in str(caught.value)


def test_modules_of_the_current_folder(tmp_path: Path) -> None:
    (tmp_path / "herefile.py").write_text(MODULE)
    script = (
        "from ncfbench.registry import find_sampler; print(find_sampler('herefile:Own').summary)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "Negatives of my own.\n"


def test_registered_plugins(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        registry, "registered", lambda kind: {"own": f"{module}:Own"} if kind == "sampler" else {}
    )
    assert registry.find_sampler("own").families == ("pairwise",)
    with pytest.raises(UsageError, match="did you mean 'own'"):
        registry.find_sampler("onw")


def test_list(data_dir: Path) -> None:
    result = CliRunner().invoke(app, ["list", "--data-dir", str(data_dir)])
    assert result.exit_code == 0
    for name in (
        *registry.SAMPLERS,
        *registry.LOSSES,
        *registry.ENCODERS,
        "unigram",
        "EXPONENT",
        "citeulike",
        "tiny",
        "by user",
    ):
        assert name in result.stdout
    found = json.loads(
        CliRunner().invoke(app, ["list", "--json", "--data-dir", str(data_dir)]).stdout
    )
    assert found["samplers"]["iid"]["losses"] == ["sg", "mse"]
    assert "hinge" in found["samplers"]["strat"]["losses_with_strata_by_user"]
