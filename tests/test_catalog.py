"""Records of built-in classes, and the settings that they name."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from support.cli import check, invoke

import ncfbench
from ncfbench.catalog import BUILT_IN, SAMPLERS, find, find_sampler
from ncfbench.catalog.plugins import read_plugin
from ncfbench.config import SETTINGS, all_settings, complete
from ncfbench.rng import Streams
from ncfbench.sampling import make_sampler
from ncfbench.settings import Setting


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


OTHERS = {
    "stratum_size": 2,
    "strata": "user",
    "negatives": 4,
    "uniform_items": 24,
    "mask": False,
}


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
        made = make_sampler(tiny.graph, complete(usual | more), Streams(0))
        found = made.assemble(made.draw(1, 1)[0], 200)
        return [*found[:4], *found.negatives, found.n_items]

    usual, info = batch(), find_sampler(sampler)
    for name, value in OTHERS.items():
        if name == "strata" and strata == "user":
            continue
        other = batch(**{name: value})
        is_same = len(usual) == len(other) and all(map(np.array_equal, usual, other))
        assert is_same != info.with_strata(strata).reads(name), name


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("two words", 1, ""), "cannot be called 'two words'"),
        (("one", [1], ""), "one: a setting cannot be of type list"),
    ],
)
def test_impossible_declarations_are_refused(arguments, message):
    with pytest.raises(TypeError, match=message):
        Setting(*arguments)


def test_every_setting_is_listed():
    """By ``ncfbench settings``, to which docs/reference.md sends the reader."""
    done = invoke("settings", "--json")
    check(done, 0)
    listed = json.loads(done.stdout)
    assert {*listed} == {*all_settings()}
    assert listed["stratum_size"] == {
        "setting": "stratum_size",
        "default": "4",
        "valid": "whole number, at least 1",
        "tried": "2, 4, 8",
        "used by": "strat, strat-ns",
        "meaning": "s: positive links in a stratum",
    }


def test_every_shared_setting_is_read():
    """By the settings of a run or whoever has them: else it would change nothing."""
    package = Path(ncfbench.__file__).parent
    files = [path for path in package.glob("*/**/*.py") if path.parent.name != "catalog"]
    text = "\n".join(path.read_text("utf-8") for path in files)
    own = (package / "config" / "run_config.py").read_text("utf-8")
    for name, setting in SETTINGS.items():
        is_read = re.search(rf"(?:config|run|first)\.{setting.attribute}\b", text)
        assert is_read or f"self.{setting.attribute} " in own, name
