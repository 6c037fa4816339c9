"""Schemas of the tables that runs, reports, audits and profiles write: columns, types, a version.

A change of a column raises :data:`SCHEMA_VERSION` and gets an entry here. Older versions in
:data:`READABLE` are read with null in the columns that were added since (:func:`added`), and
refused by the first other column that they lack.

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

SCHEMA_VERSION = 8
READABLE = (1, 2, 3, 4, 5, 6, 7, 8)
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

CURVE = pa.schema(
    [
        ("iteration", pa.int64()),
        ("epoch", pa.float64()),
        ("train_seconds", pa.float64()),
        ("probe_loss", pa.float64()),
        ("batch_loss", pa.float64()),
        *((f"{split}_{measure}", pa.float64()) for split in EVALUATED for measure in _RECALLS),
        *_LATER_QUALITY,
    ],
    metadata={"table": "curve"},
)
"""One row for each probe. Quality is null between epochs, and where there is nothing to rank.

``epoch`` is the number of passes over the links; where an iteration completes a pass it is whole,
though the batch may hold the first links of the next pass.
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
recommendation, checkpoint; refresh, of the cached item vectors, whose N-th part each of the
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


AUDIT = pa.schema(
    [
        *(
            (name, pa.string())
            for name in (
                "dataset",
                "encoder",
                "loss",
                "noise",
                "sampler",
                "strata",
                "share",
                "point",
                "verdict",
                "shown_by",
            )
        ),
        ("mask", pa.bool_()),
        ("devices", pa.int64()),
        ("batch_size", pa.int64()),
        ("negatives", pa.int64()),
        ("stratum_size", pa.int64()),
        ("uniform_items", pa.int64()),
        ("seed", pa.int64()),
        ("batches", pa.int64()),
        ("margin", pa.float64()),
        ("verdicts", pa.int64()),
        *(
            (name, pa.float64())
            for name in ("bias", "bias_low", "bias_high", "detectable_bias", "cosine")
        ),
        ("batches_needed", pa.int64()),
        ("bias_with_4x_negatives", pa.float64()),
        ("bias_with_4x_negatives_low", pa.float64()),
        ("bias_with_4x_negatives_high", pa.float64()),
        *(
            (name, pa.float64())
            for name in ("shuffled_bias", "shuffled_bias_low", "shuffled_bias_high")
        ),
        ("predicted_shuffled_bias", pa.float64()),
        ("batch_variance", pa.float64()),
        ("full_iteration_seconds", pa.float64()),
        ("variance_seconds", pa.float64()),
        *(
            added(f"variance_over_{part}", pa.float64(), 7)
            for part in ("users", "items", "positive_links")
        ),
        added("negative_items", pa.string(), 8),
        added("cache_age", pa.int64(), 8),
        ("exact_loss", pa.float64()),
        ("probe_loss", pa.float64()),
        ("data_fingerprint", pa.string()),
        ("environment_key", pa.string()),
    ],
    metadata={"table": "audit"},
)
"""One row for each verdict. ``shown_by``: gradient, weights or declared, where it is biased.
``share``: local where each of ``devices`` shards has negatives of its own, else null.
``cache_age``: iterations since item vectors were cached, where all items are negatives.

Biases are shares of the exact gradient's length, ``batch_variance`` of its square.
"""

XRAY = pa.schema(
    [
        *((name, pa.string()) for name in ("dataset", "noise", "sampler", "strata")),
        ("mask", pa.bool_()),
        ("batch_size", pa.int64()),
        ("batches", pa.int64()),
        *((f"nominal_{name}", pa.int64()) for name in ("users", "items", "negatives")),
        *((f"distinct_{name}", pa.float64()) for name in ("users", "items")),
        ("positives", pa.float64()),
        *((f"{name}_negatives", pa.float64()) for name in ("unmasked", "effective")),
        *(
            (f"{name}_negatives_of_a_positive", pa.float64())
            for name in ("nominal", "unmasked", "effective")
        ),
        *(
            (name, pa.float64())
            for name in ("masked_share", "popularity_ratio", "padding_share", "word_padding_share")
        ),
        ("data_fingerprint", pa.string()),
    ],
    metadata={"table": "xray"},
)
"""One row for each sampler: means over batches of the shuffled stream."""

CONFORMANCE = pa.schema(
    [
        *(
            (name, pa.string())
            for name in (
                "dataset",
                "noise",
                "loss_family",
                "sampler",
                "strata",
                "property",
                "result",
                "detail",
            )
        ),
        ("detectable_error", pa.float64()),
    ],
    metadata={"table": "conformance"},
)
"""One row for each property of a sampler. ``result``: pass, fail, not tested, or declared."""

UNUSUAL_SETTINGS = added("unusual_settings", pa.string(), 3)
"""Settings that differ from the defaults, in words: ``convolution=plain``."""
_PROFILED = (
    *((name, pa.string()) for name in ("dataset", "encoder", "loss", "sampler", "strata")),
    ("batch_size", pa.int64()),
    ("settings", pa.string()),
    UNUSUAL_SETTINGS,
)
PROFILE = pa.schema(
    [
        *_PROFILED,
        ("part", pa.string()),
        ("size", pa.int64()),
        ("round", pa.int64()),
        ("calls", pa.int64()),
        ("seconds", pa.float64()),
        ("data_fingerprint", pa.string()),
        ("environment_key", pa.string()),
    ],
    metadata={"table": "profile"},
)
"""Raw samples of a profile: ``calls`` of a part took ``seconds``.

``part``: step by items, users, vectors, matrix (the step on constructed batches, at ``size`` nodes
or interactions); users, items, vectors, matrix, optimiser, dispatch (alone; before version 5 also
on a sampler's own batch); matrix product and element-wise product (``size`` x ``size`` scores); and
full, step, step on random items, draw, assemble, transfer, collectives of a sampler.
"""

COSTMODEL = pa.schema(
    [
        *_PROFILED,
        ("negatives", pa.int64()),
        ("stratum_size", pa.int64()),
        ("baseline", pa.string()),
        ("rounds", pa.int64()),
        *((f"nominal_{name}", pa.int64()) for name in ("users", "items", "negatives")),
        *((f"distinct_{name}", pa.float64()) for name in ("users", "items")),
        *((name, pa.int64()) for name in ("user_slots", "item_slots", "interactions")),
        ("interaction_kind", pa.string()),
        ("devices", pa.int64()),
        ("share", pa.string()),
        ("simulated", pa.bool_()),
        *((f"{way}_sent_bytes", pa.float64()) for way in ("gradient", "global", "local", "texts")),
        *(
            (f"{way}_{part}_seconds", pa.float64())
            for way in ("predicted", "measured")
            for part in ("users", "items", "interactions", "collectives", "optimiser", "dispatch")
        ),
        added("predicted_fixed_seconds", pa.float64(), 5),
        added("random_items_step_iteration_seconds", pa.float64(), 5),
        *(
            (f"{way}_{account}_iteration_seconds", pa.float64())
            for account in ("step", "full")
            for way in ("predicted", "measured")
        ),
        *(
            (f"{name}_{account}_speedup", pa.float64())
            for account in ("step", "full")
            for name in ("predicted", "measured", "lower", "upper")
        ),
        *(
            (f"{clock}_{what}", pa.float64())
            for clock in ("serial", "paper")
            for what in ("iteration_seconds", "speedup")
        ),
        ("responsible", pa.string()),
        ("residuals", pa.list_(pa.struct([("part", pa.string()), ("share", pa.float64())]))),
        *((f"{name}_seconds", pa.float64()) for name in ("draw", "assemble", "transfer")),
        *(
            (name, pa.float64())
            for name in ("step_flops", "step_bytes", "limit_seconds", "limit_share", "drift")
        ),
        ("bound", pa.string()),
        ("links", pa.int64()),
        ("data_fingerprint", pa.string()),
        ("environment_key", pa.string()),
    ],
    metadata={"table": "costmodel"},
)
"""One row for each sampler of a profile: counts, predicted and measured seconds, speedups over the
baseline, limits.

``sent_bytes``: bytes that each of several ``devices`` sends in an iteration, null for one device:
for gradients alone, and with sharing globally, locally, or by gathering the texts of all items.
``random_items_step_iteration_seconds``: the step on the sampler's batches with random items in
their slots. ``residuals``: what the prediction of a full iteration misses, by cause, as shares of
it; ``responsible``: the largest of them and the baseline's. ``serial_iteration_seconds``: step,
draw, assemble and transfer one after another; ``paper_iteration_seconds`` leaves out what the
authors' program left out of its timer. ``limit_share``: the time that the machine's peaks allow
over the step's time, 1 at the limit. ``drift``: the second half of the rounds over the first.
"""

UNITCOST = pa.schema(
    [
        *((name, pa.string()) for name in ("dataset", "encoder", "loss", "settings", "part")),
        UNUSUAL_SETTINGS,
        ("batch_size", pa.int64()),
        *((name, pa.float64()) for name in ("unit_seconds", "unit_lower", "unit_upper", "spread")),
        added("alone_unit_seconds", pa.float64(), 5),
        ("is_linear", pa.bool_()),
        ("sizes", pa.list_(pa.int64())),
        ("seconds", pa.list_(pa.float64())),
        *(added(f"{way}_seconds", pa.list_(pa.float64()), 5) for way in ("step", "alone")),
        ("data_fingerprint", pa.string()),
        ("environment_key", pa.string()),
    ],
    metadata={"table": "unitcost"},
)
"""One row for each part.

``unit_seconds``: what one more node or interaction adds to the step, on average between the first
and the last of ``sizes``; for the part ``fixed`` what no count changes; with its 95 % interval.
``alone_unit_seconds``: the same of the part timed alone; before version 5 ``unit_seconds`` was.
``seconds``: what so many add to the step. ``step_seconds`` and ``alone_seconds``: medians of the
steps and of the part alone. ``spread``: upper over lower quartile of the rounds, less 1.
"""

PROFILE_TABLES = {"profile": PROFILE, "unitcost": UNITCOST, "costmodel": COSTMODEL}
"""Tables that a profile writes, by the name of the file."""

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
``times_slower_expected``: the same as its cost and its negatives let expect, and of one that stayed
no less than was measured.
``clock_seconds``: training clock of the first seed; ``learned_seconds``: the clock at which it was
first better than chance.
"""

FRAMEWORKS = pa.schema(
    [
        *(
            (name, pa.string())
            for name in (
                "dataset",
                "name",
                "title",
                "version",
                "source",
                "claim",
                "claim_title",
                "claim_meaning",
                "planted_fault",
                "verdict",
                "shown_by",
                "remedy",
            )
        ),
        *(
            (name, pa.int64())
            for name in ("users", "items", "links", "batches", "batch_size", "verdicts", "seed")
        ),
        *(
            (name, pa.float64())
            for name in (
                "margin",
                *("bias", "bias_low", "bias_high"),
                *("bias_with_4x_batch", "bias_with_4x_batch_low", "bias_with_4x_batch_high"),
                *("cosine", "length_ratio", "batch_variance", "exact_loss", "mean_loss"),
                "linked_share",
            )
        ),
        ("linked_is_claimed", pa.bool_()),
        *((f"popular_push{end}", pa.float64()) for end in ("", "_low", "_high")),
        ("popular_items", pa.int64()),
    ],
    metadata={"table": "frameworks"},
)
"""One row for each estimator of another framework. ``dataset``: null for the built-in graph.
``shown_by``: gradient or links, where it is biased. ``linked_share``: of the negatives, those that
are training links; ``linked_is_claimed``: its objective has them too. ``popular_push``: points of
probability by which popular items are pushed down beyond the objective.
"""

AUDIT_TABLES = {
    "conformance": CONFORMANCE,
    "xray": XRAY,
    "audit": AUDIT,
    "frameworks": FRAMEWORKS,
}
"""Tables that an audit writes, by the name of the file, in the order in which they are shown."""
