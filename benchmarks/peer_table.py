"""Results of the peer: which may stand together, their tables, one for each encoder and length of
texts, and their targets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ncfbench.catalog import find_sampler
from ncfbench.errors import UsageError
from ncfbench.reporting.render.terminal import make_console
from ncfbench.reporting.render.terminal import show as print_table
from ncfbench.reporting.table import Header, Table, columns_of
from ncfbench.storage import tables
from ncfbench.timing import intervals

COMPARED = (
    "dataset",
    "loss",
    "samplers",
    "rounds",
    "set",
    "device",
    "eager_only",
    "precision",
    "device_name",
    "data_fingerprint",
    "torch",
    "torch_threads",
)
"""Facts that must agree, with the environment's key, before cells stand in one result."""
ARMS = ("eager", "compiled", "reduce-overhead", "max-autotune")
FASTER = {
    "cpu": {
        ("cnn", 300): 2.0,
        ("cnn", 40): 1.5,
        ("lstm", 300): 1.0,
        ("lstm", 40): 1.0,
        ("transformer", 40): 1.0,
        ("bert", 40): 1.0,
    },
    "cuda": dict.fromkeys([("cnn", 300), ("cnn", 40), ("lstm", 300), ("lstm", 40)], 1.5),
}
"""Targets of PyTorch / ours: on a CPU over PyTorch's best arm, on a GPU over its best compiled
one.
"""
SAMPLING_SHARE = {300: 0.05, 40: 0.10}
"""Targets of sampling / full: at most."""
OVERHEAD = {300: 1.05, 40: 1.10}
"""Targets of full / step: at most."""


def median(row: Mapping[str, Any], arm: str) -> float:
    """Return the seconds of an iteration."""
    return float(np.median(row[arm]))


def best_arm(row: Mapping[str, Any], *, compiled: bool = False) -> str | None:
    """Return PyTorch's quickest arm, or None."""
    arms = [arm for arm in ARMS if arm in row and not (compiled and arm == "eager")]
    return min(arms, key=lambda arm: median(row, arm), default=None)


def show(result: Mapping[str, Any]) -> None:
    """Print a table for each cell, what its columns mean, and the verdicts."""
    console = make_console()
    for cell in result["cells"]:
        print_table(console, cell_table(result, cell))
    where = result["environment"]
    lines = (
        "PyTorch / ours: PyTorch's quickest arm over our step, both on batches that are ready; /"
        " full: over our iterations with the sampler at work, which PyTorch is spared; sampling:"
        " the seconds of building a batch, with nothing beside it, over those of full."
        f" {result['device_name']} ({result['device']}), {where['cores']} cores,"
        f" {result['precision']}, jax {where['packages']['jax']}, torch {result['torch']},"
        f" {result['torch_threads']} threads, {where['time']}",
        *verdicts(result),
    )
    for line in lines:
        console.print(line)


def cell_table(result: Mapping[str, Any], cell: Mapping[str, Any]) -> Table:
    """Return one encoder at one length of texts: a row for each sampler."""
    texts = "no texts" if cell["encoder"] == "mf" else f"texts of up to {cell['words']} words"
    title = (
        f"{result['dataset']}, {cell['encoder']}, {result['loss']}, {texts}, {result['precision']}"
    )
    arms = [arm for arm in ARMS if any(arm in row for row in cell["samplers"].values())]
    header: Header = [
        "sampler",
        "items",
        *columns_of("PyTorch ms", *arms),
        *columns_of("ours ms", "step", "full"),
        "PyTorch / ours",
        "interval",
        "/ full",
        "full / step",
        "sampling %",
    ]
    rows = []
    for name, row in cell["samplers"].items():
        best = best_arm(row)
        assert best is not None, "the eager arm is always there"
        middle, lower, upper = intervals.ratio_of_medians(row[best], row["step"])
        rows.append(
            [
                find_sampler(name).title,
                str(row["item_slots"]),
                *(
                    f"{1e3 * median(row, arm):.2f}" if arm in row else "failed"
                    for arm in (*arms, "step", "full")
                ),
                f"{middle:.2f}",
                f"{lower:.2f}..{upper:.2f}",
                f"{intervals.ratio_of_medians(row[best], row['full'])[0]:.2f}",
                f"{overhead(row):.2f}",
                f"{100 * sampling_share(row):.1f}",
            ]
        )
    return Table(title, header, rows)


def overhead(row: Mapping[str, Any]) -> float:
    """Return full / step."""
    return median(row, "full") / median(row, "step")


def sampling_share(row: Mapping[str, Any]) -> float:
    """Return the seconds of building a batch over those of a full iteration, as a median."""
    return float(np.median(np.divide(row["sampling"], row["full"])))


def verdicts(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each target of each cell: met, or which samplers missed it by how much."""
    on_gpu = result["device"] == "cuda"
    for cell in result["cells"]:
        encoder, words, rows = cell["encoder"], cell["words"], cell["samplers"]
        faster: dict[str, float | None] = {}
        for name, row in rows.items():
            best = best_arm(row, compiled=on_gpu)
            faster[name] = None if best is None else median(row, best) / median(row, "step")
        at = f"{encoder}, {words} words"
        if (encoder, words) in FASTER[result["device"]]:
            what = "compiled PyTorch / ours" if on_gpu else "PyTorch / ours"
            yield verdict(
                f"{at}: {what}", faster, FASTER[result["device"]][encoder, words], least=True
            )
        if encoder != "mf" and words in OVERHEAD:
            shares = {name: sampling_share(row) for name, row in rows.items()}
            yield verdict(f"{at}: sampling / full", shares, SAMPLING_SHARE[words], least=False)
            yield verdict(
                f"{at}: full / step",
                {name: overhead(row) for name, row in rows.items()},
                OVERHEAD[words],
                least=False,
            )


def verdict(what: str, values: Mapping[str, float | None], target: float, *, least: bool) -> str:
    """Return one target's line; every sampler must reach it, None was not measured."""
    known = {name: value for name, value in values.items() if value is not None}
    missed = [
        f"{name} {value:.2f}"
        for name, value in known.items()
        if (value < target if least else value > target)
    ]
    unknown = [name for name in values if name not in known]
    line = f"{what} {'at least' if least else 'at most'} {target:.2f}: "
    line += f"missed by {', '.join(missed)}" if missed else ("met" if known else "not measured")
    return line + (f" (not measured: {', '.join(unknown)})" if unknown and known else "")


def earlier_cells(path: Path, result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The cells of an earlier result that may stand beside those of this one.

    Raises:
        UsageError: it was made with other settings, data, versions or hardware.
    """
    if not path.exists():
        return []
    earlier = tables.read_json(path)
    for name in COMPARED:
        if earlier.get(name) != result[name]:
            raise UsageError(
                f"{path} was made with another {name}: {earlier.get(name)!r}, not {result[name]!r}."
                " Use another file."
            )
    if earlier["environment"]["key"] != result["environment"]["key"]:
        raise UsageError(
            f"{path} was made in another environment (hardware, versions or variables). Use another"
            " file."
        )
    cells: list[dict[str, Any]] = earlier["cells"]
    return cells
