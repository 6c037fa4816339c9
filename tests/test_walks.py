"""The walks of CONTRIBUTING.md: the files that a batch, a probe and a resumed run pass."""

import re
import sys
from contextlib import contextmanager
from pathlib import Path

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


def named(walk):
    """Return the files of a walk as the page names them: on its way, and beside it."""
    text = re.sub(r"\s+", " ", PAGE.read_text("utf-8"))
    (sentence,) = re.findall(rf"- \*{walk}\*.*?\.(?= - \*|\Z| #|  )", text)
    way, _, beside = sentence.partition("Beside its way")
    return [set(re.findall(r"`([a-z_/]+)\.py`", part)) for part in (way, beside)]


@contextmanager
def passes(walk, handles):
    """Assert that the files are those of a walk in which a function has a local variable that
    ``handles`` says.
    """
    files = set()

    def note(frame, event, value):
        path = Path(frame.f_code.co_filename)
        if event not in ("call", "return") or not path.is_relative_to(PACKAGE):
            return
        if any(map(handles, [*frame.f_locals.values(), value])):
            files.add(str(path.relative_to(PACKAGE).with_suffix("")))

    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)
    way, beside = named(walk)
    assert files == way | beside
    assert not way & beside
    assert len(way) <= MOST[walk]


def test_walks_pass_few_files(data_dir, tmp_path):
    """A batch from the sampler's draw to the updated state, with all that JAX traces; a probe from
    the parameters, by a row of the curve with its recall, to the files; a resumed run from its
    folder to the state and the records that it continues.
    """
    plan = RunPlan.of(complete(SMALL | {"sampler": "ns"}), Locations(data_dir, tmp_path))
    run = Run(plan, Ledger(), Progress(), lambda: False)
    with passes("A batch", lambda value: isinstance(value, (Batch, Draw, Held, TrainState))):
        run._loop.full_block(1)
    next(epochs for epochs in train(run) if epochs == 1)
    run.save()
    parameters, folder = run._loop.state.parameters, run.recorder.folder

    def is_of_probe(value):
        rows = value if isinstance(value, list) else [value]
        is_row = bool(rows) and isinstance(rows[0], dict) and "probe_loss" in rows[0]
        return is_row or isinstance(value, Evaluation) or value is parameters

    with passes("A probe", is_of_probe):
        run.record()
        run.recorder.write("running", run.iteration)
    run.close()

    def is_resumed(value):
        is_path = isinstance(value, Path) and value.is_relative_to(folder)
        return is_path or isinstance(value, (Checkpoints, RunRecord, Saved))

    with passes("A resumed run", is_resumed):
        resumed = Run(plan, Ledger(), Progress(), lambda: False)
    assert resumed.iteration > 0
    resumed.close()
