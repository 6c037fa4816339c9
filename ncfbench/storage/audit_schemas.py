"""Schemas of the tables that an audit writes: verdicts, X-ray, properties, frameworks.

Versions and their history are those of :mod:`ncfbench.storage.schemas`.
"""

from __future__ import annotations

import pyarrow as pa

from ncfbench.storage.schemas import added

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
``cache_age``: iterations since negatives were mined; in older records also since item vectors were
cached.

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
        added("limit_bias", pa.float64(), 9),
    ],
    metadata={"table": "frameworks"},
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
