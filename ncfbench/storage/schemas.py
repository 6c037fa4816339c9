"""Schemas of all tables that are written: columns, types, and the version that stands in them.

A table is read if it has all columns of its schema; one that lacks a column is refused. A column
that is added, or whose meaning changes, raises :data:`SCHEMA_VERSION`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Literal, TypeAlias

import pyarrow as pa

SCHEMA_VERSION = 10

Columns: TypeAlias = list[tuple[str, pa.DataType]]


def _schema(table: str, *columns: Columns) -> pa.Schema:
    return pa.schema([column for part in columns for column in part], metadata={"table": table})


def _columns(dtype: pa.DataType, names: str | Iterable[str]) -> Columns:
    """Return columns of one type; several names in a text are separated by spaces."""
    return [(name, dtype) for name in (names.split() if isinstance(names, str) else names)]


_text, _integer, _number, _flag = (
    partial(_columns, dtype) for dtype in (pa.string(), pa.int64(), pa.float64(), pa.bool_())
)
_texts, _integers, _numbers, _floats = (
    partial(_columns, pa.list_(dtype))
    for dtype in (pa.string(), pa.int64(), pa.float64(), pa.float32())
)

CUTOFFS = (10, 20, 50, 100)
"""Values of M in recall@M and NDCG@M."""
EVALUATED: tuple[Literal["validation", "test"], ...] = ("validation", "test")
"""Splits whose items are ranked."""
_RECALLS = tuple(f"recall_at_{m}" for m in CUTOFFS)
MEASURES = (*_RECALLS, *(f"ndcg_at_{m}" for m in CUTOFFS), "mrr")
"""Measures of ranking quality (:mod:`ncfbench.runs.quality`)."""
QUALITY = (
    *MEASURES,
    *(f"{measure}_{what}" for measure in MEASURES for what in ("error", "chance")),
    "recall_at_50_item_error",
    "recall_at_50_cold_users",
    "recall_at_50_cold_users_error",
)
"""The measures of an evaluation of a split, each with its standard error over users and its chance
level; the error of recall@50 over items; recall@50 of users without training links, with its error.
"""
QUALITY_COLUMNS = tuple(f"{split}_{name}" for split in EVALUATED for name in QUALITY)
_RECALL_COLUMNS = [f"{split}_{name}" for split in EVALUATED for name in _RECALLS]
_OTHER_QUALITY = [name for name in QUALITY_COLUMNS if name not in _RECALL_COLUMNS]
STALENESS = ("memory_newest_distance", "memory_oldest_distance", "memory_age_updates")
"""The staleness of remembered item vectors."""

CURVE = _schema(
    "curve",
    _integer("iteration"),
    _number("epoch train_seconds probe_loss batch_loss"),
    _number([*_RECALL_COLUMNS, *_OTHER_QUALITY, *STALENESS[:2]]),
    _integer(STALENESS[2]),
)
"""One row for each probe. Quality is null between epochs, and where there is nothing to rank.

``epoch`` is the number of passes over the links; where an iteration completes a pass it is whole,
though the batch may hold the first links of the next pass. Staleness is known at the end of an
epoch of a run that remembers item vectors: distances over the length of the present vectors.
"""

EVALUATION = _schema(
    "evaluation", _integer("iteration"), _text("split"), _floats("user_recalls item_shares")
)
"""One row for each evaluation of a split: what recall@50 is made of, so that two evaluations can be
compared user by user and item by item (:class:`ncfbench.runs.quality.Evaluation`).
"""

TIMING = _schema(
    "timing",
    _text("kind"),
    _integer("first_iteration iterations"),
    _number("seconds sampling_seconds transfer_seconds waiting_seconds item_slots"),
    _flag("resumed"),
    _text("environment_key"),
)
"""Raw samples. ``kind``: full, traced, step (blocks of ``iterations``), compile, probe, evaluation,
recommendation, checkpoint; refresh, a mining of negatives, whose N-th part each of the
``iterations`` = N iterations up to the next one is charged in full, traced and step.

``item_slots`` is the mean number of real item slots of the block's batches. ``resumed`` marks a
block of an epoch that an interruption cut; summaries leave it out where there are others. A run
that was resumed elsewhere has samples of two environments; its summary uses those of the last.
"""

LEDGER = _schema("ledger", _integer("session"), _text("thread line"), _number("seconds"))
"""Exclusive seconds of each line of the ledger; the main thread's lines add up to the wall time.
Each resumption starts a session.
"""

SUMMARY = _schema(
    "summary",
    _text("run status dataset sampler encoder loss"),
    _integer("seed"),
    _text("config data_fingerprint environment_key"),
    _integer("iterations planned_iterations"),
    _number("epochs smallest_probe_loss full_iteration_seconds step_iteration_seconds"),
    _number("sampling_iteration_seconds train_seconds wall_seconds item_slots reported_epoch"),
    _number(_RECALL_COLUMNS),
    _text("recall_reason message reported_by"),
    _number(_OTHER_QUALITY),
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
    return _schema(
        "recommendations",
        _columns(pa.string() if named_users else pa.int32(), "user"),
        _columns(pa.string() if named_items else pa.int32(), "item"),
        [("rank", pa.int32()), ("score", pa.float32()), ("hit", pa.bool_())],
    )


_CELL = "dataset encoder loss sampler variant settings data_fingerprint"
RATIOS = ("per_iteration", "iterations", "total", "step_per_iteration")
"""Ratios of a baseline over an arm; the total is the product of the first two within a seed."""


def _with_interval(names: Iterable[str]) -> Columns:
    return _number(f"{name}{end}" for name in names for end in ("", "_lower", "_upper"))


SPEEDUP = _schema(
    "speedup",
    _text(f"{_CELL} baseline status"),
    _integer("seeds seeds_reached"),
    _number("reference_loss iterations_to_reference seconds_to_reference"),
    _number("full_iteration_seconds step_iteration_seconds full_iteration_spread item_slots"),
    _with_interval(f"{name}_speedup" for name in RATIOS),
    _number("iterations_speedup_at_most total_speedup_at_most"),
    _flag("interleaved simulated same_environment"),
    _texts("runs baseline_runs"),
    _text("command reason"),
)
"""The paper's speedup table. ``status``: baseline, reached, not reached, diverged, missing, no
baseline; or not trained: the baseline has not (``reason``), and there are ratios of times only.

Ratios are geometric means over the seeds that arm and baseline share, ``_lower`` and ``_upper``
their 95 % intervals, null with one seed (:mod:`ncfbench.timing.seed_statistics`). ``_at_most`` is
an upper bound of the ratio where only ``seeds_reached`` of the ``seeds`` reached the reference
loss. ``simulated``: a step ran on simulated devices, whose times mean nothing.
``full_iteration_spread`` is the largest of the runs of arm and baseline; see
:func:`ncfbench.timing.statistics.spread`.
"""

RECALL = _schema(
    "recall",
    _text(f"{_CELL} status"),
    _integer("seeds"),
    _number("reported_epoch"),
    _with_interval(f"test_recall_at_{m}" for m in CUTOFFS),
    _text("reason"),
    _texts("runs"),
    _text("command"),
)
"""The paper's recall table: means over seeds; ``_lower`` and ``_upper`` are their 95 % intervals,
null with one seed.
"""

ADVICE = _schema(
    "advice",
    _text("dataset encoder entrant target loss sampler"),
    _integer("batch_size stratum_size negatives"),
    _number("learning_rate"),
    _integer("probe_every"),
    _flag("is_baseline"),
    _text("status reason"),
    _integer("seeds"),
    _number("clock_seconds learned_seconds"),
    _integer("iterations"),
    _number("epochs level predicted_iteration_seconds full_iteration_seconds item_slots"),
    _with_interval(["times_slower"]),
    _number("times_slower_expected test_recall_at_50 test_recall_at_50_error"),
    _texts("runs"),
    _text("config data_fingerprint"),
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

AUDIT = _schema(
    "audit",
    _text("dataset encoder loss noise sampler strata share point verdict shown_by"),
    _flag("mask"),
    _integer("devices batch_size negatives stratum_size uniform_items seed batches"),
    _number("margin"),
    _integer("verdicts"),
    _number("bias bias_low bias_high detectable_bias cosine"),
    _integer("batches_needed"),
    _number("bias_with_4x_negatives bias_with_4x_negatives_low bias_with_4x_negatives_high"),
    _number("shuffled_bias shuffled_bias_low shuffled_bias_high predicted_shuffled_bias"),
    _number("batch_variance full_iteration_seconds variance_seconds"),
    _number("variance_over_users variance_over_items variance_over_positive_links"),
    _text("negative_items"),
    _integer("cache_age"),
    _number("exact_loss probe_loss"),
    _text("data_fingerprint environment_key"),
)
"""One row for each verdict. ``shown_by``: gradient, weights or declared, where it is biased.
``share``: local where each of ``devices`` shards has negatives of its own, else null.
``cache_age``: iterations since negatives were mined.

Biases are shares of the exact gradient's length, ``batch_variance`` of its square.
"""

XRAY = _schema(
    "xray",
    _text("dataset noise sampler strata"),
    _flag("mask"),
    _integer("batch_size batches nominal_users nominal_items nominal_negatives"),
    _number("distinct_users distinct_items positives unmasked_negatives effective_negatives"),
    _number(f"{name}_negatives_of_a_positive" for name in ("nominal", "unmasked", "effective")),
    _number("masked_share popularity_ratio padding_share word_padding_share"),
    _text("data_fingerprint"),
)
"""One row for each sampler: means over batches of the shuffled stream."""

CONFORMANCE = _schema(
    "conformance",
    _text("dataset noise loss_family sampler strata property result detail"),
    _number("detectable_error"),
)
"""One row for each property of a sampler. ``result``: pass, fail, not tested, or declared."""

FRAMEWORKS = _schema(
    "frameworks",
    _text("dataset name title version source claim claim_title claim_meaning planted_fault"),
    _text("verdict shown_by remedy"),
    _integer("users items links batches batch_size verdicts seed"),
    _number("margin bias bias_low bias_high"),
    _number("bias_with_4x_batch bias_with_4x_batch_low bias_with_4x_batch_high"),
    _number("cosine length_ratio batch_variance exact_loss mean_loss linked_share"),
    _flag("linked_is_claimed"),
    _number("popular_push popular_push_low popular_push_high"),
    _integer("popular_items"),
    _number("limit_bias"),
)
"""One row for each estimator of another framework. ``dataset``: null for the built-in graph.
``shown_by``: gradient, limit or links, where it is biased. ``limit_bias``: in the limit of large
batches, where that has been derived. ``linked_share``: of the negatives, those that are training
links; ``linked_is_claimed``: its objective has them too. ``popular_push``: points of
probability by which popular items are pushed down beyond the objective.
"""

AUDIT_TABLES = {
    "conformance": CONFORMANCE,
    "xray": XRAY,
    "audit": AUDIT,
    "frameworks": FRAMEWORKS,
}
"""Tables that an audit writes, by the name of the file, in the order in which they are shown."""

_PROFILED = "dataset encoder loss sampler strata"
PROFILE = _schema(
    "profile",
    _text(_PROFILED),
    _integer("batch_size"),
    _text("settings unusual_settings part"),
    _integer("size round calls"),
    _number("seconds"),
    _text("data_fingerprint environment_key"),
)
"""Raw samples of a profile: ``calls`` of a part took ``seconds``.

``part``: step by items, users, vectors, matrix (the step on constructed batches, at ``size`` nodes
or interactions); users, items, vectors, matrix, optimiser, dispatch (alone); matrix product and
element-wise product (``size`` x ``size`` scores); and full, step, step on random items, draw,
assemble, transfer, collectives of a sampler.
"""


def _predicted_and_measured(names: str) -> Columns:
    return _number(f"{way}_{name}" for way in ("predicted", "measured") for name in names.split())


COSTMODEL = _schema(
    "costmodel",
    _text(_PROFILED),
    _integer("batch_size"),
    _text("settings unusual_settings"),
    _integer("negatives stratum_size"),
    _text("baseline"),
    _integer("rounds nominal_users nominal_items nominal_negatives"),
    _number("distinct_users distinct_items"),
    _integer("user_slots item_slots interactions"),
    _text("interaction_kind"),
    _integer("devices"),
    _text("share"),
    _flag("simulated"),
    _number(f"{way}_sent_bytes" for way in ("gradient", "global", "local", "texts")),
    _predicted_and_measured(
        "users_seconds items_seconds interactions_seconds collectives_seconds optimiser_seconds"
        " dispatch_seconds"
    ),
    _number("predicted_fixed_seconds random_items_step_iteration_seconds"),
    _predicted_and_measured("step_iteration_seconds"),
    _predicted_and_measured("full_iteration_seconds"),
    _number(
        f"{name}_{account}_speedup"
        for account in ("step", "full")
        for name in ("predicted", "measured", "lower", "upper")
    ),
    _number(
        f"{clock}_{what}"
        for clock in ("serial", "paper")
        for what in ("iteration_seconds", "speedup")
    ),
    _text("responsible"),
    _columns(pa.list_(pa.struct([("part", pa.string()), ("share", pa.float64())])), "residuals"),
    _number("draw_seconds assemble_seconds transfer_seconds"),
    _number("step_flops step_bytes limit_seconds limit_share drift"),
    _text("bound"),
    _integer("links"),
    _text("data_fingerprint environment_key"),
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

UNITCOST = _schema(
    "unitcost",
    _text("dataset encoder loss settings part unusual_settings"),
    _integer("batch_size"),
    _number("unit_seconds unit_lower unit_upper spread alone_unit_seconds"),
    _flag("is_linear"),
    _integers("sizes"),
    _numbers("seconds step_seconds alone_seconds"),
    _text("data_fingerprint environment_key"),
)
"""One row for each part.

``unit_seconds``: what one more node or interaction adds to the step, on average between the first
and the last of ``sizes``; for the part ``fixed`` what no count changes; with its 95 % interval.
``alone_unit_seconds``: the same of the part timed alone;
``seconds``: what so many add to the step. ``step_seconds`` and ``alone_seconds``: medians of the
steps and of the part alone. ``spread``: upper over lower quartile of the rounds, less 1.
"""

PROFILE_TABLES = {"profile": PROFILE, "unitcost": UNITCOST, "costmodel": COSTMODEL}
"""Tables that a profile writes, by the name of the file."""
