"""Runs written from literals, records of races, and results kept in the repository."""

import json
from functools import cache
from pathlib import Path
from unittest.mock import patch

from ncfbench.advice.answer import make_answer
from ncfbench.advice.arms import RunArm
from ncfbench.advice.question import Question
from ncfbench.auditing.conformance import PROPERTIES
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

ENVIRONMENT = {
    "key": "one",
    "time": "2026-01-01",
    "cpu": "a <fast> & small one",
    "cores": 2,
    "packages": {"jax": "0.10.2"},
}
MANIFEST = {
    "fingerprint": "f" * 64,
    "source": "citeulike",
    "statistics": {"users": 9, "words_mean": 1.5},
    "files": {},
    "options": {
        "text": ["title", "tags"],
        "max_length": 40,
        "test_fraction": 0.2,
        "vocabulary_size": None,
    },
}
"""The data of the runs."""
BLOCKS = (0.9, 1.0, 1.1, 1.3, 0.95)
"""Seconds of the raw blocks, by the median of which an iteration is called."""


ERRORS = tuple(f"test_recall_at_50_{end}" for end in ("error", "item_error", "chance"))


def make_run(runs_dir, config, fingerprint, feature_seconds=0.0):
    """Make the folder of a run that has no records yet."""
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
    was trained. So do ``validation``, recalls of validation links, and ``errors`` of the recalls,
    over users and over items.
    """
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
        recall = recalls[place] if 0 < place < len(recalls) else None
        judged = validation[place] if 0 < place < len(validation) else None
        row = {"iteration": 100 * place, "epoch": float(place), "train_seconds": 0.1 * place * ms}
        row |= {"probe_loss": float(loss), "batch_loss": float(loss)}
        row |= {"validation_recall_at_50": judged}
        for m in schemas.CUTOFFS:
            row[f"test_recall_at_{m}"] = None if recall is None else recall * m / 50
        if errors is not None and recall is not None:
            row |= dict(zip(ERRORS, (*errors, 0.001), strict=True))
        curve.append(row)
    timing = []
    nothing = dict.fromkeys(("sampling_seconds", "transfer_seconds", "waiting_seconds"), 0.0)
    nothing |= {"resumed": False, "environment_key": environment["key"]}
    for kind, share in (("full", 1.0), ("step", 0.5)):
        for place, factor in enumerate(BLOCKS):
            row = {"kind": kind, "first_iteration": 10 * place, "iterations": 10}
            row |= {"seconds": 10 * factor * share * ms / 1e3}
            slots = {"item_slots": 100.0 + place if kind == "full" else None}
            timing.append(row | nothing | slots)
    reported = reported_columns(curve, config.patience)
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
        **reported,
    }
    tables.write_json(folder / "environment.json", environment)
    tables.write_rows(folder / "curve.parquet", curve, schemas.CURVE)
    tables.write_rows(folder / "timing.parquet", timing, schemas.TIMING)
    tables.write_rows(folder / "ledger.parquet", [], schemas.LEDGER)
    tables.write_rows(folder / "summary.parquet", [summary], schemas.SUMMARY)
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
        "choice_seconds": seconds / 4,
        "fit_seconds": seconds / 4,
        "ranking_seconds": 9.0,
        "penalties": [],
        "recalls": [],
        "test_recall_at_50": recall,
        "test_recall_at_50_error": 0.003,
        "test_recall_at_50_item_error": 0.004,
    }
    return row | more


def write_profile(runs_dir):
    """The table of a profile, as far as the figure of epoch times reads it."""
    common = {
        "dataset": "citeulike",
        "encoder": "cnn",
        "loss": "sg",
        "batch_size": 512,
        "data_fingerprint": "f" * 64,
        "environment_key": "one",
        "links": 160_000,
    }
    lengths = {"iid": 0.2, "neg": 0.19, "strat": 0.02, "ns": 0.03, "strat-ns": 0.012}
    rows = [
        common | {"sampler": sampler, "measured_full_iteration_seconds": seconds}
        for sampler, seconds in lengths.items()
    ]
    tables.write_rows(runs_dir / "costmodel.parquet", rows, schemas.COSTMODEL)


def write_folder(runs_dir):
    """iid and three other samplers with three seeds each, one of which does not always reach the
    reference loss.
    """
    for seed in range(3):
        for sampler, losses, ms, recalls in (
            ("iid", [9, 5, 3 + 0.1 * seed], 200 + 10 * seed, [0.1, 0.3, 0.40 + 0.01 * seed]),
            ("ns", [9, 4 + 0.1 * seed, 2], 20 + seed, [0.1, 0.35, 0.42 + 0.01 * seed]),
            ("strat-ns", [9, 6, 2.9 + 0.05 * seed], 10, [0.1, 0.3, 0.45]),
            ("strat", [9, 8, 2.95 + 0.1 * seed**2], 12 + seed, [0.1, 0.2, 0.3]),
        ):
            write_run(runs_dir, sampler, losses, ms, recalls, seed=seed)
    return runs_dir


def write_tables(runs_dir):
    """Write a row of each kind for every table of a profile and an audit."""
    arm = {"sampler": "strat-ns", "strata": "item", "loss": "sg", "encoder": "cnn", "noise": "0.75"}
    profile = dict.fromkeys(("dataset", "settings", "data_fingerprint", "environment_key"), "same")
    parts = ("users", "items", "vectors", "matrix", "fixed")
    products = {"sizes": [64, 128], "step_seconds": [1.0, 2.0]}
    rows = {
        "unitcost": [
            filled(schemas.UNITCOST, **arm, **profile, part=part, **products) for part in parts
        ],
        "costmodel": [filled(schemas.COSTMODEL, **arm, **profile, baseline="iid")],
        "conformance": [
            filled(schemas.CONFORMANCE, **arm, property=name, result="fail") for name in PROPERTIES
        ],
        "audit": [filled(schemas.AUDIT, **arm, verdict="biased")],
    }
    for name, own in rows.items():
        schema = (schemas.AUDIT_TABLES | schemas.PROFILE_TABLES)[name]
        kept = [{key: row[key] for key in schema.names if key in row} for row in own]
        tables.write_rows(runs_dir / f"{name}.parquet", kept, schema)


def filled(schema, **own):
    """A row with a value in every column."""
    values = {"double": 0.5, "int64": 3, "bool": True, "string": "word"}
    return {field.name: values.get(str(field.type)) for field in schema} | own


def change(folder, table, edit):
    """Edit the rows of a table of a folder in place."""
    path, schema = folder / f"{table}.parquet", getattr(schemas, table.upper())
    rows = tables.read_rows(path, schema)
    edit(rows)
    tables.write_rows(path, rows, schema)


def answers_of(folder):
    """The answers as ``report --json`` prints them."""
    return collect(folder, folder).answer_rows


def record(sampler, losses, ms, recall=0.4, **more):
    extra = {
        key: more.pop(key)
        for key in ("key", "status", "fingerprint", "time", "reason")
        if key in more
    }
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
    }
    return RunRecord(
        folder=Path(f"runs/{sampler}-{config.seed}-{digest(config)}"),
        config=config,
        timing=[],
        ledger=[],
        curve=curve,
        summary=summary,
        data_fingerprint=extra.get("fingerprint", "f" * 64),
        environment={"key": extra.get("key", "one"), "time": extra.get("time", "2026-01-01")},
    )


def rows_of(records):
    (found,) = compare(frames.group(records))
    return {f"{row['sampler']} {row['variant']}".strip(): row for row in found.speedups}


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


def table_html(table):
    """Return one table as HTML."""
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
