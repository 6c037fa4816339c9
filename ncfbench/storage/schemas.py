"""Schemas of the tables that runs, reports and races write: columns, types, a version.

Those of audits and profiles, in modules of their own, share the version and its history.

A change of a column raises :data:`SCHEMA_VERSION` and gets an entry here. Older versions in
:data:`READABLE` are read with null in the columns that were added since (:func:`added`), and
refused by the first other column that they lack.

10 (23 November 2026)
    curve: the staleness of remembered item vectors

9 (23 November 2026)
    frameworks: ``limit_bias``

8 (23 November 2026)
    audit: ``negative_items``, ``cache_age``; frameworks: new

7 (23 November 2026)
    audit: parts of the variance over users, items and positive links

6 (22 November 2026)
    curve, summary: recall@50 of users without training links

5 (22 November 2026)
    Unit costs are marginal costs in the step; parts timed alone stand beside them.

    - unitcost: ``alone_unit_seconds``, ``alone_seconds``, ``step_seconds``; without
      ``overhead_seconds``
    - costmodel: ``predicted_fixed_seconds``, ``random_items_step_iteration_seconds``; null are the
      predicted collectives, optimiser and dispatch, and all measured parts but the collectives

4 (22 November 2026)
    - curve, summary: NDCG, MRR, standard errors and chance levels; summary: ``reported_by``
    - evaluation: new
    - speedup: ``reason``

3 (22 November 2026)
    profile, costmodel, unitcost: ``unusual_settings``

2 (22 November 2026)
    The columns of the last tables of version 1.

1 (21 and 22 November 2026)
    Kept its number while columns were added, in this order:

    - curve, timing, summary, speedup and recall, the first tables
    - timing: ``environment_key``
    - audit, xray, conformance: new
    - conformance: ``detectable_error``
    - ledger: new; timing: ``transfer_seconds``; audit: ``shown_by``
    - profile, costmodel, unitcost: new
    - costmodel: ``residuals``
    - profile, costmodel, unitcost: ``settings``; costmodel: ``serial_*`` beside ``paper_*``;
      unitcost: ``spread``
    - speedup: ``settings``, ``data_fingerprint``, ``seeds_reached``, intervals, ``*_at_most``,
      ``baseline_runs``; recall: ``settings``, ``data_fingerprint``, intervals
    - speedup: ``full_iteration_spread``
    - recommendations: new
    - audit: ``share``, ``devices``
    - costmodel: ``devices``, ``share``, ``simulated``, ``*_sent_bytes``
    - speedup: ``simulated``
"""

from __future__ import annotations

from typing import Literal

import pyarrow as pa

SCHEMA_VERSION = 10
READABLE = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
"""Versions that this program reads."""
SINCE = b"since"
"""Key of a field's metadata: the version that added the column."""


def added(name: str, dtype: pa.DataType, version: int) -> pa.Field:
    """Return a column that tables older than ``version`` lack; they are read with null in it."""
    return pa.field(name, dtype, metadata={SINCE: str(version).encode()})


CUTOFFS = (10, 20, 50, 100)
"""Values of M in recall@M and NDCG@M."""
EVALUATED: tuple[Literal["validation", "test"], ...] = ("validation", "test")
"""Splits whose items are ranked."""
_RECALLS = tuple(f"recall_at_{m}" for m in CUTOFFS)
MEASURES = (*_RECALLS, *(f"ndcg_at_{m}" for m in CUTOFFS), "mrr")
"""Measures of ranking quality (:mod:`ncfbench.runs.quality`)."""
_OF_COLD_USERS = ("recall_at_50_cold_users", "recall_at_50_cold_users_error")
QUALITY = (
    *MEASURES,
    *(f"{measure}_{what}" for measure in MEASURES for what in ("error", "chance")),
    "recall_at_50_item_error",
    *_OF_COLD_USERS,
)
"""The measures of an evaluation of a split: each measure with its standard error over users and its
chance level, the standard error of recall@50 over items, and recall@50 of the users who have no
training link, with its error.
"""
QUALITY_COLUMNS = tuple(f"{split}_{name}" for split in EVALUATED for name in QUALITY)
_LATER_QUALITY = [
    added(f"{split}_{name}", pa.float64(), 6 if name in _OF_COLD_USERS else 4)
    for split in EVALUATED
    for name in QUALITY
    if name not in _RECALLS
]
STALENESS = ("memory_newest_distance", "memory_oldest_distance", "memory_age_updates")
"""The staleness of remembered item vectors (:class:`ncfbench.training.carry.Memory`)."""

CURVE = pa.schema(
    [
        ("iteration", pa.int64()),
        ("epoch", pa.float64()),
        ("train_seconds", pa.float64()),
        ("probe_loss", pa.float64()),
        ("batch_loss", pa.float64()),
        *((f"{split}_{measure}", pa.float64()) for split in EVALUATED for measure in _RECALLS),
        *_LATER_QUALITY,
        *(added(name, pa.float64(), 10) for name in STALENESS[:2]),
        added(STALENESS[2], pa.int64(), 10),
    ],
    metadata={"table": "curve"},
)
"""One row for each probe. Quality is null between epochs, and where there is nothing to rank.

``epoch`` is the number of passes over the links; where an iteration completes a pass it is whole,
though the batch may hold the first links of the next pass. Staleness is known at the end of an
epoch of a run that remembers item vectors: distances over the length of the present vectors.
"""

EVALUATION = pa.schema(
    [
        ("iteration", pa.int64()),
        ("split", pa.string()),
        ("user_recalls", pa.list_(pa.float32())),
        ("item_shares", pa.list_(pa.float32())),
    ],
    metadata={"table": "evaluation"},
)
"""One row for each evaluation of a split: what recall@50 is made of, so that two evaluations can be
compared user by user and item by item (:class:`ncfbench.runs.quality.Evaluation`).
"""

TIMING = pa.schema(
    [
        ("kind", pa.string()),
        ("first_iteration", pa.int64()),
        ("iterations", pa.int64()),
        ("seconds", pa.float64()),
        ("sampling_seconds", pa.float64()),
        ("transfer_seconds", pa.float64()),
        ("waiting_seconds", pa.float64()),
        ("item_slots", pa.float64()),
        ("resumed", pa.bool_()),
        ("environment_key", pa.string()),
    ],
    metadata={"table": "timing"},
)
"""Raw samples. ``kind``: full, traced, step (blocks of ``iterations``), compile, probe, evaluation,
recommendation, checkpoint; refresh, a mining of negatives, whose N-th part each of the
``iterations`` = N iterations up to the next one is charged in full, traced and step.

``item_slots`` is the mean number of real item slots of the block's batches. ``resumed`` marks a
block of an epoch that an interruption cut; summaries leave it out where there are others. A run
that was resumed elsewhere has samples of two environments; its summary uses those of the last.
"""

LEDGER = pa.schema(
    [
        ("session", pa.int64()),
        ("thread", pa.string()),
        ("line", pa.string()),
        ("seconds", pa.float64()),
    ],
    metadata={"table": "ledger"},
)
"""Exclusive seconds of each line of the ledger; the main thread's lines add up to the wall time.
Each resumption starts a session.
"""

SUMMARY = pa.schema(
    [
        *(
            (name, pa.string())
            for name in ("run", "status", "dataset", "sampler", "encoder", "loss")
        ),
        ("seed", pa.int64()),
        ("config", pa.string()),
        ("data_fingerprint", pa.string()),
        ("environment_key", pa.string()),
        ("iterations", pa.int64()),
        ("planned_iterations", pa.int64()),
        ("epochs", pa.float64()),
        ("smallest_probe_loss", pa.float64()),
        ("full_iteration_seconds", pa.float64()),
        ("step_iteration_seconds", pa.float64()),
        ("sampling_iteration_seconds", pa.float64()),
        ("train_seconds", pa.float64()),
        ("wall_seconds", pa.float64()),
        ("item_slots", pa.float64()),
        ("reported_epoch", pa.float64()),
        *((f"{split}_{measure}", pa.float64()) for split in EVALUATED for measure in _RECALLS),
        ("recall_reason", pa.string()),
        ("message", pa.string()),
        added("reported_by", pa.string(), 4),
        *_LATER_QUALITY,
    ],
    metadata={"table": "summary"},
)
"""One row: the outcome of a run. Times are medians over its blocks. Quality is that of the reported
epoch, and ``reported_by`` the rule that chose it (:mod:`ncfbench.runs.reported`); ``recall_reason``
says why recall is null.
"""


def recommendations(named_users: bool, named_items: bool) -> pa.Schema:
    """Return the schema of recommendations: one row for each user and rank, the best first, with an
    item, its score, and whether it is a held-out link of the user.

    Args:
        named_users, named_items: whether the source has ids; without them the columns hold numbers.
    """
    return pa.schema(
        [
            ("user", pa.string() if named_users else pa.int32()),
            ("item", pa.string() if named_items else pa.int32()),
            ("rank", pa.int32()),
            ("score", pa.float32()),
            ("hit", pa.bool_()),
        ],
        metadata={"table": "recommendations"},
    )


_CELL = ("dataset", "encoder", "loss", "sampler", "variant", "settings", "data_fingerprint")
RATIOS = ("per_iteration", "iterations", "total", "step_per_iteration")
"""Ratios of a baseline over an arm; the total is the product of the first two within a seed."""

SPEEDUP = pa.schema(
    [
        *((name, pa.string()) for name in (*_CELL, "baseline", "status")),
        ("seeds", pa.int64()),
        ("seeds_reached", pa.int64()),
        ("reference_loss", pa.float64()),
        ("iterations_to_reference", pa.float64()),
        ("seconds_to_reference", pa.float64()),
        ("full_iteration_seconds", pa.float64()),
        ("step_iteration_seconds", pa.float64()),
        ("full_iteration_spread", pa.float64()),
        ("item_slots", pa.float64()),
        *(
            (f"{name}_speedup{end}", pa.float64())
            for name in RATIOS
            for end in ("", "_lower", "_upper")
        ),
        ("iterations_speedup_at_most", pa.float64()),
        ("total_speedup_at_most", pa.float64()),
        ("interleaved", pa.bool_()),
        ("simulated", pa.bool_()),
        ("same_environment", pa.bool_()),
        ("runs", pa.list_(pa.string())),
        ("baseline_runs", pa.list_(pa.string())),
        ("command", pa.string()),
        added("reason", pa.string(), 4),
    ],
    metadata={"table": "speedup"},
)
"""The paper's speedup table. ``status``: baseline, reached, not reached, diverged, missing, no
baseline, not trained, ... With ``not trained`` the baseline has not (``reason``), and there is no
ratio but that of times (:mod:`ncfbench.reporting.convergence`).

Ratios are geometric means over the seeds that arm and baseline share, ``_lower`` and ``_upper``
their 95 % intervals, null with one seed (:mod:`ncfbench.timing.seed_statistics`). ``_at_most`` is
an upper bound of the ratio where only ``seeds_reached`` of the ``seeds`` reached the reference
loss. ``simulated``: a step ran on simulated devices, whose times mean nothing.
``full_iteration_spread`` is the largest of the runs of arm and baseline; see
:func:`ncfbench.timing.statistics.spread`.
"""

RECALL = pa.schema(
    [
        *((name, pa.string()) for name in (*_CELL, "status")),
        ("seeds", pa.int64()),
        ("reported_epoch", pa.float64()),
        *(
            (f"test_recall_at_{m}{end}", pa.float64())
            for m in CUTOFFS
            for end in ("", "_lower", "_upper")
        ),
        ("reason", pa.string()),
        ("runs", pa.list_(pa.string())),
        ("command", pa.string()),
    ],
    metadata={"table": "recall"},
)
"""The paper's recall table: means over seeds; ``_lower`` and ``_upper`` are their 95 % intervals,
null with one seed.
"""


ADVICE = pa.schema(
    [
        *(
            (name, pa.string())
            for name in ("dataset", "encoder", "entrant", "target", "loss", "sampler")
        ),
        *((name, pa.int64()) for name in ("batch_size", "stratum_size", "negatives")),
        ("learning_rate", pa.float64()),
        ("probe_every", pa.int64()),
        ("is_baseline", pa.bool_()),
        ("status", pa.string()),
        ("reason", pa.string()),
        ("seeds", pa.int64()),
        *((name, pa.float64()) for name in ("clock_seconds", "learned_seconds")),
        ("iterations", pa.int64()),
        *(
            (name, pa.float64())
            for name in (
                "epochs",
                "level",
                "predicted_iteration_seconds",
                "full_iteration_seconds",
                "item_slots",
                "times_slower",
                "times_slower_lower",
                "times_slower_upper",
                "times_slower_expected",
                "test_recall_at_50",
                "test_recall_at_50_error",
            )
        ),
        ("runs", pa.list_(pa.string())),
        ("config", pa.string()),
        ("data_fingerprint", pa.string()),
    ],
    metadata={"table": "advice"},
)
"""One row for each entrant of a race. ``status``: recommended, tied, slower, left, diverged,
failed, not begun.

``level``: the lowest probe loss, or recall with its sign changed. ``times_slower``: the
recommended entrant's speed over this one's, at the latest level of both, with its 95 % interval;
``times_slower_expected``: the same as its cost and its negatives let expect, of one that trained to
the end no less than was measured, and of one that a smaller learning rate overtook no less than its
last gains let expect; null if never.
``clock_seconds``: training clock of the first seed; ``learned_seconds``: the clock at which it was
first better than chance.
"""
