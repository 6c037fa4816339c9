"""Records of a race's arms that literals make."""

from typing import Any

from folders import change, floor_row, write_run

from ncfbench.advice.answer import make_answer
from ncfbench.advice.arms import RunArm
from ncfbench.advice.question import Question
from ncfbench.config import complete
from ncfbench.racing.engine import Status
from ncfbench.runs import folder as runs

FIXED = {"dataset": "tiny", "encoder": "cnn"}
NO_RUNS: Any = None


def entered(name, sampler, reason="", **more):
    """Return an arm, which left for a reason; for an answer it has two seeds."""
    arm = RunArm(name, complete(FIXED | {"sampler": sampler} | more), NO_RUNS)
    if reason:
        arm.status = Status.DIVERGED if reason.startswith("diverged") else Status.LEFT
        arm.reason = reason
    return arm


def written(runs_dir, arm, recalls, ms):
    """Return its runs, whose recall of validation links is that of test links; the first recall,
    before training, is not written.
    """

    def validate(rows):
        for row in rows:
            row |= validated(row)

    found = []
    for one in (arm, arm.repeat(1)):
        settings = {
            name: value
            for name, value in one.config.to_dict().items()
            if value is not None and name != "sampler"
        }
        losses = [9.0 - place for place in range(max(len(recalls), 2))]
        settings["errors"] = (0.003, 0.004)
        folder = write_run(runs_dir, arm.config.sampler, losses, ms, recalls, **settings)
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


def answered(dataset, arms, records, *, budget=60.0, spent=0.0, is_over=False):
    """Return the answer about arms with the records of their two seeds, by name."""
    both = [seed for arm in arms for seed in (arm, arm.repeat(1))]
    for arm in both:
        arm.record = next(iter(records[arm.name][arm.seed :]), None)
    more = {"budget_seconds": budget, "spent_seconds": spent, "is_over": is_over}
    return make_answer(Question(FIXED), both, dataset, **more)
