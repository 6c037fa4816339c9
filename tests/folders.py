"""Run folders written from literals: no training, no clock."""

import json
from typing import Any

from ncfbench.auditing.conformance import PROPERTIES
from ncfbench.config import complete
from ncfbench.reporting.results import collect
from ncfbench.runs import folder as runs
from ncfbench.runs.reported import reported_columns
from ncfbench.statistics import speedups as analysis
from ncfbench.storage import schemas, tables

Rows = list[dict[str, Any]]
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
"""What the runs' data are."""
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
        row: dict[str, Any] = {
            "iteration": 100 * place,
            "epoch": float(place),
            "train_seconds": 0.1 * place * ms,
        }
        row |= {
            f"test_recall_at_{m}": None if recall is None else recall * m / 50
            for m in schemas.CUTOFFS
        }
        judged = validation[place] if 0 < place < len(validation) else None
        if errors is not None and recall is not None:
            row |= dict(zip(ERRORS, (*errors, 0.001), strict=True))
        curve.append(
            row
            | {
                "probe_loss": float(loss),
                "batch_loss": float(loss),
                "validation_recall_at_50": judged,
            }
        )
    timing: list[dict[str, Any]] = []
    for kind, share in (("full", 1.0), ("step", 0.5)):
        for place, factor in enumerate(BLOCKS):
            timing.append(
                {
                    "kind": kind,
                    "first_iteration": 10 * place,
                    "iterations": 10,
                    "seconds": 10 * factor * share * ms / 1e3,
                    "sampling_seconds": 0.0,
                    "transfer_seconds": 0.0,
                    "waiting_seconds": 0.0,
                    "resumed": False,
                    "item_slots": 100.0 + place if kind == "full" else None,
                    "environment_key": environment["key"],
                }
            )
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
    found: Rows = collect(folder, folder).answer_rows
    return found
