"""Settings: defaults, precedence, what is refused, and what makes a run's identity."""

import hashlib
import json
import pickle
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from ncfbench.catalog import ENCODERS, SAMPLERS, find_sampler, losses_for
from ncfbench.config import SETTINGS, Locations, complete, digest, digest_of, merge
from ncfbench.errors import UsageError
from ncfbench.sweeps.grid import read_sweep


def resolve(*given):
    named, locations = merge(*given)
    return complete(named), locations


def settings(**flags):
    return complete(flags)


@pytest.mark.parametrize(
    ("encoder", "loss", "expected"),
    [
        ("cnn", "sg", (0.01, 128.0, None, 10)),
        ("cnn", "mse", (0.001, 8.0, None, 10)),
        ("cnn", "log", (0.01, None, 10.0, 10)),
        ("cnn", "hinge", (0.01, None, 0.1, 10)),
        ("lstm", "sg", (0.01, 128.0, None, 5)),
    ],
)
def test_defaults_are_the_papers(encoder, loss, expected):
    """KDD 2017, section 5.2."""
    config = settings(loss=loss, encoder=encoder)
    assert (config.learning_rate, config.lambda_, config.gamma, config.negatives) == expected
    shared = {"batch_size": 512, "stratum_size": 4, "epochs": 30, "dimension": 50}
    shared |= {"word_dimension": 50, "noise": "unigram"}
    shared |= {"filters": 50, "filter_width": 3} if encoder == "cnn" else {"lstm_units": 50}
    assert shared.items() <= config.to_dict().items()


def test_precedence(tmp_path, monkeypatch):
    file = tmp_path / "run.toml"
    settings = 'epochs = 1\nseed = 1\ngamma = 0.5\nloss = "hinge"\nbatch_size = 64\n'
    file.write_text(settings + 'data-dir = "file"\nruns-dir = "file"\n')
    assert merge()[1].data_dir == Path("data")
    assert merge({}, [], file)[1].data_dir == Path("file")
    monkeypatch.setenv("NCFBENCH_DATA_DIR", "variable")
    monkeypatch.setenv("NCFBENCH_RUNS_DIR", "variable")
    assert merge({}, ["data_dir=set"], file)[1].data_dir == Path("set")
    flags = {"epochs": 3, "seed": None, "data_dir": Path("flag")}
    config, locations = resolve(flags, ["epochs=2", "seed=2", "learning-rate=0.5"], file)
    assert (config.epochs, config.seed, config.gamma) == (3, 2, 0.5)
    assert (config.batch_size, config.learning_rate) == (64, 0.5)
    assert locations == Locations(Path("flag"), Path("variable"))


# What commands are refused with, unknown names and files among it, is in the golden list.
REFUSED = [
    # Values, and settings that do not go together.
    ({"noise": "unifrom"}, "did you mean 'uniform'"),
    ({"noise": "nan"}, "finite"),
    ({"batch_size": 510}, "510 is not a multiple of stratum_size = 4.*--batch-size 512"),
    ({"batch_size": 4, "stratum_size": 4}, "there are none.*--batch-size 8"),
    ({"sampler": "ns", "batch_size": 1}, "there are none.*--batch-size 2"),
    ({"sampler": "mixed-ns", "uniform_items": 0}, "uniform_items = 0.*at least 1"),
    ({"sampler": "strat", "loss": "softmax"}, "items of one user.*--set strata=user"),
    ({"learning_rate": float("nan")}, "learning_rate = nan.*finite"),
    ({"learning_rate": 0.0}, r"learning_rate = 0\.0"),
    ({"negatives": 0}, "negatives = 0.*at least 1"),
    ({"seed": -1}, "seed = -1"),
    ({"lambda": 0.0}, r"lambda = 0\.0"),
    ({"epochs": -1}, "epochs = -1"),
    ({"user_l2": float("inf")}, "user_l2 = inf"),
    ({"encoder": "lstm", "filters": 0}, "filters = 0: it must be at least 1"),
    ({"word_dropout": 1.0}, r"word_dropout = 1\.0"),
    ({"gamma": 0.1}, "gamma belongs to --loss log, hinge, softmax or softmax-logq; sg has none"),
    ({"loss": "log", "lambda": 2.0}, "lambda belongs to --loss sg or mse; log has none"),
    ({"dataset": "a" * 65}, "not a data set's name"),
    ({"convolution": "planar"}, r"did you mean 'plain'.* Valid: auto, plain, projected\."),
    ({"encoder": "transformer", "width": 100, "heads": 3}, r"multiple of heads.* width=102\."),
    # Assignments.
    ("filters=many", "filters = 'many' is not a whole number"),
    ("mask=perhaps", "not true or false"),
    ("filter_width=4", "filter_width = 4: it must be odd"),
    ("epochs=2 epochs=2", "--set: epochs is given twice"),
    ("batch-size=64 batch_size=32", "given twice, as batch-size and as batch_size"),
    # Files.
    (b"a = '\xff'", "not valid TOML"),
    (b"batch-size = 64\nbatch_size = 32", "c.toml: batch_size is given twice, as batch-size"),
    (b"lambda = 1.0\nlambda_ = 1.0", "lambda is given twice"),
    (b"mask = 1", "mask = 1 is not true or false"),
]


@pytest.mark.parametrize(("given", "words"), REFUSED)
def test_impossible_settings_are_refused(tmp_path, given, words):
    file = tmp_path / "c.toml"
    if isinstance(given, bytes):
        file.write_bytes(given)
    with pytest.raises(UsageError, match=words):
        if isinstance(given, dict):
            settings(**given)
        elif isinstance(given, str):
            resolve({}, given.split())
        else:
            resolve({}, [], file)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_settings_survive_their_written_form_and_pickling(sampler):
    """As records have them, and as workers of PyTorch's loader get them, with their classes."""
    for loss, encoder in product(losses_for(find_sampler(sampler)), ENCODERS):
        config = settings(sampler=sampler, loss=loss, encoder=encoder, seed=7)
        assert complete(config.to_dict()) == config
        assert config.infos
        assert pickle.loads(pickle.dumps(config)) == config
    assert "lambda" in SETTINGS
    assert "lambda_" not in SETTINGS


def test_one_distribution_has_one_name():
    names = {"1": "unigram", "1.0": "unigram", "0": "uniform", "unigram": "unigram"}
    names |= {"0.750": "0.75", "0.33333333": "0.33333333", "2": "2", "1e-7": "1e-07"}
    assert {name: settings(noise=name).noise for name in names} == names


def test_a_byte_order_mark_is_skipped(tmp_path):
    """Editors on Windows write one before the first key, of settings and of a sweep."""
    file = tmp_path / "run.toml"
    file.write_bytes(b"\xef\xbb\xbfepochs = 3\n")
    assert resolve({}, [], file)[0].epochs == 3
    assert read_sweep(str(file)).axes["epochs"] == (3,)


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("batch_size", np.int64(64), 64),
        ("learning_rate", np.float32(0.01), 0.01),
        ("learning_rate", np.array(0.003, np.float16), 0.003),
        ("learning_rate", Fraction(1, 4), 0.25),
        ("mask", np.bool_(False), False),
        ("loss", np.str_("mse"), "mse"),
        ("noise", np.float64(0.75), "0.75"),
        ("batch_size", np.bool_(True), None),
        ("batch_size", np.float64(64), None),
        ("batch_size", np.array([64, 32]), None),
        ("mask", np.int64(1), None),
        ("learning_rate", 10**400, None),
    ],
)
def test_numbers_of_any_library_are_numbers(name, value, wanted):
    """None: it is refused, as Python's own value of that type is."""
    if wanted is None:
        with pytest.raises(UsageError, match=f"{name} = .* is not"):
            complete({name: value})
        return
    result = complete({name: value}).to_dict()[name]
    assert (type(result), result) == (type(wanted), wanted)


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        ({"sampler": "ns", "negatives": 3}, {"sampler": "ns", "stratum_size": 8}, True),
        ({"devices": 4}, {}, True),
        ({"sampler": "iid", "negatives": 3}, {"sampler": "iid"}, False),
        ({"stratum_size": 8}, {}, False),
        ({"encoder": "lstm", "lstm_units": 3}, {"encoder": "lstm"}, False),
        ({"convolution": "projected"}, {}, False),
        ({"encoder": "transformer", "width": 64}, {"encoder": "transformer"}, False),
    ],
)
def test_unused_settings_do_not_split_identity(first, second, is_same):
    """Settings that a sampler or encoder does not use, and settings that change no number."""
    assert (digest(settings(**first)) == digest(settings(**second))) == is_same


def test_settings_at_their_default_are_not_in_a_digest():
    """A new setting leaves other runs their digest."""
    changed = {"batch_size": 64, "encoder": "mf"}
    text = json.dumps(changed, sort_keys=True)
    result = digest_of(changed | {"seed": 0, "mask": None}, SETTINGS)
    assert result == hashlib.sha256(text.encode()).hexdigest()[:12]


def test_a_run_has_the_settings_of_its_encoder():
    """Settings of another built-in encoder are left out, so that one file serves a grid."""
    config = settings(encoder="lstm", filters=7, lstm_units=9)
    assert config.lstm_units == config.to_dict()["lstm_units"] == 9
    assert "filters" not in config.to_dict()
    with pytest.raises(AttributeError, match="no setting 'filters'"):
        _ = config.filters


def test_a_command_line_gives_a_setting_its_value():
    given = {"batch_size": 9, "mask": False, "lambda": 2.5}
    words = [word for name, value in given.items() for word in SETTINGS[name].arguments(value)]
    assert words == ["--batch-size", "9", "--set", "mask=false", "--set", "lambda=2.5"]
