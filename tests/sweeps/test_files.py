"""Sweep files: what they may say, and what flags replace."""

import pytest

from ncfbench.errors import UsageError
from ncfbench.sweeps.grid import expand, label_cells, read_sweep


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
