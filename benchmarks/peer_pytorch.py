"""The same model, layouts, objective and optimiser as a user would write them in PyTorch,
timed beside ours.

    make bench-peer DATASET=citeulike
    python benchmarks/peer_pytorch.py --encoder cnn,lstm --json FILE --resume

PyTorch, eager and compiled (torch.compile, for the batches' fixed shapes): distinct items embedded
once, fused Adam, packed sequences for the LSTM, all threads, its own dropout, in a process of its
own. Before any timing its loss and gradients must agree with ours. Then rounds: in each, every arm
repeats steps on the same batches, which are ready (our *step* account), and our
*full* account runs beside them, with its sampler at work. The order of the arms changes from round
to round.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, ClassVar

import jax
import numpy as np
import peer_model
import torch
from harness import Benchmark, Found, say
from measuring import Arm, interleaved, process

from ncfbench.auditing.gradients import flat
from ncfbench.catalog import find_loss, find_sampler
from ncfbench.config import RunConfig, complete, merge
from ncfbench.data import Dataset, open_dataset
from ncfbench.data.assets import name_files
from ncfbench.errors import CheckFailedError, UsageError
from ncfbench.models.towers import DeviceContent
from ncfbench.reporting.formats import interval
from ncfbench.reporting.table import Col, Table, under
from ncfbench.sampling.batch import Batch
from ncfbench.statistics.intervals import ratio_of_medians
from ncfbench.timing import allocator, environment
from ncfbench.training.loop import TimedLoop, timed_loops
from ncfbench.training.state import Parameters
from ncfbench.training.step import Trainer

BLOCK_SECONDS = 1.0
TOLERANCE = 1e-4
"""Largest difference of the gradients, as a share of their norm, and of the losses."""
MODES: Mapping[str, str | None] = {"eager": None, "compiled": "default"}
"""PyTorch's arms, and torch.compile's mode of each."""
Row = Mapping[str, Any]
"""Seconds per iteration of each arm of a sampler, round by round, and other facts."""


class Peers(Benchmark):
    """A cell for each encoder."""

    name, rounds = "peer", 7

    options: ClassVar = {
        "dataset": ("synthetic", "a prepared data set"),
        "encoder": ("cnn", "cnn, lstm or both, separated by a comma"),
        "loss": ("sg", "any loss"),
        "samplers": ("iid,neg,strat,ns,strat-ns", "separated by commas"),
        "batches": (16, "that every arm repeats; fewer where an iteration takes seconds"),
        "eager_only": (False, "leave torch.compile out"),
        "set": ([], "NAME=VALUE, any other setting"),
    }
    places = ("encoder",)

    def cells(self, options: argparse.Namespace) -> Mapping[str, str]:
        if (platform := jax.default_backend()) != "cpu":
            message = f"JAX computes on {platform}, PyTorch on the CPU: set JAX_PLATFORMS=cpu."
            raise UsageError(message)
        family, names = find_loss(options.loss).family, options.samplers.split(",")
        options.chosen = [name for name in names if family in find_sampler(name).families]
        if not options.chosen:
            raise UsageError(f"--samplers {options.samplers}: none serves --loss {options.loss}.")
        return {encoder: encoder for encoder in options.encoder.split(",")}

    def measure(self, name: str, cell: str, options: argparse.Namespace) -> Found:
        configs: dict[str, RunConfig] = {}
        for sampler in options.chosen:
            flags = {"dataset": options.dataset, "loss": options.loss}
            flags |= {"encoder": cell, "sampler": sampler}
            given, _ = merge(flags, options.set)
            configs[sampler] = complete(name_files(given, options.data_dir, say))
        dataset = open_dataset(options.dataset, data_dir=options.data_dir)
        rows = compare(dataset, configs, options)
        facts = {
            "device_name": environment.processor()[0],
            "torch": torch.__version__,
            "torch_threads": torch.get_num_threads(),
        }
        return {"samplers": rows, **facts}

    def tables(
        self, cells: Sequence[Found], environments: Mapping[str, Any]
    ) -> Iterator[Table | str]:
        for cell in cells:
            yield cell_table(cell)
        cell, where = cells[0], environments[cells[0]["environment_key"]]
        yield (
            "PyTorch / ours: PyTorch's quickest arm over our step, both on batches that are ready;"
            " / full: over our iterations with the sampler at work, which PyTorch is spared."
            f" {cell['device_name']}, {where['cores']} cores,"
            f" float32, jax {where['packages']['jax']}, torch {cell['torch']},"
            f" {cell['torch_threads']} threads, {where['time']}"
        )


def compare(
    dataset: Dataset, configs: Mapping[str, RunConfig], options: argparse.Namespace
) -> dict[str, dict[str, Any]]:
    """Return the seconds per iteration of every arm and sampler, round by round, after both
    programs were found to agree.
    """
    modes = {"eager": None} if options.eager_only else MODES
    content = DeviceContent.of(dataset)
    rows: dict[str, dict[str, Any]] = {}
    arms: dict[tuple[str, str], Arm] = {}
    with process() as ask, timed_loops(dataset, content, configs) as loops:
        for name, loop in loops.items():
            config, parameters = configs[name], loop.state.parameters
            batches = list(islice(loop.sampler.batches(0, loop.item_slots), options.batches))
            check(loop.trainer, parameters, dataset, batches[0], ask)
            ask(peer_model.prepare, config, dataset, on_host(parameters), batches, modes)
            for arm in modes:
                arms[name, arm] = partial(ask, peer_model.run, name, arm)
            loop.full_block(options.batches)
            for account in ("step", "full"):
                arms[name, account] = partial(block, loop, account)
        seconds = interleaved(arms, options.rounds, BLOCK_SECONDS)
        for name, loop in loops.items():
            times = {arm: taken for (of, arm), taken in seconds.items() if of == name}
            rows[name] = times | {"item_slots": loop.item_slots}
    return rows


def check(
    trainer: Trainer,
    parameters: Parameters,
    dataset: Dataset,
    batch: Batch,
    ask: Callable[..., Any] = lambda function, *arguments: function(*arguments),
) -> None:
    """Compare the peer's loss and gradients with ours, at some parameters of ours, without dropout.

    Args:
        ask: calls a function where PyTorch is.

    Raises:
        CheckFailedError: they differ.
    """
    config = trainer.config
    value, gradient = trainer.gradient(parameters, batch, DeviceContent.of(dataset), None)
    loss, theirs = ask(peer_model.gradient, config, dataset, on_host(parameters), batch)
    if not np.isclose(loss, float(value), rtol=TOLERANCE):
        raise CheckFailedError(f"{config.sampler}: PyTorch's loss is {loss}, ours {float(value)}.")
    if len(jax.tree.leaves(gradient)) != len(theirs):
        raise CheckFailedError(f"Ours has other parameters than PyTorch: {sorted(theirs)}.")
    pairs = ((peer_model.leaf_of(gradient, name), value) for name, value in theirs.items())
    off = np.sqrt(sum(float(np.sum((own - value) ** 2)) for own, value in pairs))
    length = float(np.linalg.norm(flat(gradient)))
    if not off <= TOLERANCE * length:
        raise CheckFailedError(
            f"{config.sampler}: the gradients differ by {off / length:.1e} of their length."
        )


def on_host(node: Any) -> Any:
    """Return our parameters as NumPy arrays in plain dictionaries, for another process."""
    if isinstance(node, Mapping):
        return {key: on_host(value) for key, value in node.items()}
    return np.array(node[...])


def block(loop: TimedLoop, account: str, iterations: int) -> float:
    """Return the seconds of a block of a training loop, of its account ``full`` or ``step``."""
    loop.take_samples()
    (loop.full_block if account == "full" else loop.step_block)(iterations)
    return next(sample.seconds for sample in loop.samples if sample.kind == account)


def median(row: Row, arm: str) -> float:
    """Return the seconds of an iteration."""
    return float(np.median(row[arm]))


def cell_table(cell: Found) -> Table:
    """Return the table of one encoder: a row for each sampler."""
    settings = cell["settings"]
    title = f"{settings['dataset']}, {cell['cell']}, {settings['loss']}, float32"
    arms = [*MODES] if "compiled" in next(iter(cell["samplers"].values())) else ["eager"]
    columns = [
        Col("sampler", "title"),
        Col("items", "item_slots"),
        *under("PyTorch ms", *(Col(arm, arm, ".2f") for arm in arms)),
        *under("ours ms", *(Col(account, account, ".2f") for account in ("step", "full"))),
        Col("PyTorch / ours", lambda row: row["ratio"][0], ".2f"),
        Col("interval", lambda row: row["ratio"][1:], interval(".2f")),
        Col("/ full", "by_full", ".2f"),
        Col("full / step", "overhead", ".2f"),
    ]
    rows = []
    for name, row in cell["samplers"].items():
        best = row[min(arms, key=lambda arm: median(row, arm))]
        rows.append(
            {
                "title": find_sampler(name).title,
                "item_slots": row["item_slots"],
                **{arm: 1e3 * median(row, arm) for arm in (*arms, "step", "full")},
                "ratio": ratio_of_medians(best, row["step"]),
                "by_full": ratio_of_medians(best, row["full"])[0],
                "overhead": median(row, "full") / median(row, "step"),
            }
        )
    return Table.of(title, columns, rows)


if __name__ == "__main__":
    allocator.restart()
    Peers().main()
