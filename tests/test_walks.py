"""The walks of CONTRIBUTING.md: the files that a batch, a probe and a resumed run pass."""

import re
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.training import SMALL

import ncfbench
from ncfbench.config import Locations, complete
from ncfbench.runs.folder import RunRecord
from ncfbench.runs.plan import RunPlan
from ncfbench.runs.progress import Progress
from ncfbench.runs.quality import Evaluation
from ncfbench.sampling.base import Draw
from ncfbench.sampling.batch import Batch
from ncfbench.timing.ledger import Ledger
from ncfbench.training.checkpoint import Checkpoints, Saved
from ncfbench.training.optimizer import Held
from ncfbench.training.state import TrainState
from ncfbench.training.train import Run, train

PACKAGE = Path(ncfbench.__file__).parent
PAGE = PACKAGE.parent / "CONTRIBUTING.md"
MOST = {"A batch": 12, "A probe": 9, "A resumed run": 8}


def told(walk):
    """Return the files of a walk as the page names them, and those beside its way."""
    text = re.sub(r"\s+", " ", PAGE.read_text("utf-8"))
    (sentence,) = re.findall(rf"- \*{walk}\*.*?\.(?= - \*|\Z| #|  )", text)
    way, _, beside = sentence.partition("Beside its way")
    names = [set(re.findall(r"`([a-z_/]+)\.py`", part)) for part in (way, beside)]
    return names[0], names[1]


@contextmanager
def passed(handles):
    """Yield the set of the files in which a function has a local variable that ``handles`` says."""
    files = set()

    def note(frame, event, value):
        path = Path(frame.f_code.co_filename)
        if event not in ("call", "return") or not path.is_relative_to(PACKAGE):
            return
        if any(map(handles, [*frame.f_locals.values(), value])):
            files.add(str(path.relative_to(PACKAGE).with_suffix("")))

    sys.setprofile(note)
    try:
        yield files
    finally:
        sys.setprofile(None)


@pytest.fixture
def opened(data_dir, tmp_path):
    """A function that opens a run of a small model, the same one each time."""
    config = complete(SMALL | {"sampler": "ns"})
    locations = Locations(data_dir, tmp_path)

    def opened():
        plan = RunPlan.of(config, locations)
        return Run(plan, Ledger(), Progress(), lambda: False)

    return opened


def assert_told(walk, files):
    way, beside = told(walk)
    assert files == way | beside
    assert not way & beside
    assert len(way) <= MOST[walk]


def test_a_batch_passes_few_files(opened):
    """From the sampler's draw to the updated state, with all that JAX traces."""
    run = opened()
    with passed(lambda value: isinstance(value, (Batch, Draw, Held, TrainState))) as files:
        run._loop.full_block(1)
    run.close()
    assert_told("A batch", files)


def test_a_probe_passes_few_files(opened):
    """From the parameters, by a row of the curve with its recall, to the files."""
    run = opened()
    next(epochs for epochs in train(run) if epochs == 1)
    run.save()
    parameters = run._loop.state.parameters

    def handles(value):
        rows = value if isinstance(value, list) else [value]
        is_row = bool(rows) and isinstance(rows[0], dict) and "probe_loss" in rows[0]
        return is_row or isinstance(value, Evaluation) or value is parameters

    with passed(handles) as files:
        run.record()
        run.recorder.write("running", run.iteration)
    run.close()
    assert_told("A probe", files)


def test_a_resumed_run_passes_few_files(opened):
    """From its folder to the state and the records that it continues."""
    run = opened()
    next(train(run))
    run.save()
    run.close()
    folder = run.recorder.folder

    def handles(value):
        is_path = isinstance(value, Path) and value.is_relative_to(folder)
        return is_path or isinstance(value, (Checkpoints, RunRecord, Saved))

    with passed(handles) as files:
        resumed = opened()
    assert resumed.iteration > 0
    resumed.close()
    assert_told("A resumed run", files)
