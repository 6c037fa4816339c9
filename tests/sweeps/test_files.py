"""Sweep files: what they may say, what flags replace, and the copy that a sweep leaves behind."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ncfbench.errors import DataError, UsageError
from ncfbench.sweeps.cells import expand, label_cells
from ncfbench.sweeps.files import Sweep, read_sweep, write_sweep
from ncfbench.sweeps.presets import preset_titles


def test_a_file_with_overrides(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(
        'title = "Mine"\nbatch-size = 64\nsampler = ["iid", "ns"]\nseed = 3\nnoise = [1.0,'
        ' "unigram", 0.75]\n'
    )
    wanted = read_sweep(
        str(file),
        assignments=["epochs=2,4", "lambda=8"],
        flags={"dataset": "a,b", "epochs": 5},
        seeds=2,
    )
    assert wanted.axes == {
        "batch_size": (64,),
        "sampler": ("iid", "ns"),
        "seed": (3, 4),
        "noise": ("1.0", "unigram", "0.75"),
        "epochs": (5,),
        "lambda": (8.0,),
        "dataset": ("a", "b"),
    }
    assert (wanted.name, wanted.title) == ("mine", "Mine")
    cells, _ = expand(wanted.axes)
    assert len(cells) == 2 * 2 * 2 * 2, "noise 1.0 and unigram are one"
    labels = " ".join(label_cells(cells).values())
    assert "noise=0.75" in labels
    assert "lambda" not in labels


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sampler = [", "is not valid TOML"),
        ('samplr = "ns"', "Unknown setting 'samplr'; did you mean 'sampler'?"),
        ('epochs = [3, "many"]', "epochs = 'many' is not a whole number"),
        ('sampler = ["ns", "strat_ns"]', "did you mean 'strat-ns'"),
        ("sampler = []", "sampler has no value"),
        ("[sampler]\na = 1", "sampler = "),
        ("seed = [[1, 2]]", "seed = [1, 2] is not a whole number"),
        ('runs_dir = "x"', "given by --data-dir and --runs-dir"),
        ("cells = 3", "write [[cells]] above each"),
        ('[[cells]]\nsampler = ["ns"]', "a cell has one value for a setting"),
        ("seed = 1\n[[cells]]\nseed = 2", "seed = 2: a cell has one value"),
        ('[[cells]]\nsamplr = "ns"', "[[cells]]: Unknown setting 'samplr'"),
        ("title = 3", "title = 3: it must be a text"),
    ],
)
def test_a_bad_file_is_named_with_its_key(tmp_path, text, message):
    file = tmp_path / "bad.toml"
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_sweep(str(file))
    assert message in str(caught.value)
    assert str(file) in str(caught.value)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"source": "smok"}, "did you mean 'smoke'"),
        ({"source": "none.toml"}, "Cannot read the sweep none.toml: No such file"),
        ({"source": "smoke", "assignments": ["sampler"]}, "not of the form key=value"),
        ({"source": "smoke", "assignments": ["samplr=ns"]}, "--set: Unknown setting 'samplr'"),
        ({"source": "smoke", "assignments": ["data_dir=x"]}, "given by --data-dir"),
        ({"source": "smoke", "seeds": 0}, "--seeds 0"),
        ({"source": "smoke", "seeds": 2**32 + 1}, "would be above"),
        ({"source": "smoke", "flags": {"dataset": ","}}, "--dataset: dataset has no value"),
    ],
)
def test_bad_requests_are_refused(words, message):
    with pytest.raises(UsageError) as caught:
        read_sweep(**words)
    assert message in str(caught.value)


SWEEPS = st.builds(
    Sweep,
    name=st.text(max_size=80),
    title=st.text(),
    axes=st.fixed_dictionaries(
        {"sampler": st.lists(st.sampled_from(["ns", "iid", "neg"]), min_size=1, unique=True)},
        optional={
            "seed": st.lists(st.integers(0, 2**32 - 1), min_size=1, unique=True),
            "learning_rate": st.lists(st.floats(1e-9, 1e9), min_size=1, unique=True),
            "mask": st.just([True, False]),
            "noise": st.just(["uniform", "0.75"]),
        },
    ).map(lambda axes: {name: tuple(values) for name, values in axes.items()}),
    cells=st.sampled_from([(), ({"loss": "sg", "epochs": 2}, {"loss": "mse"})]),
)


@given(sweep=SWEEPS)
@settings(deadline=None, max_examples=50)
def test_a_written_sweep_is_read_back_whole(tmp_path_factory, sweep):
    path = write_sweep(sweep, tmp_path_factory.mktemp("runs"))
    assert dataclasses.replace(read_sweep(str(path)), name=sweep.name) == sweep


@pytest.mark.parametrize("name", preset_titles())
def test_a_presets_copy_has_its_cells(tmp_path, name):
    wanted = read_sweep(name, seeds=2, assignments=["batch_size=128"])
    path = write_sweep(wanted, tmp_path)
    assert path == tmp_path / "sweeps" / f"{name}.toml"
    assert read_sweep(str(path)) == wanted


def test_different_sweeps_of_one_name_have_own_files(tmp_path):
    first, second = (read_sweep("smoke", seeds=count) for count in (1, 2))
    paths = [write_sweep(sweep, tmp_path) for sweep in (first, second, first, second)]
    assert paths[:2] == paths[2:]
    assert len(set(paths)) == 2
    assert paths[1].name.startswith("smoke-")
    assert read_sweep(str(paths[1])).axes == second.axes
    assert write_sweep(read_sweep(str(paths[1])), tmp_path) == paths[1]
    assert paths[0].read_text().startswith("# To train it again: ncfbench sweep smoke.toml\n")
    for path in paths[:2]:
        path.write_text("changed")
    with pytest.raises(DataError, match="was changed by hand"):
        write_sweep(second, tmp_path)
