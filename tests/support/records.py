"""Runs written from literals, records of races, and results kept in the repository."""

import itertools
import json
from functools import cache
from pathlib import Path
from unittest.mock import patch

from ncfbench.advice.answer import make_answer
from ncfbench.advice.arms import RunArm
from ncfbench.advice.question import Question
from ncfbench.blending import blend
from ncfbench.config import complete, digest
from ncfbench.racing.engine import Status
from ncfbench.reporting import frames
from ncfbench.reporting.render.html import templates
from ncfbench.reporting.results import collect
from ncfbench.reporting.rows import compare
from ncfbench.runs import folder as runs
from ncfbench.runs.folder import RunRecord
from ncfbench.runs.reported import reported_columns
from ncfbench.statistics import speedups as analysis
from ncfbench.storage import schemas, tables

CPU = "a <fast> & small one"
ENVIRONMENT = {"key": "one", "time": "2026-01-01", "cpu": CPU, "cores": 2}
ENVIRONMENT |= {"packages": {"jax": "0.10.2"}}
OPTIONS = {"text": ["title", "tags"], "max_length": 40, "test_fraction": 0.2}
MANIFEST = {
    "fingerprint": "f" * 64,
    "source": "citeulike",
    "statistics": {"users": 9, "words_mean": 1.5},
    "files": {},
    "options": OPTIONS | {"vocabulary_size": None},
}
"""The data of the runs."""
BLOCKS = (0.9, 1.0, 1.1, 1.3, 0.95)
"""Seconds of the raw blocks, by the median of which an iteration is called."""
TIMES = ("full_iteration_seconds", "step_iteration_seconds", "item_slots")
"""Columns of a summary that raw samples give."""
ERRORS = tuple(f"test_recall_at_50_{end}" for end in ("error", "item_error", "chance"))


def make_run(runs_dir, config, fingerprint, feature_seconds=0.0):
    folder = runs.path_of(runs_dir, config, fingerprint)
    while folder.exists():  # of another seed's or machine's times, under another name
        folder = folder.with_name(f"{folder.name}-2")
    folder.mkdir(parents=True)
    runs.write_config(folder, config, fingerprint, feature_seconds)
    return folder


def write_run(runs_dir, sampler, losses, ms, recalls=(), **more):
    """A finished run: a probe every 100 iterations, an epoch at each; ``ms`` the median of an
    iteration.

    ``recalls`` stand beside the losses; the first is not written, for no run is evaluated before it
    was trained. So do ``validation``, recalls of validation links, and ``errors`` over users and
    items. ``edit`` changes the rows of the curve; ``spread`` stretches how times of blocks differ.
    """
    edit, spread = more.pop("edit", None), more.pop("spread", 1.0)
    validation, errors = more.pop("validation", ()), more.pop("errors", None)
    environment = ENVIRONMENT | {
        key: more.pop(key) for key in ("key", "time", "interleaved") if key in more
    }
    fingerprint, status = more.pop("fingerprint", "f" * 64), more.pop("status", "finished")
    feature_seconds = more.pop("feature_seconds", 0.0)
    config = complete({"sampler": sampler, "dataset": "citeulike"} | more)
    folder = make_run(runs_dir, config, fingerprint, feature_seconds)
    curve = []
    for place, loss in enumerate(losses):
        recall, judged = (
            values[place] if 0 < place < len(values) else None for values in (recalls, validation)
        )
        row = {"iteration": 100 * place, "epoch": float(place), "train_seconds": 0.1 * place * ms}
        row |= {"probe_loss": float(loss), "batch_loss": float(loss)}
        row |= {"validation_recall_at_50": judged}
        for m in schemas.CUTOFFS:
            row[f"test_recall_at_{m}"] = None if recall is None else recall * m / 50
        if errors is not None and recall is not None:
            row |= dict(zip(ERRORS, (*errors, 0.001), strict=True))
        curve.append(row)
    if edit is not None:
        edit(curve)
    timing = []
    nothing = dict.fromkeys(("sampling_seconds", "transfer_seconds", "waiting_seconds"), 0.0)
    nothing |= {"resumed": False, "environment_key": environment["key"], "iterations": 10}
    for (kind, share), (place, factor) in itertools.product(
        (("full", 1.0), ("step", 0.5)), enumerate(BLOCKS)
    ):
        row = {"kind": kind, "first_iteration": 10 * place}
        row |= {"seconds": 10 * (1 + spread * (factor - 1)) * share * ms / 1e3}
        row |= {"item_slots": 100.0 + place if kind == "full" else None}
        timing.append(row | nothing)
    summary = {
        "run": folder.name,
        "status": status,
        "seed": config.seed,
        "config": json.dumps(config.to_dict()),
        **{name: getattr(config, name) for name in ("dataset", "sampler", "encoder", "loss")},
        "data_fingerprint": fingerprint,
        "environment_key": environment["key"],
        "iterations": 100 * (len(losses) - 1),
        "epochs": float(len(losses) - 1),
        "smallest_probe_loss": float(min(losses)),
        "wall_seconds": 1.0,
        "full_iteration_seconds": analysis.seconds_per_iteration(timing, "full"),
        "step_iteration_seconds": analysis.seconds_per_iteration(timing, "step"),
        "item_slots": analysis.weighted_mean(timing, "item_slots"),
        **reported_columns(curve, config.patience),
    }
    tables.write_json(folder / "environment.json", environment)
    for name, rows in (
        *(("curve", curve), ("timing", timing)),
        *(("ledger", []), ("summary", [summary])),
    ):
        tables.write_rows(folder / f"{name}.parquet", rows, getattr(schemas, name.upper()))
    return folder


def floor_row(floor, recall, seconds, **more):
    """A row of a floor: half of its seconds are for content, a quarter chose its penalty."""
    row = dict.fromkeys(schemas.FLOOR.names) | {
        "dataset": "citeulike",
        "floor": floor,
        "content": "TF-IDF" if floor in ("profile", "ridge") else None,
        "settings": "{}",
        "environment_key": "one",
        "data_fingerprint": "f" * 64,
        "content_seconds": seconds / 2,
        **dict.fromkeys(("choice_seconds", "fit_seconds"), seconds / 4),
        "ranking_seconds": 9.0,
        **{name: [] for name in ("penalties", "recalls")},
        "test_recall_at_50": recall,
        "test_recall_at_50_error": 0.003,
        "test_recall_at_50_item_error": 0.004,
    }
    return row | more


def write_folder(runs_dir):
    """Write the runs of two data sets. Of CiteULike iid and three other samplers have three seeds
    each, one of which does not always reach the reference loss.
    """
    for seed in range(3):
        for sampler, losses, ms, recalls in (
            ("iid", [9, 5, 3 + 0.1 * seed], 200 + 10 * seed, [0.1, 0.3, 0.40 + 0.01 * seed]),
            ("ns", [9, 4 + 0.1 * seed, 2], 20 + seed, [0.1, 0.35, 0.42 + 0.01 * seed]),
            ("strat-ns", [9, 6, 2.9 + 0.05 * seed], 10, [0.1, 0.3, 0.45]),
            ("strat", [9, 8, 2.95 + 0.1 * seed**2], 12 + seed, [0.1, 0.2, 0.3]),
        ):
            write_run(runs_dir, sampler, losses, ms, recalls, seed=seed)
    _write_own_data(runs_dir)
    custom = MANIFEST | {"fingerprint": "e" * 64, "source": "custom"}
    tables.write_json(runs_dir / "datasets.json", {"f" * 64: MANIFEST, "e" * 64: custom})
    return runs_dir


def _write_own_data(runs_dir):
    """Two seeds with recalls of validation links, of new and of known items, item features, floors,
    blends and several losses; an arm diverged, one was disturbed, and one is of another machine.
    """
    data = {"dataset": "own-data", "encoder": "bow", "fingerprint": "e" * 64, "epochs": 2}
    data |= {"interleaved": ["a"], "feature_seconds": 3.5, "errors": (0.003, 0.004)}
    data["edit"] = _add_measures
    for seed, (sampler, ms, recall, more) in itertools.product(
        range(2),
        (
            ("iid", 80, 0.30, {}),
            ("strat-ns", 10, 0.42, {}),
            ("strat-ns", 11, 0.40, {"learning_rate": 0.03}),
            ("strat", 50, 0.25, {"spread": 3.0}),
            ("ns", 30, 0.41, {"loss": "softmax"}),
            ("ns", 30, 0.20, {"loss": "log", "status": "diverged"}),
            ("neg", 30, 0.20, {"key": "two", "time": "2025-01-01"}),
        ),
    ):
        recalls, losses = [0.1, 0.2, recall + 0.01 * seed], [9, 5, 4 - 3 * recall]
        run = write_run(runs_dir, sampler, losses, ms, recalls, seed=seed, **data | more)
        if (sampler, more) == ("strat-ns", {}):
            blend.write(run, [blend_row(recall + 0.02, 0.005)])
            (run / "checkpoints").mkdir()
    row = {"dataset": "own-data", "data_fingerprint": "e" * 64, "test_ndcg_at_50": 0.3}
    row |= {f"{split}_recall_at_50_chance": 0.001 for split in ("test", "validation")}
    floors = [judged_floor("ridge", 0.40, 19.0, **row), judged_floor("profile", 0.3, 3.5, **row)]
    floors[0] |= {"test_user_recalls": [0.39, 0.41], "test_item_shares": [0.001] * 400}
    tables.write_rows(runs_dir / "floors.parquet", floors, schemas.FLOOR)


def _add_measures(curve):
    """NDCG, MRR, recalls of new and of known items, and of validation links those of test links."""
    for row in curve[1:]:
        recall = row["test_recall_at_50"]
        row |= {"test_ndcg_at_50": recall / 2, "test_mrr": recall / 3}
        for part, factor in (("new_items", 0.5), ("known_items", 1.5)):
            row[f"test_recall_at_50_{part}"] = factor * recall
            row[f"test_recall_at_50_{part}_error"] = 0.002
        row |= validated(row)


def blend_row(recall, apart, floor="ridge"):
    """A blend, two users of which are so far from the mean recall."""
    row = dict.fromkeys(schemas.BLEND.names) | {"floor": floor, "metric": "recall_at_50"}
    for split in ("test", "validation"):
        row[f"{split}_recall_at_50"] = recall
        row[f"{split}_user_recalls"] = [recall - apart, recall + apart]
        row[f"{split}_item_shares"] = [recall / 400] * 400
    return row | {"weight": 0.7, "iteration": 200}


def filled(schema, **more):
    values = {"double": 0.5, "int64": 3, "bool": True, "string": "word"}
    return {field.name: values.get(str(field.type)) for field in schema} | more


def change(folder, table, edit):
    path, schema = folder / f"{table}.parquet", getattr(schemas, table.upper())
    rows = tables.read_rows(path, schema)
    edit(rows)
    tables.write_rows(path, rows, schema)


def record(sampler, losses, ms, recall=0.4, **more):
    names = ("key", "status", "fingerprint", "time", "reason", "interleaved", "summary")
    extra = {name: more.pop(name) for name in names if name in more}
    config = complete({"sampler": sampler, "dataset": "citeulike"} | more)
    curve = [{"iteration": 100 * place, "probe_loss": loss} for place, loss in enumerate(losses)]
    summary = dict.fromkeys(schemas.SUMMARY.names) | {
        "status": extra.get("status", "finished"),
        "full_iteration_seconds": ms / 1e3,
        "step_iteration_seconds": ms / 2e3,
        "item_slots": 100.0,
        "reported_epoch": 3.0,
        "recall_reason": extra.get("reason"),
        "iterations": 300,
        "smallest_probe_loss": min(losses),
        **{f"test_recall_at_{m}": recall for m in schemas.CUTOFFS},
        **extra.get("summary", {}),
    }
    environment = {"key": "one", "time": "2026-01-01", "interleaved": []}
    return RunRecord(
        folder=Path(f"runs/{sampler}-{config.seed}-{digest(config)}"),
        config=config,
        timing=[],
        ledger=[],
        curve=curve,
        summary=summary,
        data_fingerprint=extra.get("fingerprint", "f" * 64),
        environment={name: extra.get(name, value) for name, value in environment.items()},
    )


def rows_of(records):
    (results,) = compare(frames.group(records))
    return {f"{row['sampler']} {row['variant']}".strip(): row for row in results.speedups}


FIXED = {"dataset": "tiny", "encoder": "cnn"}
NO_RUNS = None


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

    result, losses = [], [9.0 - place for place in range(max(len(recalls), 2))]
    for one in (arm, arm.repeat(1)):
        settings = {
            name: value for name, value in one.config.to_dict().items() if value is not None
        }
        settings |= {"losses": losses, "ms": ms, "recalls": recalls, "errors": (0.003, 0.004)}
        folder = write_run(runs_dir, **settings)
        change(folder, "curve", validate)
        result.append(runs.read(folder))
    return result


def validated(row):
    """Return the columns of validation links with the values of those of test links."""
    names = (name for name in row if name.startswith(("test_recall_at_50", "test_ndcg")))
    return {name.replace("test", "validation", 1): row[name] for name in names}


def judged_floor(floor, recall, seconds, **more):
    row = floor_row(floor, recall, seconds)
    return row | validated(row) | more


def answered(dataset, arms, records, *, budget=60.0, spent=0.0, is_over=False):
    """Return the answer about arms with the records of their two seeds, by name."""
    both = [seed for arm in arms for seed in (arm, arm.repeat(1))]
    for arm in both:
        arm.record = next(iter(records[arm.name][arm.seed :]), None)
    more = {"budget_seconds": budget, "spent_seconds": spent, "is_over": is_over}
    return make_answer(Question(FIXED), both, dataset, **more)


def table_html(table):
    return str(templates().get_template("table.html").module.show(table))


REPOSITORY = Path(__file__).parents[2]
FOLDERS = sorted(path.parent for path in REPOSITORY.glob("results/*/speedup.parquet"))
read = cache(runs.read_all)
"""Reads the runs of a folder, once."""


@cache
def kept(folder, **only):
    """A folder's results, read once, of runs whose settings have some values."""
    wanted = {name: [value] for name, value in only.items()}
    where = REPOSITORY / "results" / folder
    with patch.object(runs, "read_all", lambda where: tuple(map(list, read(where)))):
        return collect(where, REPOSITORY / "no data", only=wanted)
