"""One iteration of each sampler, interleaved in one process: items, full and step seconds, sampling, ratios to iid.

    make bench DATASET=citeulike
    python benchmarks/bench_iteration.py --dataset citeulike --loss sg --rounds 7 --json

Before timing, each sampler's first batch is checked: its loss must agree with the objective in plain NumPy.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from ncfbench import allocator, environment
from ncfbench.batch import Listed
from ncfbench.config import RunConfig, resolve
from ncfbench.datasets import open_dataset
from ncfbench.embedding import Embedder
from ncfbench.errors import INTERRUPTED_EXIT_CODE, CheckFailedError, NcfbenchError
from ncfbench.model import Content
from ncfbench.registry import SAMPLERS, find_loss, find_sampler
from ncfbench.report.console import make_console
from ncfbench.timing import Sample, TimedLoop, interleave, timed_loops

SECONDS_OF_A_BLOCK = 1.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="synthetic")
    parser.add_argument("--encoder", default="cnn")
    parser.add_argument("--loss", default="sg")
    parser.add_argument("--rounds", type=int, default=7, help="blocks of each sampler, 1 or more (default 7)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any other setting of a run")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--json", action="store_true", help="print the raw samples and summaries as JSON")
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error("--rounds must be at least 1")
    try:
        result = measure(arguments)
    except KeyboardInterrupt as error:
        raise SystemExit(INTERRUPTED_EXIT_CODE) from error
    except NcfbenchError as error:
        print(f"Error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from error
    if arguments.json:
        print(json.dumps(result, indent=2))
    else:
        show(result)


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Raw samples and summaries of all samplers that the loss allows."""
    family = find_loss(arguments.loss).family
    names = [name for name, sampler in SAMPLERS.items() if family in sampler.families]
    configs: dict[str, RunConfig] = {}
    for name in names:
        flags = {key: getattr(arguments, key) for key in ("dataset", "encoder", "loss", "data_dir")}
        configs[name], places = resolve(flags | {"sampler": name}, arguments.set)
    dataset = open_dataset(places.data_dir, configs[names[0]].dataset, lambda text: print(text, file=sys.stderr))
    with timed_loops(dataset, Content.of(dataset), configs) as loops:
        for loop in loops.values():
            check(loop)
        blocks = {id(loop): 16 for loop in loops.values()}
        interleave(list(loops.values()), rounds=1, block=lambda loop: blocks[id(loop)])
        for loop in loops.values():
            full = [sample for sample in loop.samples if sample.kind == "full"]
            blocks[id(loop)] = max(8, round(SECONDS_OF_A_BLOCK * full[-1].iterations / full[-1].seconds))
            loop.samples.clear()
        interleave(list(loops.values()), rounds=arguments.rounds, block=lambda loop: blocks[id(loop)])
    summaries = {name: summarize(loop.samples) for name, loop in loops.items()}
    baseline = summaries[find_loss(arguments.loss).baseline_sampler]
    for summary in summaries.values():
        for account in ("full", "step"):
            ratios = baseline[f"{account}_blocks"] / summary[f"{account}_blocks"]
            summary[f"{account}_ratio"] = float(np.median(ratios))
            summary[f"{account}_ratio_low"], summary[f"{account}_ratio_high"] = map(float, (ratios.min(), ratios.max()))
    for summary in summaries.values():
        for account in ("full", "step"):
            summary[f"{account}_blocks"] = summary[f"{account}_blocks"].tolist()
    return {
        "command": "python benchmarks/bench_iteration.py " + " ".join(sys.argv[1:]),
        "data_fingerprint": dataset.fingerprint,
        "settings": {key: getattr(arguments, key) for key in ("dataset", "encoder", "loss", "rounds", "set")},
        "environment": environment.describe(),
        "samplers": summaries,
    }


def check(loop: TimedLoop) -> None:
    """The loss of a sampler's first batch by the step and by the plain objective."""
    trainer, sampler, parameters = loop.trainer, loop.sampler, loop.state.parameters
    embedder = Embedder(trainer.towers, loop.content)
    batch = sampler.assemble(sampler.draw(0, 1)[0])
    found = float(trainer.gradient(parameters, batch, loop.content, None)[0])
    f = np.asarray(embedder.users(parameters), float)
    g = np.asarray(embedder.items(parameters, batch.items), float)
    expected = plain_objective(trainer.config, batch, f, g, np.asarray(parameters["users"]["embedding"][...], float))
    if not np.isclose(found, expected, rtol=1e-4):
        raise CheckFailedError(f"{trainer.config.sampler}: the step's loss is {found}, the plain objective {expected}.")


def plain_objective(config: RunConfig, batch: Any, f: np.ndarray, g: np.ndarray, raw: np.ndarray) -> float:
    """The batch's objective in NumPy and float64."""
    users, positive_users = f[batch.users], f[batch.users[batch.pos_user]]
    positive = np.sum(positive_users * g[batch.pos_item], axis=1)
    if isinstance(batch.negatives, Listed):
        negative = np.sum(users[batch.negatives.user] * g[batch.negatives.item], axis=2)
    else:
        negative = positive_users @ g.T
    weight = batch.negatives.weight
    terms = {
        "sg": lambda: np.logaddexp(0, -positive).mean() + config.lambda_ * np.sum(weight * np.logaddexp(0, negative)),
        "mse": lambda: np.mean((1 - positive) ** 2) + config.lambda_ * np.sum(weight * negative**2),
        "log": lambda: np.sum(weight * np.logaddexp(0, config.gamma * (negative - positive[:, None]))),
        "hinge": lambda: np.sum(weight * np.maximum(negative - positive[:, None] + config.gamma, 0)),
        "softmax": lambda: np.mean(
            np.log1p(np.sum(len(positive) * weight * np.exp(config.gamma * (negative - positive[:, None])), axis=1))
        ),
    }
    penalty = config.user_l2 * np.mean(np.sum(raw[batch.users[batch.pos_user]] ** 2, axis=1))
    return float(terms[config.loss]() + penalty)


def summarize(samples: list[Sample]) -> dict[str, Any]:
    """Seconds per iteration of each block, and their medians."""
    blocks = {
        kind: np.array([sample.seconds / sample.iterations for sample in samples if sample.kind == kind])
        for kind in ("full", "step")
    }
    full = [sample for sample in samples if sample.kind == "full"]
    iterations = sum(sample.iterations for sample in full)
    return {
        "item_slots": sum((sample.item_slots or 0) * sample.iterations for sample in full) / iterations,
        "iterations_of_a_block": full[0].iterations,
        "sampling_iteration_seconds": sum((sample.sampling_seconds or 0) + (sample.transfer_seconds or 0) for sample in full)
        / iterations,
        "full_iteration_seconds": float(np.median(blocks["full"])),
        "step_iteration_seconds": float(np.median(blocks["step"])),
        "full_blocks": blocks["full"],
        "step_blocks": blocks["step"],
    }


def show(result: dict[str, Any]) -> None:
    settings = result["settings"]
    what = ", ".join(settings[key] for key in ("dataset", "encoder", "loss"))
    title = f"{what}: one iteration, {settings['rounds']} interleaved blocks"
    table = Table(title=title, title_justify="left")
    headings = (
        "sampler",
        "items",
        "full ms",
        "min..max",
        "step ms",
        "min..max",
        "sampling ms",
        "full ratio",
        "min..max",
        "step ratio",
    )
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="left" if place == 0 else "right")
    for name, row in result["samplers"].items():
        cells = [find_sampler(name).title, f"{row['item_slots']:.0f}"]
        for account in ("full", "step"):
            values = np.array(row[f"{account}_blocks"]) * 1e3
            cells += [f"{np.median(values):.2f}", f"{values.min():.2f}..{values.max():.2f}"]
        cells += [
            f"{row['sampling_iteration_seconds'] * 1e3:.2f}",
            f"{row['full_ratio']:.2f}",
            f"{row['full_ratio_low']:.2f}..{row['full_ratio_high']:.2f}",
            f"{row['step_ratio']:.2f}",
        ]
        table.add_row(*cells)
    where = result["environment"]
    make_console().print(
        table,
        Text(
            "Ratios: seconds of the first row / seconds of this one, block by block. Sampling: wall time of the sampling "
            "thread, which runs beside the step and competes with it. "
            f"{where['cpu']}, {where['cores']} cores, jax {where['packages']['jax']}, {where['time']}"
        ),
    )


if __name__ == "__main__":
    allocator.settle()
    main()
