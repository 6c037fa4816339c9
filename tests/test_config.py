from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ncfbench.config import FIELDS, RunConfig, complete, resolve
from ncfbench.errors import UsageError
from ncfbench.registry import ENCODERS, LOSSES, SAMPLERS


def settings(**flags: Any) -> RunConfig:
    return resolve(flags, environment={})[0]


def test_defaults_are_the_papers() -> None:
    """KDD 2017, section 5.2."""
    table = {
        ("sg", "cnn"): (0.01, 128.0, None, 10),
        ("mse", "cnn"): (0.001, 8.0, None, 10),
        ("log", "cnn"): (0.01, None, 10.0, 10),
        ("hinge", "cnn"): (0.01, None, 0.1, 10),
        ("sg", "lstm"): (0.01, 128.0, None, 5),
        ("mse", "lstm"): (0.001, 8.0, None, 5),
    }
    for (loss, encoder), expected in table.items():
        config = settings(loss=loss, encoder=encoder)
        assert (config.learning_rate, config.lambda_, config.gamma, config.negatives) == expected
    config = settings()
    assert (
        config.batch_size,
        config.stratum_size,
        config.epochs,
        config.dimension,
        config.filters,
    ) == (512, 4, 30, 50, 50)
    assert (config.filter_width, config.lstm_units, config.word_dimension, config.noise) == (
        3,
        50,
        50,
        "unigram",
    )


def test_precedence(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(
        'epochs = 1\nseed = 1\ngamma = 0.5\nloss = "hinge"\ndata-dir = "file"\nruns-dir ='
        ' "file"\nbatch_size = 64\n'
    )
    config, places = resolve(
        {"epochs": 3, "seed": None, "data_dir": Path("flag")},
        ["epochs=2", "seed=2", "learning-rate=0.5"],
        file,
        {"NCFBENCH_DATA_DIR": "variable", "NCFBENCH_RUNS_DIR": "variable"},
    )
    assert (config.epochs, config.seed, config.gamma, config.batch_size, config.learning_rate) == (
        3,
        2,
        0.5,
        64,
        0.5,
    )
    assert (places.data_dir, places.runs_dir) == (Path("flag"), Path("variable"))
    assert resolve({}, ["data_dir=set"], file, {"NCFBENCH_DATA_DIR": "variable"})[
        1
    ].data_dir == Path("set")
    assert resolve({}, [], file, {})[1].data_dir == Path("file")
    assert resolve({}, [], None, {})[1].data_dir == Path("data")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (
            {"sampler": "iid", "loss": "hinge"},
            ["iid cannot train --loss hinge", "neg, ns or strat-ns"],
        ),
        ({"sampler": "strat", "loss": "log"}, ["strat cannot train --loss log", "strat-ns"]),
        ({"sampler": "startified"}, ["Unknown sampler 'startified'", "did you mean 'strat'"]),
        ({"loss": "higne"}, ["did you mean 'hinge'"]),
        ({"encoder": "xyzzy"}, ["Unknown encoder 'xyzzy'. Valid: mf, cnn, lstm"]),
        ({"noise": "unifrom"}, ["did you mean 'uniform'"]),
        ({"noise": "nan"}, ["finite"]),
        ({"batch_size": 510}, ["510 is not a multiple of stratum_size = 4", "--batch-size 508"]),
        ({"batch_size": 2, "stratum_size": 4}, ["not a multiple", "--batch-size 8"]),
        ({"batch_size": 4, "stratum_size": 4}, ["only stratum", "--batch-size 8"]),
        ({"sampler": "ns", "batch_size": 1}, ["ns has no negatives"]),
        ({"strata": "users"}, ["did you mean 'user'"]),
        (
            {"sampler": "mixed-ns", "uniform_items": 0},
            ["uniform_items = 0", "without any it is ns"],
        ),
        (
            {"sampler": "strat", "loss": "softmax"},
            ["a listwise loss compares items of one user", "--strata user"],
        ),
        ({"negatives": 0}, ["negatives = 0", "Use 1 or more"]),
        ({"learning_rate": float("nan")}, ["learning_rate = nan", "finite"]),
        ({"learning_rate": 0.0}, ["learning_rate = 0.0"]),
        ({"learning_rate": -1.0}, ["learning_rate = -1.0"]),
        ({"epochs": 0}, ["epochs = 0"]),
        ({"word_dropout": 1.0}, ["word_dropout = 1.0"]),
        ({"user_l2": float("inf")}, ["user_l2 = inf"]),
        ({"seed": -1}, ["seed = -1"]),
        ({"gamma": 0.1}, ["gamma belongs to the other losses"]),
        ({"loss": "log", "lambda": 2.0}, ["lambda belongs to the pointwise losses"]),
        ({"lambda": 0.0}, ["lambda = 0.0"]),
        ({"dataset": "../secret"}, ["not a data set's name"]),
    ],
)
def test_impossible_settings_are_refused_with_what_to_use(
    flags: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(UsageError) as caught:
        settings(**flags)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("filtres=3", ["Unknown setting 'filtres'", "did you mean 'filters'"]),
        ("filters", ["not of the form key=value"]),
        ("filters=many", ["filters = 'many' is not a whole number"]),
        ("filters=1.5", ["not a whole number"]),
        ("mask=perhaps", ["not true or false"]),
        ("filter_width=4", ["must be odd"]),
    ],
)
def test_bad_assignments(assignment: str, words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        resolve({}, [assignment], environment={})
    for word in words:
        assert word in str(caught.value)


def test_bad_files(tmp_path: Path) -> None:
    for content, word in (
        (b"epohcs = 3", "did you mean 'epochs'"),
        (b"epochs = ", "not valid TOML"),
        (b"a = '\xff'", "not valid TOML"),
    ):
        file = tmp_path / "c.toml"
        file.write_bytes(content)
        with pytest.raises(UsageError, match=word):
            resolve({}, file=file, environment={})
    with pytest.raises(UsageError, match="Cannot read"):
        resolve({}, file=tmp_path, environment={})
    with pytest.raises(UsageError, match="Cannot read"):
        resolve({}, file=tmp_path / "none.toml", environment={})
    with pytest.raises(UsageError, match="mask = 1 is not true or false"):
        file.write_text("mask = 1")
        resolve({}, file=file, environment={})


def test_settings_survive_their_written_form() -> None:
    for sampler, entry in SAMPLERS.items():
        for name, loss in LOSSES.items():
            for encoder in ENCODERS:
                if loss.family in entry.families:
                    config = complete(
                        {"sampler": sampler, "loss": name, "encoder": encoder, "seed": 7}
                    )
                    assert complete(config.to_dict()) == config
    assert "lambda" in FIELDS
    assert "lambda_" not in FIELDS


def test_one_distribution_has_one_name() -> None:
    names = {
        "1": "unigram",
        "1.0": "unigram",
        "0": "uniform",
        "0.750": "0.75",
        "unigram": "unigram",
    }
    assert {name: settings(noise=name).noise for name in names} == names


@pytest.mark.parametrize(
    "config", [{"dataset": 5}, {"epochs": "x"}, {"mask": 3}, {"dataset": "a" * 65}, {"seed": 1.5}]
)
def test_settings_of_a_wrong_type_are_refused(config: dict[str, Any]) -> None:
    if config == {"dataset": 5}:
        assert complete(config).dataset == "5"
    else:
        with pytest.raises(UsageError):
            complete(config)


def test_the_digest_ignores_what_a_sampler_does_not_use() -> None:
    assert (
        settings(sampler="ns", negatives=3).digest()
        == settings(sampler="ns", stratum_size=8).digest()
    )
    assert (
        settings(sampler="iid", negatives=3).digest()
        != settings(sampler="iid", negatives=4).digest()
    )
    assert settings(stratum_size=8).digest() != settings().digest()
