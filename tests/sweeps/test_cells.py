"""Grids and their files: which cells a sweep has, and which belong together."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ncfbench.config import identity_of
from ncfbench.errors import UsageError
from ncfbench.sweeps import grid as sweeps
from ncfbench.sweeps.grid import read_sweep
from ncfbench.sweeps.presets import preset_titles

VARIED = {
    "learning_rate": [0.01, 0.1],
    "noise": ["unigram", "uniform"],
    "epochs": [1, 30],
    "mask": [True, False],
    "encoder": ["cnn", "mf"],
    "batch_size": [512, 1024],
}


def some(*values):
    return st.lists(st.sampled_from(values), min_size=1, max_size=len(values), unique=True)


@given(
    samplers=some("iid", "neg", "strat", "ns", "strat-ns"),
    losses=some("sg", "mse", "log", "hinge"),
    strata=some(1, 3, 4),
    negatives=some(0, 1, 10),
    seeds=some(0, 1, 7),
    varied=st.sets(st.sampled_from(sorted(VARIED)), max_size=3),
)
@settings(max_examples=20)
def test_a_grid_has_each_possible_combination_once(
    samplers, losses, strata, negatives, seeds, varied
):
    """No two cells have one label, whatever else varies."""
    expected, refused = set(), 0
    for seed, sampler, loss, s, k in itertools.product(seeds, samplers, losses, strata, negatives):
        stratified, listed = sampler in ("strat", "strat-ns"), sampler in ("iid", "neg", "strat")
        wrong_family = sampler in ("iid", "strat") and loss in ("log", "hinge")
        if wrong_family or k == 0 or (stratified and 512 % s):
            refused += 1
        else:
            expected.add((sampler, loss, s if stratified else None, k if listed else None, seed))
    axes = {"loss": losses, "stratum_size": strata, "sampler": samplers}
    axes |= {"seed": seeds, "negatives": negatives}
    if not expected:
        with pytest.raises(UsageError, match="No combination of the sweep can work"):
            sweeps.expand(axes)
        return
    cells, left_out = sweeps.expand(axes)
    combinations = []
    for config in (cell.config for cell in cells):
        sizes = [identity_of(config)[name] for name in ("stratum_size", "negatives")]
        combinations.append((config.sampler, config.loss, *sizes, config.seed))
    assert len(combinations) == len(set(combinations))
    assert set(combinations) == expected
    assert left_out.total() == refused
    order = [seeds.index(seed) for *_, seed in combinations]
    assert order == sorted(order), "the first seed comes first"
    cells, _ = sweeps.expand(axes | {"seed": [0], **{name: VARIED[name] for name in varied}})
    assert len(set(sweeps.label_cells(cells).values())) == len(cells)


def test_a_group_has_one_comparison_one_seed_and_one_number_of_devices():
    """Numbers of several devices are equal, their times are not."""
    axes = {"sampler": ["neg", "ns", "strat-ns"], "loss": ["sg", "log"], "stratum_size": [2, 4]}
    cells, _ = sweeps.expand(axes | {"seed": [0, 1]})
    groups = sweeps.group_cells(cells)
    assert [cell for group in groups for cell in group] == sorted(
        cells, key=lambda cell: (cell.config.seed, cell.config.loss != "sg")
    )
    shapes = [(group[0].config.seed, group[0].config.loss, len(group)) for group in groups]
    assert shapes == [(0, "sg", 4), (0, "log", 4), (1, "sg", 4), (1, "log", 4)]
    cells, _ = sweeps.expand({"sampler": ["ns"], "devices": [1, 4]})
    assert [cell.config.devices for cell in cells] == [1, 4]
    assert len(set(sweeps.label_cells(cells).values())) == 2
    assert list(map(len, sweeps.group_cells(cells))) == [1, 1]


PAPER = {"iid", "neg", "strat", "ns", "strat-ns"}
PRESETS = {
    ("smoke", "dataset"): {"synthetic"},
    ("paper-speedup", "sampler"): PAPER,
    ("paper-recall", "loss"): {"sg", "mse", "hinge", "log"},
    ("paper-strata", "stratum_size"): {1, 2, 4, 8, 16},
    ("paper-negatives", "negatives"): {1, 2, 5, 10, 20, None},
    ("paper-encoders", "encoder"): {"mf", "bow", "cnn", "lstm", "gru", "transformer"},
    ("paper-coupling", "coupling"): {"direct", "regularised"},
    ("paper-plain", "convolution"): {"plain"},
    ("model-content-mse", "loss"): {"mse"},
    ("model-ask-the-gru", "encoder"): {"gru"},
    ("model-text-cnn", "loss"): {"log"},
    ("rivals", "loss"): {"sg", "softmax", "softmax-logq"},
    ("board", "learning_rate"): {0.001, 0.003, 0.01, 0.03},
}
"""Values of a setting in each preset."""


def test_presets_are_the_papers_grids():
    cells = {}
    for (name, column), values in PRESETS.items():
        wanted = read_sweep(name, seeds=1)
        cells[name], left_out = sweeps.expand(wanted.axes, wanted.cells)
        assert {identity_of(cell.config)[column] for cell in cells[name]} == values, name
        assert not (name == "board" and left_out)
        if name in ("smoke", "paper-recall", "paper-encoders", "paper-negatives", "paper-plain"):
            assert {cell.config.sampler for cell in cells[name]} == PAPER
    assert cells.keys() == preset_titles().keys()
    sizes = [len(cells[name]) for name in ("paper-coupling", "rivals", "smoke")]
    assert sizes == [1 + 5, 4 + 3 + 2, 8]


# --- files, and flags that replace what they say


def test_a_file_with_overrides(tmp_path):
    settings = 'title = "Mine"\nbatch-size = 64\nsampler = ["iid", "ns"]\nseed = 3\n'
    (file := tmp_path / "mine.toml").write_text(settings + 'noise = [1.0, "unigram", 0.75]\n')
    more = {"assignments": ["epochs=2,4", "lambda=8"], "flags": {"dataset": "a,b", "epochs": 5}}
    wanted = read_sweep(str(file), seeds=2, **more)
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
    cells, _ = sweeps.expand(wanted.axes)
    assert len(cells) == 2 * 2 * 2 * 2, "noise 1.0 and unigram are one"
    labels = " ".join(sweeps.label_cells(cells).values())
    assert "noise=0.75" in labels
    assert "lambda" not in labels


SMOKE = {"source": "smoke"}
REFUSED = [
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
    (SMOKE | {"assignments": ["sampler"]}, "not of the form key=value"),
    (SMOKE | {"assignments": ["data_dir=x"]}, "given by --data-dir"),
    (SMOKE | {"seeds": 2**32 + 1}, "would be above"),
    (SMOKE | {"flags": {"dataset": ","}}, "--dataset: dataset has no value"),
]
"""Contents of a file, which the message names, or what is asked for."""


@pytest.mark.parametrize(("given", "message"), REFUSED)
def test_bad_files_and_requests_are_refused(tmp_path, given, message):
    file = tmp_path / "bad.toml"
    if isinstance(given, str):
        file.write_text(given)
    with pytest.raises(UsageError) as caught:
        read_sweep(**(given if isinstance(given, dict) else {"source": str(file)}))
    assert message in str(caught.value)
    assert (str(file) in str(caught.value)) == isinstance(given, str)
