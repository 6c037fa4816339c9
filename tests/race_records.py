"""Records of a race's arms that literals make."""

from folders import change, floor_row, write_run

from ncfbench.advice.answer import make_answer
from ncfbench.advice.candidates import Candidate, State, Status
from ncfbench.advice.question import Question
from ncfbench.config import complete
from ncfbench.runs import folder as runs

FIXED = {"dataset": "tiny", "encoder": "cnn"}


def entrant(name, sampler, reason="", **more):
    config = complete(FIXED | {"sampler": sampler} | more)
    found = Candidate(name, config, seeds=[0, 1])
    if reason:
        found.leave(Status.DIVERGED if reason.startswith("diverged") else Status.LEFT, reason)
    return found


def written(runs_dir, each, recalls, ms):
    """Return its runs, whose recall of validation links is that of test links; the first recall,
    before training, is not written.
    """

    def validate(rows):
        for row in rows:
            row |= validated(row)

    found = []
    for seed in (0, 1):
        settings = {
            name: value
            for name, value in each.with_seed(seed).to_dict().items()
            if value is not None and name != "sampler"
        }
        losses = [9.0 - place for place in range(max(len(recalls), 2))]
        settings["errors"] = (0.003, 0.004)
        folder = write_run(runs_dir, each.config.sampler, losses, ms, recalls, **settings)
        change(folder, "curve", validate)
        found.append(runs.read(folder))
    return found


def validated(row):
    """Return the columns of validation links with the values of those of test links."""
    names = (name for name in row if name.startswith(("test_recall_at_50", "test_ndcg")))
    return {name.replace("test", "validation", 1): row[name] for name in names}


def judged_floor(floor, recall, seconds, **more):
    """Return the row of a floor whose recall of validation links is that of test links."""
    row = floor_row(floor, recall, seconds)
    return row | validated(row) | more


def answered(dataset, entrants, records, *, budget=60.0, **more):
    state = State(dataset.fingerprint, entrants, [], first_clock=1.0, **more)
    return make_answer(Question(FIXED), state, records, dataset, budget)
