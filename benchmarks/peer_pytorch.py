"""The same model, layouts, objective and optimiser as a user would write them in PyTorch,
timed beside ours.

    make bench-peer DATASET=citeulike
    make bench-gpu DATASET=citeulike BENCH_FLAGS="--precision tf32"
    python benchmarks/peer_pytorch.py --encoder cnn,lstm --words 40,300 --json FILE --resume

PyTorch, eager and compiled (torch.compile, for the batches' fixed shapes): distinct items embedded
once, fused Adam, packed sequences for the LSTM, all threads, its own dropout, in a process of its
own. Before any timing its loss and gradients must agree with ours (peer_agreement.py). Then rounds:
in each, every arm repeats steps on the same batches, which are ready on the device (our *step*
account), and our *full* account runs beside them, with its sampler at work. The order of the arms
changes from round to round.

On a GPU there are two compiled arms, for which of them is better depends on the work:
reduce-overhead, which replays CUDA graphs and so spares the host's share of small kernels, and
max-autotune-no-cudagraphs, which tries kernels for each product. The comparison takes the best. Not
measured on a GPU.

Texts of a length that the data set does not have are made: lengths as the paper prints them for
CiteULike (22 to 300, mean 194, scaled), words drawn by Zipf's law.
"""

from __future__ import annotations

import argparse
import dataclasses
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jax
import numpy as np
import peer_loop
import peer_table
from peer_agreement import check, on_host
from peer_torch import torch

from ncfbench.catalog import find_loss, find_sampler
from ncfbench.config import RunConfig, complete, merge
from ncfbench.data import Dataset, open_dataset
from ncfbench.data.assets import name_files
from ncfbench.data.text import Texts
from ncfbench.errors import INTERRUPTED_EXIT_CODE, NcfbenchError, UsageError, install_command
from ncfbench.models.towers import DeviceContent
from ncfbench.rng import Streams
from ncfbench.sampling import make_sampler
from ncfbench.sampling.batch import Batch
from ncfbench.storage import tables
from ncfbench.timing import allocator, environment
from ncfbench.training.loop import TimedLoop, timed_loops

BLOCK_SECONDS = 1.0
BATCHES = 16
"""Batches that every arm repeats, by default."""
MODES = {
    "cpu": {"eager": None, "compiled": "default"},
    "cuda": {
        "eager": None,
        "reduce-overhead": "reduce-overhead",
        "max-autotune": "max-autotune-no-cudagraphs",
    },
}
"""PyTorch's arms on each device, and torch.compile's mode of each arm."""
Found = dict[str, dict[str, Any]]
"""Results by sampler: seconds per iteration of each arm, round by round, and ``sampling``,
``item_slots``, ``failed``.
"""


def with_words(dataset: Dataset, words: int) -> Dataset:
    """The same graph with texts of up to ``words`` words: the data set's own if it has such, else
    made ones.
    """
    if dataset.tokens_IxL.shape[1] == words:
        return dataset
    rng = np.random.default_rng(words)
    lengths = np.clip(
        rng.normal(194, 72, dataset.n_items) * words / 300, max(22 * words // 300, 1), words
    ).astype(np.int32)
    ranks = np.minimum(rng.zipf(1.2, (dataset.n_items, words)), dataset.n_words)
    order = rng.permutation(dataset.n_words) + 1
    words_of_all = order[ranks - 1][np.arange(words)[None, :] < lengths[:, None]].astype(np.int32)
    return dataclasses.replace(dataset, texts=Texts(words_of_all, lengths))


def compare(
    dataset: Dataset,
    configs: Mapping[str, RunConfig],
    rounds: int,
    modes: Mapping[str, str | None],
    device: str = "cpu",
    n_batches: int = BATCHES,
) -> Found:
    """Seconds per iteration of every arm and sampler, round by round, after both programs were
    found to agree.

    A compiled arm that PyTorch cannot run is left out, with its message under ``failed``.
    """
    content = DeviceContent.of(dataset)
    process = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))

    def ask(function: Callable[..., Any], *arguments: Any) -> Any:
        return process.submit(function, *arguments).result()

    with patch.dict(os.environ, allocator.loaded_with):
        ask(os.getpid)  # starts the process, with the allocator of this one
    with process, timed_loops(dataset, content, configs) as loops:
        found: Found = {name: {"failed": {}} for name in loops}
        arms: dict[str, list[str]] = {}
        streams: dict[str, Iterator[Batch]] = {}
        for name, loop in loops.items():
            batches = list(islice(loop.sampler.batches(0, loop.item_slots), n_batches))
            parameters = on_host(loop.state.parameters)
            check(loop.trainer, loop.state.parameters, dataset, batches[0], device, ask)
            found[name]["failed"] = ask(
                peer_loop.prepare, configs[name], dataset, parameters, batches, modes, device
            )
            streams[name] = make_sampler(
                dataset.graph, configs[name], Streams(configs[name].seed)
            ).batches(0, loop.item_slots)
            arms[name] = [arm for arm in modes if arm not in found[name]["failed"]]
            loop.full_block(n_batches)
            loop.step_block()
        counts: dict[tuple[str, str], int] = {}
        for number in range(rounds + 1):
            for name, loop in loops.items():
                calls: dict[str, Callable[[int], Mapping[str, float]]] = {
                    arm: lambda n, name=name, arm=arm: {arm: ask(peer_loop.run, name, arm, n)}
                    for arm in arms[name]
                }
                calls |= {
                    account: lambda n, loop=loop, account=account: ours(loop, n, account)
                    for account in ("full", "step")
                }
                calls["sampling"] = lambda n, stream=streams[name]: built(stream, n)
                for arm in in_turn(list(calls), number):
                    # Whole dispatches of ours, as a long block has.
                    count = (
                        -(-counts.get((name, arm), 1) // loop.trainer.per_dispatch)
                        * loop.trainer.per_dispatch
                    )
                    seconds = {key: value / count for key, value in calls[arm](count).items()}
                    if number == 0:  # the first round only says how many iterations fill a block
                        counts[name, arm] = int(np.clip(BLOCK_SECONDS / seconds[arm], 2, 2000))
                    else:
                        for key, value in seconds.items():
                            found[name].setdefault(key, []).append(value)
            print(f"round {number} of {rounds}", file=sys.stderr)
        for name, loop in loops.items():
            found[name]["item_slots"] = loop.item_slots
            found[name]["iterations_per_dispatch"] = loop.trainer.per_dispatch
    return found


def in_turn(arms: Sequence[str], number: int) -> list[str]:
    """Return the arms in the order of a round: each round begins with another, every second one
    goes backwards, so that no arm always follows the same one.
    """
    first = number % len(arms)
    order = [*arms[first:], *arms[:first]]
    return order[::-1] if number % 2 else order


def ours(loop: TimedLoop, iterations: int, account: str) -> Mapping[str, float]:
    """Seconds of a block of ours."""
    loop.take_samples()
    if account == "full":
        loop.full_block(iterations)
    else:
        loop.step_block(iterations)
    sample = next(sample for sample in loop.samples if sample.kind == account)
    return {account: sample.seconds}


def built(stream: Iterator[Batch], count: int) -> Mapping[str, float]:
    """Seconds of building some batches, with nothing beside it."""
    begin = time.perf_counter()
    for _ in islice(stream, count):
        pass
    return {"sampling": time.perf_counter() - begin}


def require_device(device: str) -> None:
    """Refuse a comparison of two devices.

    Raises:
        UsageError: PyTorch or JAX does not compute on the device that was asked for.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise UsageError(
            f"--device cuda: PyTorch {torch.__version__} finds no GPU. Use --device cpu, or install"
            " its CUDA build."
        )
    platform = jax.default_backend()
    if (platform == "gpu") != (device == "cuda"):
        instead = (
            f"Use {install_command('cuda13')} (or cuda12)"
            if device == "cuda"
            else "Set JAX_PLATFORMS=cpu, or use --device cuda"
        )
        raise UsageError(
            f"--device {device}: JAX computes on {platform}, which would compare two devices."
            f" {instead}."
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse, measure, print, and keep."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", default="synthetic")
    parser.add_argument(
        "--encoder",
        default="cnn",
        help="of mf, cnn, lstm, bow, gru, transformer, bert (--set checkpoint=DIR)",
    )
    parser.add_argument("--loss", default="sg")
    parser.add_argument(
        "--samplers", default="iid,neg,strat,ns,strat-ns", help="separated by commas"
    )
    parser.add_argument(
        "--words",
        default="40,300",
        help="longest texts, separated by commas; mf, without texts, takes the first",
    )
    parser.add_argument("--device", default="cpu", choices=tuple(MODES))
    parser.add_argument(
        "--precision", help="float32 (default), tf32 or bfloat16: of both programs' products"
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--batches",
        type=int,
        default=BATCHES,
        help="batches that every arm repeats; fewer where an iteration takes seconds",
    )
    parser.add_argument("--eager-only", action="store_true", help="leave torch.compile out")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="any other setting of a run"
    )
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="keep raw seconds and environment, after each cell",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="keep the cells that the --json file has, and measure the others",
    )
    try:
        result = measure(parser.parse_args(arguments))
    except KeyboardInterrupt as error:
        raise SystemExit(INTERRUPTED_EXIT_CODE) from error
    except NcfbenchError as error:
        print(f"Error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from error
    peer_table.show(result)


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """All cells that the arguments ask for, written to the file after each."""
    if arguments.device == "cuda":
        os.environ.setdefault(
            "XLA_PYTHON_CLIENT_PREALLOCATE", "false"
        )  # or JAX would leave PyTorch little memory
    require_device(arguments.device)
    if arguments.resume and not arguments.json:
        raise UsageError("--resume needs --json FILE, which holds what was measured.")
    family = find_loss(arguments.loss).family
    names = [
        name for name in arguments.samplers.split(",") if family in find_sampler(name).families
    ]
    if not names:
        raise UsageError(
            f"--samplers {arguments.samplers}: none of them serves --loss {arguments.loss}."
        )

    def say(text: str) -> None:
        print(text, file=sys.stderr)

    configs: dict[str, dict[str, RunConfig]] = {}
    for encoder in arguments.encoder.split(","):
        for name in names:
            flags = {
                key: getattr(arguments, key) for key in ("dataset", "loss", "precision", "data_dir")
            }
            given, locations = merge(flags | {"encoder": encoder, "sampler": name}, arguments.set)
            config = complete(name_files(given, locations.data_dir, say))
            configs.setdefault(encoder, {})[name] = config
    dataset = open_dataset(arguments.dataset, data_dir=locations.data_dir, say=say)
    described = environment.describe()
    result: dict[str, Any] = {
        **{
            name: getattr(arguments, name)
            for name in (
                "dataset",
                "loss",
                "samplers",
                "rounds",
                "batches",
                "set",
                "device",
                "eager_only",
            )
        },
        "precision": config.precision,
        "device_name": (
            torch.cuda.get_device_name() if arguments.device == "cuda" else described["cpu"]
        ),
        "data_fingerprint": dataset.fingerprint,
        "torch": torch.__version__,
        "torch_threads": torch.get_num_threads(),
        "environment": described,
        "cells": [],
    }
    if arguments.resume:
        result["cells"] = peer_table.earlier_cells(arguments.json, result)
    done = {(cell["encoder"], cell["words"]) for cell in result["cells"]}
    lengths = [int(words) for words in arguments.words.split(",")]
    modes = {
        arm: mode
        for arm, mode in MODES[arguments.device].items()
        if mode is None or not arguments.eager_only
    }
    for encoder, by_sampler in configs.items():
        for words in lengths[:1] if encoder == "mf" else lengths:
            if (encoder, words) in done:
                print(f"{encoder}, {words} words: already in {arguments.json}", file=sys.stderr)
                continue
            print(f"{encoder}, {words} words", file=sys.stderr)
            found = compare(
                with_words(dataset, words),
                by_sampler,
                arguments.rounds,
                modes,
                arguments.device,
                arguments.batches,
            )
            result["cells"].append({"encoder": encoder, "words": words, "samplers": found})
            if arguments.json:
                arguments.json.parent.mkdir(parents=True, exist_ok=True)
                tables.write_json(arguments.json, result)
    return result


if __name__ == "__main__":
    allocator.restart()
    main()
