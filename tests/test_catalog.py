"""Records of built-in classes; and plug-ins: a class, and nothing else touched."""

import dataclasses
import json
import re
import sys
from pathlib import Path

import hardest
import numpy as np
import pytest
from support.cli import check, invoke
from support.records import write_run

from ncfbench import catalog
from ncfbench.catalog import BUILT_IN, SAMPLERS, find, find_sampler
from ncfbench.catalog.plugins import read_plugin
from ncfbench.config import SETTINGS, all_settings, complete, digest, setting_facts
from ncfbench.errors import UsageError
from ncfbench.models.losses import SampledSoftmax
from ncfbench.reporting.frames import group
from ncfbench.rng import Streams
from ncfbench.runs import folder as runs
from ncfbench.runs.labels import run_command, unusual_label
from ncfbench.sampling import make_sampler
from ncfbench.sweeps import grid as sweeps
from ncfbench.sweeps.grid import read_sweep

PAGE = (Path(__file__).parents[1] / "docs" / "integrate.md").read_text("utf-8")
(DOCUMENTED,) = re.findall(r"```python\n(.*?)```", PAGE.split("\n## Plug-ins\n")[1], re.S)
"""The classes Halved, SquaredHinge and Bag."""
MODULE = f'''{DOCUMENTED}
from ncfbench.catalog import *
from ncfbench.models.losses import Loss
from ncfbench.sampling import Sampler

UNITS = Setting("bag_width", 8, "Length of a word's vector", at_least=1, tried=(4, 8))


class Own(NegativeSampler):
    """Negatives of my own."""

    info = SamplerInfo(
        families=("pairwise",),
        uses=(),
        settings=(Setting("emphasis", 1.0, "Weight of a negative link", panel="Sampler", above=0),),
    )


class SilentLoss(Pairwise):
    """It declares nothing."""

    pair = SquaredHinge.pair


class Slow(SilentLoss):
    info = LossInfo(learning_rate=0.005, uses=())


class Wide(Bag):
    info = EncoderInfo(uses=("word_dropout",), settings=(UNITS,))


class Silent(Bag):
    """It does not say what it reads."""

    info = EncoderInfo(settings=(UNITS,))


number = 3
'''
SMALL = {"dataset": "tiny", "batch_size": 64, "epochs": 2, "dimension": 8}


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, names in BUILT_IN.items() for name in names]
)
def test_built_in_records_are_right(kind, name, monkeypatch):
    """They pass the checks of plug-ins, and name the settings that they use."""
    info = find(kind, name)
    assert info.title
    assert info.uses is not None
    monkeypatch.setattr(info.load(), "info", info, raising=False)
    assert read_plugin.__wrapped__(kind, info.path) == info


OTHERS = {"stratum_size": 2, "strata": "user", "negatives": 4, "uniform_items": 24, "mask": False}


@pytest.mark.parametrize("strata", ["item", "user"])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_unused_settings_change_no_batch(tiny, sampler, strata):
    """Every shared setting that only some samplers use: it changes batches where one declares it,
    and none where it does not.
    """
    used = {name for name, setting in SETTINGS.items() if setting.used_by == "sampler"}
    assert used == set(OTHERS)

    def batch(**more):
        usual = {"sampler": sampler, "strata": strata, "batch_size": 28, "negatives": 3}
        sampler_ = make_sampler(tiny.graph, complete(usual | more), Streams(0))
        drawn = sampler_.assemble(sampler_.draw(1, 1)[0], 200)
        return [*drawn[:4], *drawn.negatives, drawn.n_items]

    usual, info = batch(), find_sampler(sampler)
    for name, value in OTHERS.items():
        if name == "strata" and strata == "user":
            continue
        other = batch(**{name: value})
        is_same = len(usual) == len(other) and all(map(np.array_equal, usual, other))
        assert is_same != info.with_strata(strata).reads(name), name


def test_every_setting_is_listed():
    """By ``ncfbench settings``, to which docs/reference.md sends the reader."""
    listed = json.loads(invoke("settings", "--json").stdout)
    assert {*listed} == {*all_settings()}
    assert listed["stratum_size"] == {
        "setting": "stratum_size",
        "default": "4",
        "valid": "whole number, at least 1",
        "tried": "2, 4, 8",
        "used by": "strat, strat-ns",
        "meaning": "s: positive links in a stratum",
    }


# --- plug-ins


@pytest.fixture
def module(tmp_path, monkeypatch):
    name = f"mine_{abs(hash(tmp_path)) % 10**9}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    (tmp_path / f"broken_{name}.py").write_text("raise RuntimeError('no luck')")
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def test_the_documented_classes_are_trained_together(module, data_dir, tmp_path):
    """--set and a file give their settings; the report and its records name them."""
    (tmp_path / "own.toml").write_text("slack = 0.3")
    kinds = {"sampler": "Halved", "loss": "SquaredHinge", "encoder": "Bag"}
    words = [f"--{kind}={module}:{name}" for kind, name in kinds.items()]
    given = SMALL | {"negatives": 4, "hidden_units": 6, "word_dimension": 8}
    words += [f"--set={name}={value}" for name, value in given.items()]
    words += [f"--config={tmp_path / 'own.toml'}", "--quiet", "--json"]
    folders = [f"--data-dir={data_dir}", f"--runs-dir={tmp_path / 'runs'}"]
    done = invoke("run", *words, *folders)
    check(done, 0)
    config = json.loads(done.stdout)["config"]
    assert (config["slack"], config["hidden_units"]) == (0.3, 6)
    (record,) = runs.read_all(tmp_path / "runs")[0]
    assert record.config.hidden_units == 6
    assert record.curve[-1]["probe_loss"] < record.curve[0]["probe_loss"]
    assert ":" not in record.name
    check(invoke("report", *folders), 0, "Halved")


@pytest.mark.parametrize(
    ("kind", "plugin", "name", "counts"),
    [
        ("encoder", "Wide", "bag_width", True),
        ("encoder", "Wide", "word_dimension", False),
        ("encoder", "Wide", "lstm_units", False),
        ("encoder", "Silent", "bag_width", True),
        ("encoder", "Silent", "lstm_units", True),
        ("sampler", "Own", "uniform_items", False),
        ("sampler", "Own", "negatives", True),  # used by its base class
        ("loss", "SilentLoss", "lstm_units", True),
    ],
)
def test_settings_of_a_plugin_are_its_identity(module, kind, plugin, name, counts):
    """Declared or not; only what a class declares not to use is left out."""
    usual = SMALL | {"sampler": "ns", "encoder": "mf", "loss": "log" if plugin == "Own" else "sg"}
    configs = [complete(usual | {kind: f"{module}:{plugin}", name: value}) for value in (2, 4)]
    assert len({digest(config) for config in configs}) == 1 + counts
    assert len({sweeps.identity(config) for config in configs}) == 1 + counts


def test_a_sweep_varies_the_settings_of_a_plugin(module):
    """Beside an encoder that has none of them."""
    flags = {"encoder": f"{module}:Wide,mf", "sampler": "ns", "loss": "sg"}
    wanted = read_sweep("smoke", flags=flags, assignments=["bag_width=4,5"])
    cells, _ = sweeps.expand(wanted.axes)
    configs = [cell.config for cell in cells if cell.config.seed == 0]
    assert [dict(config.own).get("bag_width") for config in configs] == [4, 5, None]
    labels = sweeps.label_cells(cells).values()
    assert sum("bag_width=4" in label for label in labels) == len(cells) / 3


def test_settings_of_a_sampler_distinguish_arms(module, tmp_path):
    """One comparison with the baseline; the second computation and the command agree."""
    own = f"{module}:Own"
    for sampler, ms, more in (("neg", 100, {}), (own, 20, {"emphasis": 3.0}), (own, 10, {})):
        write_run(tmp_path, sampler, [3, 2, 1.0], ms, loss="log", encoder="mf", **more)
    (comparison,) = group(runs.read_all(tmp_path)[0])
    variants = [run.variant for run in comparison if run.config.sampler == own]
    notes = {variant.note("mf"): dict(variant.declared) for variant in variants}
    assert notes == {"": {"emphasis": 1.0}, "emphasis=3.0": {"emphasis": 3.0}}
    assert unusual_label(comparison[0]) == ""
    check(invoke("report", tmp_path), 0, "5.00")
    check(invoke("report", tmp_path, "--verify"), 0, "0 do not match")
    (thrice,) = (run.config for run in comparison if run.variant.note("mf"))
    words = run_command(thrice, {}).split()
    assert words[words.index("emphasis=3.0") - 1] == "--set"


def test_a_catalog_entry_is_all_that_a_name_needs(module, monkeypatch):
    """Options, checks and the settings reference follow from the record."""
    monkeypatch.setitem(catalog.SAMPLERS, "own", catalog.find_sampler(f"{module}:Own"))
    monkeypatch.setitem(catalog.LOSSES, "squared", catalog.find_loss(f"{module}:Slow"))
    monkeypatch.setitem(catalog.ENCODERS, "bag", catalog.find_encoder(f"{module}:Wide"))
    assert complete({"encoder": "bag", "sampler": "ns"}).bag_width == 8
    assert complete({"loss": "squared", "sampler": "ns"}).learning_rate == 0.005
    with pytest.raises(UsageError, match="bag_width = 0: it must be at least 1"):
        complete({"encoder": "mf", "bag_width": 0})
    row = "bag_width", "8", "whole number, at least 1", "4, 8", "bag", "Length of a word's vector"
    assert (*setting_facts(all_settings()["bag_width"]).values(),) == row


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"sampler": "{}:Own", "loss": "sg"}, ["serves pairwise losses only"]),
        ({"sampler": "iid", "loss": "{}:Slow"}, ["a pairwise loss compares items"]),
        ({"sampler": "{}:Bag"}, ["is no sampler", "subclass of ncfbench.sampling.Sampler"]),
        ({"sampler": "{}:Owne"}, ["has no 'Owne'", "did you mean 'Own'"]),
        ({"sampler": "broken_{}:Own"}, ["RuntimeError: no luck"]),
        ({"loss": "{}:Own"}, ["is no loss", "Pointwise, Pairwise or Listwise"]),
        ({"encoder": "{}:number"}, ["is not a class", "with a __call__ method"]),
        ({"user_tower": "a:B"}, ["Unknown user tower 'a:B'", "Valid: table"]),
    ],
)
def test_what_cannot_work_is_refused_early(module, settings, words):
    with pytest.raises(UsageError) as caught:
        complete({key: str(value).format(module) for key, value in settings.items()})
    for word in words:
        assert word in str(caught.value)


MINIMUM = "settings=(Setting('rows', 0, 'Rows', at_least=1),)"
USER = "families=FAMILIES, by_user={'uses': ('mask',)}"
SETTING = "EncoderInfo(settings=(Setting({}, ''),))"


@pytest.mark.parametrize(
    ("kind", "base", "record", "words"),
    [
        ("encoder", "Bag", "EncoderInfo(uses=('featurs',))", "did you mean 'features'"),
        ("encoder", "Bag", "SamplerInfo()", "an encoder needs EncoderInfo"),
        ("encoder", "Bag", SETTING.format("'epochs', 3"), "a name that is taken"),
        ("encoder", "Bag", SETTING.format("'two words', 1"), "cannot be called 'two words'"),
        ("encoder", "Bag", SETTING.format("'one', [1]"), "a setting cannot be of type list"),
        ("encoder", "Bag", f"EncoderInfo({MINIMUM})", "rows = 0: it must be at least 1"),
        ("encoder", "Bag", "EncoderInfo(use=())", "unexpected keyword argument 'use'"),
        ("encoder", "object", "EncoderInfo()", "an encoder is a flax.nnx.Module"),
        ("sampler", "NegativeSampler", "SamplerInfo(uses=())", "declares no families"),
        ("sampler", "NegativeSampler", "SamplerInfo(families=('pairs',))", "declares no families"),
        ("sampler", "NegativeSampler", f"SamplerInfo({USER})", "by_user of other fields than"),
        ("sampler", "Sampler", "SamplerInfo(families=FAMILIES)", "has no 'assemble'"),
        ("loss", "SquaredHinge", "LossInfo(family='pointwise')", "its base class is pairwise"),
        ("loss", "Loss", "LossInfo()", "is no loss; a loss is a subclass of Pointwise"),
    ],
)
def test_a_wrong_record_is_refused_by_name(kind, base, record, words, module, tmp_path):
    text = f"from {module} import *\nclass Mine({base}):\n    info = {record}\n"
    (tmp_path / f"wrong_{module}.py").write_text(text)
    with pytest.raises(UsageError, match=r"Mine.*\.$") as caught:
        complete({kind: f"wrong_{module}:Mine"})
    assert words in str(caught.value)


@pytest.mark.parametrize("kind", ["sampler", "loss", "encoder"])
def test_the_page_names_every_attribute_of_a_record(kind):
    """In the table of attributes, or below it as those that a plug-in leaves alone."""
    part = PAGE.split("| attribute of `info` |")[1].split("\n- ")[0]
    names = {field.name for field in dataclasses.fields(catalog.INFOS[kind])}
    assert names <= set(re.findall(r"`(\w+)`", part))


def test_the_hardest_negatives_alone_count():
    """The two best with weight, as in a softmax over these; the third is linked."""
    loss, softmax = hardest.Hardest(2.0), SampledSoftmax(2.0)
    positive, negative = np.array([0.5]), np.array([[0.1, 0.9, 0.7, -0.3, 0.6]])
    weight = np.array([[3.0, 2.0, 0.0, 1.0, 4.0]])
    whole = loss.batch_rows(positive, negative, weight, None)
    assert whole == pytest.approx(softmax.rows(positive, negative, weight, None))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hardest, "HARDEST", 2)
        two = loss.batch_rows(positive, negative, weight, None)
    weight[0, [0, 3]] = 0
    assert two == pytest.approx(softmax.rows(positive, negative, weight, None))


def test_modules_of_the_current_folder_are_found(tmp_path, monkeypatch):
    (tmp_path / "herefile.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    monkeypatch.chdir(tmp_path)
    assert catalog.find_sampler("herefile:Own").title == "Own"
