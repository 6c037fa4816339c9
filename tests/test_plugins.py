"""Samplers, losses and encoders of one's own: a class, and nothing else touched."""

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path

import hardest
import numpy as np
import pytest
from support.records import make_run, write_run
from support.training import train
from typer.testing import CliRunner

from ncfbench import catalog
from ncfbench.cli import app
from ncfbench.config import Locations, all_settings, complete, digest, setting_facts
from ncfbench.errors import UsageError
from ncfbench.models.losses import SampledSoftmax
from ncfbench.reporting.frames import group
from ncfbench.runs import folder as runs
from ncfbench.runs.labels import run_command, unusual_label
from ncfbench.runs.plan import RunPlan
from ncfbench.sweeps import grid as sweeps
from ncfbench.sweeps.grid import read_sweep
from ncfbench.training.run import run

MODULE = '''
import jax.numpy as jnp
from flax import nnx
from ncfbench.catalog import EncoderInfo, LossInfo, SamplerInfo
from ncfbench.models.losses import Pairwise
from ncfbench.sampling.batch import Shared
from ncfbench.sampling.listed import NegativeSampler
from ncfbench.sampling.shared import StratifiedSharingSampler
from ncfbench.settings import Setting


class Own(NegativeSampler):
    """Negatives of my own."""

    info = SamplerInfo(
        families=("pairwise",),
        uses=(),
        settings=(Setting("emphasis", 1.0, "Weight of a negative link", panel="Sampler", above=0),),
    )

    def assemble(self, draw, capacity=0):
        batch = super().assemble(draw, capacity)
        weight = batch.negatives.weight * self.weight_dtype.type(self.config.emphasis)
        return batch._replace(negatives=batch.negatives._replace(weight=weight))


class Squared(Pairwise):
    """A loss of two lines."""

    info = LossInfo(
        learning_rate=0.005,
        uses=(),
        settings=(Setting("slack", 0.2, "Margin", panel="Training", at_least=0),),
    )

    def __init__(self, slack):
        self.slack = slack

    @classmethod
    def configured(cls, config):
        return cls(config.slack)

    def pair(self, positive, negative):
        return jnp.square(jnp.maximum(negative - positive + self.slack, 0))


class Bag(nnx.Module):
    """The mean of the words."""

    info = EncoderInfo(
        uses=("word_dropout",),
        settings=(Setting("bag_width", 8, "Length of a word's vector", at_least=1, tried=(4, 8)),),
    )

    def __init__(self, config, data, *, rngs):
        self.words = nnx.Embed(data.words + 1, config.bag_width, rngs=rngs)
        self.dense = nnx.Linear(config.bag_width, config.dimension, rngs=rngs)

    def __call__(self, texts):
        count = jnp.maximum(texts.present.sum(axis=1, keepdims=True), 1)
        mean = (self.words(texts.tokens) * texts.present[..., None]).sum(axis=1) / count
        return self.dense(mean)


class Silent(Bag):
    """It does not say what it reads."""

    info = EncoderInfo(settings=Bag.info.settings)


class SilentLoss(Pairwise):
    """It declares nothing either."""

    def pair(self, positive, negative):
        return jnp.maximum(negative - positive + 0.5, 0)


class Sharing(StratifiedSharingSampler):
    """Shared negatives, a quarter of whose weight is gone."""

    info = SamplerInfo(families=("pointwise",), shares_items=True)

    def assemble(self, draw, capacity=0):
        batch = super().assemble(draw, capacity)
        return batch._replace(negatives=Shared(batch.negatives.weight * 0.75))


number = 3
'''
SMALL = {"dataset": "tiny", "batch_size": 64, "epochs": 2, "dimension": 8}


@pytest.fixture
def module(tmp_path, monkeypatch):
    name = f"mine_{abs(hash(tmp_path)) % 10**9}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    (tmp_path / f"broken_{name}.py").write_text("raise RuntimeError('no luck')")
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def invoke(*words):
    done = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    return done.stdout


def test_one_of_each_is_trained_by_own_settings(module, data_dir, tmp_path):
    """--set and a file give a plug-in's settings; the report and its records name them."""
    file = tmp_path / "own.toml"
    file.write_text("slack = 0.3")
    chosen = [
        f"--sampler={module}:Own",
        "--loss",
        f"{module}:Squared",
        "--encoder",
        f"{module}:Bag",
    ]
    settings = [f"--set={name}={value}" for name, value in SMALL.items()]
    folders = [f"--data-dir={data_dir}", f"--runs-dir={tmp_path / 'runs'}"]
    given = ["--set", "bag_width=6", "--set", "emphasis=2", f"--config={file}"]
    found = json.loads(invoke("run", *chosen, *settings, *given, *folders, "--quiet", "--json"))
    own = {name: found["config"][name] for name in ("emphasis", "slack", "bag_width")}
    assert own == {"emphasis": 2.0, "slack": 0.3, "bag_width": 6}
    assert found["config"]["learning_rate"] == 0.005
    (record,) = runs.read_all(tmp_path / "runs")[0]
    assert record.config.bag_width == 6
    assert record.curve[-1]["probe_loss"] < record.curve[0]["probe_loss"]
    assert ":" not in record.name
    assert "Own" in invoke("report", *folders)


OTHERS = ("word_dimension", "stratum_size", "lstm_units")
IDENTITY = [
    *(("encoder", "Bag", name, name == "bag_width") for name in ("bag_width", *OTHERS)),
    *(("encoder", "Silent", name, True) for name in ("bag_width", *OTHERS)),
    ("sampler", "Sharing", "negatives", True),
    ("sampler", "Own", "uniform_items", False),
    ("sampler", "Own", "negatives", True),  # used by its base class
    *(("loss", "SilentLoss", name, True) for name in OTHERS),
]


@pytest.mark.parametrize(("kind", "plugin", "name", "counts"), IDENTITY)
def test_settings_of_a_plugin_are_its_identity(module, kind, plugin, name, counts):
    """Declared or not; only what a class declares not to use is left out."""
    usual = SMALL | {"sampler": "ns", "encoder": "mf", "loss": "log" if plugin == "Own" else "sg"}
    configs = [complete(usual | {kind: f"{module}:{plugin}", name: value}) for value in (2, 4)]
    assert len({digest(config) for config in configs}) == 1 + counts
    assert len({sweeps.identity(config) for config in configs}) == 1 + counts


def test_a_run_of_a_plugin_is_found_by_all_settings(module, tmp_path):
    few, many = (
        complete(SMALL | {"encoder": f"{module}:Silent", "lstm_units": units})
        for units in (25, 200)
    )
    made = make_run(tmp_path, few, "data")
    assert runs.path_of(tmp_path, few, "data") == made != runs.path_of(tmp_path, many, "data")


def test_a_sweep_varies_the_settings_of_a_plugin(module):
    """Beside an encoder that has none of them."""
    wanted = read_sweep(
        "smoke",
        flags={"encoder": f"{module}:Bag,mf", "sampler": "ns", "loss": "sg"},
        assignments=["bag_width=4,5"],
    )
    cells, _ = sweeps.expand(wanted.axes)
    configs = [cell.config for cell in cells if cell.config.seed == 0]
    widths = [dict(config.own).get("bag_width") for config in configs]
    assert widths == [4, 5, None]
    labels = sweeps.label_cells(cells).values()
    assert sum("bag_width=4" in label for label in labels) == len(cells) / 3


def test_settings_of_a_sampler_distinguish_arms(module, tmp_path):
    """One comparison with the baseline; the second computation and the command agree."""
    for sampler, ms, more in (
        ("neg", 100.0, {}),
        (f"{module}:Own", 20.0, {"emphasis": 3.0}),
        (f"{module}:Own", 10.0, {}),
    ):
        write_run(tmp_path, sampler, [3, 2, 1.0], ms, loss="log", encoder="mf", **more)
    (comparison,) = group(runs.read_all(tmp_path)[0])
    own = [run.variant for run in comparison if run.config.sampler == f"{module}:Own"]
    assert {variant.note("mf"): dict(variant.declared) for variant in own} == {
        "": {"emphasis": 1.0},
        "emphasis=3.0": {"emphasis": 3.0},
    }
    assert unusual_label(comparison[0]) == ""
    files = ["--runs-dir", str(tmp_path)]
    assert "5.00" in invoke("report", *files)
    assert "0 do not match" in invoke("report", *files, "--verify")
    (thrice,) = (run.config for run in comparison if run.variant.note("mf"))
    words = run_command(thrice, {}).split()
    assert words[words.index("emphasis=3.0") - 1] == "--set"


def test_a_catalog_entry_is_all_that_a_name_needs(module, monkeypatch):
    """Options, checks and the settings reference follow from the record."""
    monkeypatch.setitem(catalog.SAMPLERS, "own", catalog.find_sampler(f"{module}:Own"))
    monkeypatch.setitem(catalog.LOSSES, "squared", catalog.find_loss(f"{module}:Squared"))
    monkeypatch.setitem(catalog.ENCODERS, "bag", catalog.find_encoder(f"{module}:Bag"))
    assert complete({"encoder": "bag", "sampler": "ns"}).bag_width == 8
    with pytest.raises(UsageError, match="bag_width = 0: it must be at least 1"):
        complete({"encoder": "mf", "bag_width": 0})
    for row in (
        ("bag_width", "8", "whole number, at least 1", "4, 8", "bag", "Length of a word's vector"),
        ("emphasis", "1", "number, above 0", "", "own", "Weight of a negative link"),
        ("slack", "0.2", "number, at least 0", "", "squared", "Margin"),
    ):
        assert (*setting_facts(all_settings()[row[0]]).values(),) == row


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"sampler": "{}:Own", "loss": "sg"}, ["serves pairwise losses only"]),
        ({"sampler": "iid", "loss": "{}:Squared"}, ["a pairwise loss compares items"]),
        ({"sampler": "{}:Bag"}, ["is no sampler", "subclass of ncfbench.sampling.Sampler"]),
        ({"sampler": "{}:Owl"}, ["has no 'Owl'", "did you mean 'Own'"]),
        ({"sampler": "{}:number"}, ["is not a class"]),
        ({"sampler": "broken_{}:Own"}, ["RuntimeError: no luck"]),
        ({"sampler": "nowhere.at_all:Own"}, ["No module named", "Run from the folder"]),
        ({"loss": "{}:Own"}, ["is no loss", "Pointwise, Pairwise or Listwise"]),
        ({"encoder": "{}:number"}, ["is not a class", "with a __call__ method"]),
        ({"encoder": "{}:Bag", "bag_width": 0}, ["bag_width = 0: it must be at least 1"]),
        ({"encoder": "mf", "bag_width": 5}, ["Unknown setting 'bag_width'"]),
    ],
)
def test_what_cannot_work_is_refused_early(module, settings, words):
    with pytest.raises(UsageError) as caught:
        complete({key: str(value).format(module) for key, value in settings.items()})
    for word in words:
        assert word in str(caught.value)


def test_the_documented_examples_are_right(data_dir, tmp_path, monkeypatch):
    """The page's three classes, as they stand there, are trained together."""
    page = (Path(__file__).parents[1] / "docs" / "integrate.md").read_text("utf-8")
    (text,) = re.findall(r"```python\n(.*?)```", page.split("\n## Plug-ins\n")[1], re.S)
    (tmp_path / "documented.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    info = catalog.find_encoder("documented:Bag")
    assert info.names == ("word_dimension", "word_dropout", "hidden_units")
    chosen = {
        "sampler": "documented:Halved",
        "loss": "documented:SquaredHinge",
        "encoder": "documented:Bag",
        "negatives": 4,
        "hidden_units": 6,
        "slack": 0.3,
    }
    record = run(RunPlan.of(complete(SMALL | chosen), Locations(data_dir, tmp_path / "runs")))
    assert record.curve[-1]["probe_loss"] < record.curve[0]["probe_loss"]


@pytest.mark.parametrize("kind", ["sampler", "loss", "encoder"])
def test_the_page_names_every_attribute_of_a_record(kind):
    """In the table of attributes, or below it as those that a plug-in leaves alone."""
    page = (Path(__file__).parents[1] / "docs" / "integrate.md").read_text("utf-8")
    part = page.split("| attribute of `info` |")[1].split("\n- ")[0]
    names = {field.name for field in dataclasses.fields(catalog.INFOS[kind])}
    assert names <= set(re.findall(r"`(\w+)`", part))


def test_the_hardest_negatives_alone_count():
    """The two of the highest scores that have weight, as in a softmax over these; the third is
    linked.
    """
    loss, softmax = hardest.Hardest(2.0), SampledSoftmax(2.0)
    positive, negative = np.array([0.5]), np.array([[0.1, 0.9, 0.7, -0.3, 0.6]])
    weight = np.array([[3.0, 2.0, 0.0, 1.0, 4.0]])
    whole = loss.batch_rows(positive, negative, weight, None)
    assert whole == pytest.approx(softmax.rows(positive, negative, weight, None))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hardest, "HARDEST", 2)
        found = loss.batch_rows(positive, negative, weight, None)
    weight[0, [0, 3]] = 0
    assert found == pytest.approx(softmax.rows(positive, negative, weight, None))


@pytest.mark.long
def test_the_example_of_a_loss_trains(data_dir, tmp_path):
    own = {"sampler": "ns", "loss": "hardest:Hardest", "batch_size": 64, "epochs": 1}
    record = train(data_dir, tmp_path, **own)
    assert record.curve[-1]["probe_loss"] < record.curve[0]["probe_loss"]


def test_modules_of_the_current_folder_are_found(tmp_path):
    (tmp_path / "herefile.py").write_text(MODULE)
    script = "from ncfbench.catalog import find_sampler; print(find_sampler('herefile:Own').title)"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "Own\n"
