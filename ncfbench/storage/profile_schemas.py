"""Schemas of the tables that a profile writes: raw samples, unit costs, cost model.

Versions and their history are those of :mod:`ncfbench.storage.schemas`.
"""

from __future__ import annotations

import pyarrow as pa

from ncfbench.storage.schemas import added

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
