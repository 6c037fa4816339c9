"""Schemas of all tables that are written: columns, types, and the version that stands in them.

A table is read if it has the present version and all columns of its schema. A column that is
added, or whose meaning changes, raises :data:`SCHEMA_VERSION`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import pyarrow as pa

SCHEMA_VERSION = 14
TYPES = {
    "text": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "flag": pa.bool_(),
    "texts": pa.list_(pa.string()),
    "integers": pa.list_(pa.int64()),
    "numbers": pa.list_(pa.float64()),
    "floats": pa.list_(pa.float32()),
}


def _schema(table: str, *columns: str | Iterable[str]) -> pa.Schema:
    """Return a schema; a word with a colon gives the type of the columns that follow it."""
    fields, dtype = [], pa.string()
    for part in columns:
        for name in part.split() if isinstance(part, str) else part:
            if name.endswith(":"):
                dtype = TYPES[name[:-1]]
            else:
                fields.append((name, dtype))
    return pa.schema(fields, metadata={"table": table})


CUTOFFS = (10, 20, 50, 100)
"""Values of M in recall@M, NDCG@M and the hit rate at M."""
EVALUATED: tuple[Literal["validation", "test"], ...] = ("validation", "test")
"""Splits whose items are ranked."""
_RECALLS = tuple(f"recall_at_{m}" for m in CUTOFFS)
_HIT_RATES = tuple(f"hit_rate_at_{m}" for m in CUTOFFS)
MEASURES = (*_RECALLS, *(f"ndcg_at_{m}" for m in CUTOFFS), "mrr", *_HIT_RATES)
"""Measures of ranking quality (:mod:`ncfbench.runs.quality`)."""
PARTS = ("cold_users", "new_items", "known_items")
"""Users and items of which recall@50 is measured apart."""
QUALITY = (
    *MEASURES,
    *(f"{measure}_{what}" for measure in MEASURES for what in ("error", "chance")),
    "recall_at_50_item_error",
    *(f"recall_at_50_{part}{end}" for part in PARTS for end in ("", "_error")),
    "cold_users",
)
"""The measures of an evaluation of a split, each with its standard error over users and its chance
level; the error of recall@50 over items; recall@50 of users without training links, and of links
to items without and with training links, each with its error; the number of the former users.
"""
QUALITY_COLUMNS = tuple(f"{split}_{name}" for split in EVALUATED for name in QUALITY)
OF_USERS: Mapping[str, tuple[str, str]] = {
    split: (f"{split}_user_recalls", f"{split}_item_shares") for split in EVALUATED
}
"""Columns of a floor with a value for each user, and for each item, by split."""
_RECALL_COLUMNS = [f"{split}_{name}" for split in EVALUATED for name in _RECALLS]
_OTHER_QUALITY = [name for name in QUALITY_COLUMNS if name not in _RECALL_COLUMNS]

CURVE = _schema(
    "curve",
    "integer: iteration number: epoch train_seconds probe_loss batch_loss",
    [*_RECALL_COLUMNS, *_OTHER_QUALITY],
)
"""One row for each probe. Quality is null between epochs, and where there is nothing to rank.

``epoch``: passes over the links, whole where an iteration completes one.
"""

EVALUATION = _schema(
    "evaluation", "integer: iteration text: split floats: user_recalls item_shares"
)
"""One row for each evaluation of a split: recall@50 by user and by item
(:class:`ncfbench.runs.quality.Evaluation`).
"""

TIMING = _schema(
    "timing",
    "text: kind integer: first_iteration iterations number: seconds sampling_seconds"
    " transfer_seconds waiting_seconds item_slots flag: resumed text: environment_key",
)
"""Raw samples. ``kind``: full, step (blocks of ``iterations``), compile, probe, evaluation,
checkpoint.

``item_slots``: mean number of real item slots of the block's batches. ``resumed``: an interruption
cut the block's epoch; summaries leave it out where there are others, and use the last environment.
"""

LEDGER = _schema("ledger", "integer: session text: thread line number: seconds")
"""Exclusive seconds of each line; the main thread's add up to a session's wall time. Each
resumption starts a session.
"""

SUMMARY = _schema(
    "summary",
    "text: run status dataset sampler encoder loss integer: seed",
    "text: config data_fingerprint environment_key integer: iterations planned_iterations",
    "number: epochs smallest_probe_loss full_iteration_seconds step_iteration_seconds",
    "sampling_iteration_seconds train_seconds wall_seconds item_slots reported_epoch",
    [*_RECALL_COLUMNS, "text:", "recall_reason", "message", "reported_by"],
    ["number:", *_OTHER_QUALITY],
)
"""One row: the outcome of a run. Times are medians over its blocks, quality is that of the reported
epoch. ``reported_by``: the rule that chose it (:mod:`ncfbench.runs.reported`).
"""

FLOOR = _schema(
    "floor",
    "text: dataset floor content settings chosen_by number: penalty numbers: penalties recalls",
    "number: content_seconds fit_seconds choice_seconds ranking_seconds",
    ["number:", *QUALITY_COLUMNS],
    ["floats:", *OF_USERS["test"], *OF_USERS["validation"]],
    "text: data_fingerprint environment_key",
)
"""One row for each floor of a data set. ``content``: what it reads of the items, ``TF-IDF``,
``features`` or ``TF-IDF and features``, if anything. ``settings``: a penalty that was given, or
those that it is chosen from, and other numbers that decide its scores, as JSON. ``chosen_by``:
validation, what stood in for it, or given; ``recalls``: recall@50 there with each of the
``penalties`` tried.

``content_seconds``: vectors of the items, which floors share, derived features included;
``fit_seconds``: the fit with the penalty of the row; ``choice_seconds``: all that chose it;
``ranking_seconds``: the test links.
The columns of :data:`OF_USERS` are as in :data:`EVALUATION`; those of validation links are null
where there are none.
"""

BLEND = _schema(
    "blend",
    "text: floor metric integer: iteration number: weight numbers: weights heights",
    "number: penalty seconds",
    ["number:", *QUALITY_COLUMNS],
    ["floats:", *OF_USERS["test"], *OF_USERS["validation"]],
)
"""One row for each of a run's blends with a floor (:mod:`ncfbench.blending`). ``iteration``: that
of the epoch that the run reports, whose parameters are blended; ``weight``: of the run;
``heights``: the ``metric`` of validation links with each of the ``weights``; ``penalty``: of the
floor, null where it has none; ``seconds``: to fit the floor again, to choose and to rank.
"""


def recommendations(named_users: bool, named_items: bool) -> pa.Schema:
    """Return the schema of recommendations: one row for each user and rank, the best first, with an
    item, its score, and whether it is a test link of the user.

    Args:
        named_users, named_items: whether the source has ids; without them the columns hold numbers.
    """
    types = {
        "user": pa.string() if named_users else pa.int32(),
        "item": pa.string() if named_items else pa.int32(),
        "rank": pa.int32(),
        "score": pa.float32(),
        "hit": pa.bool_(),
    }
    return pa.schema(types, metadata={"table": "recommendations"})


def _with_intervals(names: Iterable[str]) -> list[str]:
    return [f"{name}{end}" for name in names for end in ("", "_lower", "_upper")]


ARMS = _schema(
    "arms",
    "text: run dataset data_fingerprint encoder loss sampler variant",
    "integer: batch_size stratum_size negatives number: learning_rate integer: seed text: status",
    "integer: iterations number: epochs item_slots iteration_seconds feature_seconds",
    "smallest_probe_loss text: baseline_run number: target flag: reached",
    "number: iterations_to_target seconds_to_target times_shorter times_fewer times_sooner",
    "reported_epoch test_recall_at_50 text: environment_key",
)
"""Runs in a report: a row for each, beside the run of its baseline."""
_CELL = "text: dataset encoder loss sampler variant settings data_fingerprint"
SPEEDUP = _schema(
    "speedup",
    _CELL,
    "baseline status integer: seeds seeds_reached",
    "number: reference_loss iterations_to_reference seconds_to_reference",
    "full_iteration_seconds step_iteration_seconds full_iteration_spread item_slots",
    _with_intervals(
        f"{name}_speedup" for name in ("per_iteration", "iterations", "total", "step_per_iteration")
    ),
    "iterations_speedup_at_most total_speedup_at_most",
    "flag: interleaved simulated same_environment texts: runs baseline_runs text: reason",
)
"""The paper's speedup table. ``status``: baseline, reached, not reached, diverged; no
baseline, also where it diverged or has not trained (``reason``), so that there are ratios of times
only; or not trained, of a baseline itself.

Ratios of baseline over arm are geometric means over the seeds that both share, ``_lower`` and
``_upper`` their 95 % intervals (:mod:`ncfbench.statistics.intervals`), ``_at_most`` upper bounds
where only ``seeds_reached`` of the ``seeds`` reached the reference loss. ``simulated``: times mean
nothing. ``full_iteration_spread``: the largest :func:`ncfbench.statistics.speedups.spread`.
"""

RECALL = _schema(
    "recall",
    _CELL,
    "status integer: seeds number: reported_epoch",
    _with_intervals(f"test_recall_at_{m}" for m in CUTOFFS),
    "text: reason texts: runs",
)
"""The paper's recall table: means over seeds, with 95 % intervals, which are null with one seed."""

AUDIT = _schema(
    "audit",
    "text: dataset encoder loss noise sampler strata verdict shown_by flag: mask",
    "integer: batch_size negatives stratum_size uniform_items seed batches",
    "number: margin integer: verdicts",
    "number: bias bias_low bias_high detectable_bias cosine integer: batches_needed",
    "number: batch_variance",
    "text: data_fingerprint",
)
"""One row for each verdict. ``shown_by``: gradient, weights or declared, where it is biased.

Biases are shares of the exact gradient's length, ``batch_variance`` of its square.
"""

CONFORMANCE = _schema(
    "conformance",
    "text: dataset noise loss_family sampler strata property result detail",
    "number: detectable_error",
)
"""One row for each property of a sampler. ``result``: pass, fail, not tested, or declared."""

AUDIT_TABLES = {"conformance": CONFORMANCE, "audit": AUDIT}
"""Tables that an audit writes, by the name of the file, in the order in which they are shown."""

_PROFILED = "text: dataset encoder loss sampler strata integer: batch_size"
PROFILE = _schema(
    "profile",
    _PROFILED,
    "text: settings unusual_settings part integer: size round calls number: seconds",
    "text: data_fingerprint environment_key",
)
"""Raw samples of a profile: ``calls`` of a part took ``seconds``.

``part``: step by items, users, vectors, matrix (the step on constructed batches, at ``size`` nodes
or interactions); and full, step, draw, assemble, transfer of a sampler.
"""

COSTMODEL = _schema(
    "costmodel",
    _PROFILED,
    "text: settings unusual_settings integer: negatives stratum_size text: baseline",
    "integer: rounds nominal_users nominal_items nominal_negatives",
    "number: distinct_users distinct_items integer: user_slots item_slots interactions",
    "text: interaction_kind number: predicted_users_seconds predicted_items_seconds",
    "predicted_interactions_seconds predicted_fixed_seconds",
    "predicted_step_iteration_seconds measured_step_iteration_seconds",
    "predicted_full_iteration_seconds measured_full_iteration_seconds",
    [
        f"{name}_{account}_speedup"
        for account in ("step", "full")
        for name in ("predicted", "measured", "lower", "upper")
    ],
    "number: draw_seconds assemble_seconds transfer_seconds integer: links",
    "text: data_fingerprint environment_key",
)
"""One row for each sampler of a profile: counts, predicted and measured seconds, speedups over the
baseline.
"""

UNITCOST = _schema(
    "unitcost",
    "text: dataset encoder loss settings part unusual_settings integer: batch_size",
    "number: unit_seconds integers: sizes numbers: step_seconds",
    "text: data_fingerprint environment_key",
)
"""One row for each part.

``unit_seconds``: what one more node or interaction adds to the step; for the part ``fixed`` what no
count changes. ``step_seconds``: medians of the steps of each of the ``sizes``.
"""

PROFILE_TABLES = {"profile": PROFILE, "unitcost": UNITCOST, "costmodel": COSTMODEL}
"""Tables that a profile writes, by the name of the file."""
