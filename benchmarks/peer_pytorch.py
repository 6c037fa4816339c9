"""What a user would write instead: the same model, layouts, objective and optimiser in PyTorch, timed beside ours.

    make bench-peer DATASET=citeulike
    python benchmarks/peer_pytorch.py --dataset citeulike --encoder cnn --words 40,300 --rounds 7 --json FILE

PyTorch, eager and compiled (torch.compile): distinct items embedded once, fused Adam, packed sequences for the LSTM, all
threads, its own dropout. Before any timing each program gets our parameters and one of our batches, without dropout, and must
agree with our loss and gradients to 1e-4 of the gradient's norm. Then rounds: in each, every arm repeats steps on the same
batches, which are ready in memory (our *step* account), and our *full* account runs beside them, with its sampler at work.

Texts of a length that the data set does not have are made: lengths as the paper prints them for CiteULike (22 to 300, mean
194, scaled), words drawn by Zipf's law.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.table import Table
from rich.text import Text

from ncfbench import analysis, environment
from ncfbench.batch import Batch, Listed
from ncfbench.config import RunConfig, resolve
from ncfbench.datasets import Dataset, open_dataset
from ncfbench.errors import INTERRUPTED_EXIT_CODE, CheckFailedError, NcfbenchError, UsageError
from ncfbench.exact import flat
from ncfbench.model import Content
from ncfbench.registry import find_loss, find_sampler
from ncfbench.report.console import make_console
from ncfbench.timing import TimedLoop, timed_loops

try:
    import torch
    from torch import nn
    from torch.nn import functional
except ImportError:  # pragma: no cover - the extra is not installed
    raise SystemExit("This benchmark needs PyTorch. Install it with: pip install '.[bench]'") from None

TOLERANCE = 1e-4
BLOCK_SECONDS = 1.0
BATCHES = 16
"""Batches that every arm repeats."""


class Peer(nn.Module):
    """Both towers and the objective of a batch."""

    def __init__(self, config: RunConfig, dataset: Dataset) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("tokens", torch.from_numpy(dataset.tokens_IxL.astype(np.int64)), persistent=False)
        self.register_buffer("lengths", torch.from_numpy(dataset.lengths.astype(np.int64)), persistent=False)
        width = config.word_dimension
        self.users = nn.Embedding(dataset.n_users, config.dimension)
        if config.encoder == "mf":
            self.vectors = nn.Embedding(dataset.n_items, config.dimension)
            return
        self.words = nn.Embedding(dataset.n_words + 1, width)
        if config.encoder == "cnn":
            self.convolution = nn.Conv1d(width, config.filters, config.filter_width, padding="same")
            self.dense = nn.Linear(config.filters, config.dimension)
        elif config.encoder == "lstm":
            self.lstm = nn.LSTM(width, config.lstm_units, batch_first=True)
            # Ours has one bias, and a forget gate that starts open by a constant.
            self.lstm.bias_hh_l0.requires_grad_(False)
            self.dense = nn.Linear(config.lstm_units, config.dimension)
        else:
            raise UsageError(f"The peer has no encoder {config.encoder!r}: mf, cnn or lstm.")

    def load(self, parameters: Any) -> None:
        """Our parameters."""

        def tensor(value: Any) -> torch.Tensor:
            return torch.from_numpy(np.array(value[...]))

        encoder = parameters["encoder"]
        with torch.no_grad():
            self.users.weight.copy_(tensor(parameters["users"]["embedding"]))
            if self.config.encoder == "mf":
                self.vectors.weight.copy_(tensor(encoder["vectors"]["embedding"]))
                return
            self.words.weight.copy_(tensor(encoder["words"]["embedding"]))
            self.dense.weight.copy_(tensor(encoder["dense"]["kernel"]).T)
            self.dense.bias.copy_(tensor(encoder["dense"]["bias"]))
            if self.config.encoder == "cnn":
                self.convolution.weight.copy_(tensor(encoder["convolution"]["kernel"]).permute(2, 1, 0))
                self.convolution.bias.copy_(tensor(encoder["convolution"]["bias"]))
            else:
                units = self.config.lstm_units
                self.lstm.weight_ih_l0.copy_(tensor(encoder["input_gates"]["kernel"]).T)
                self.lstm.bias_ih_l0.copy_(tensor(encoder["input_gates"]["bias"]))
                self.lstm.weight_hh_l0.copy_(tensor(encoder["recurrent_gates"]["kernel"]).T)
                self.lstm.bias_hh_l0.zero_()
                self.lstm.bias_hh_l0[units : 2 * units] = 1.0

    def gradient(self) -> dict[str, np.ndarray]:
        """The gradients that are there, in our layout, by our names."""

        def array(parameter: torch.Tensor) -> np.ndarray:
            assert parameter.grad is not None
            return parameter.grad.numpy()

        found = {"users.embedding": array(self.users.weight)}
        if self.config.encoder == "mf":
            return found | {"encoder.vectors.embedding": array(self.vectors.weight)}
        found |= {
            "encoder.words.embedding": array(self.words.weight),
            "encoder.dense.kernel": array(self.dense.weight).T,
            "encoder.dense.bias": array(self.dense.bias),
        }
        if self.config.encoder == "cnn":
            found["encoder.convolution.kernel"] = array(self.convolution.weight).transpose(2, 1, 0)
            found["encoder.convolution.bias"] = array(self.convolution.bias)
        else:
            found["encoder.input_gates.kernel"] = array(self.lstm.weight_ih_l0).T
            found["encoder.input_gates.bias"] = array(self.lstm.bias_ih_l0)
            found["encoder.recurrent_gates.kernel"] = array(self.lstm.weight_hh_l0).T
        return found

    def embed_items(self, items: torch.Tensor) -> torch.Tensor:
        """g of item ids; dropout in training mode only."""
        if self.config.encoder == "mf":
            vectors = self.vectors(items)
        else:
            tokens, lengths = self.tokens[items], self.lengths[items]
            present = tokens > 0
            if self.training and self.config.word_dropout > 0:
                present = present & (torch.rand(tokens.shape) >= self.config.word_dropout)
            words = self.words(tokens) * present.unsqueeze(-1)
            if self.config.encoder == "cnn":
                activity = functional.relu(self.convolution(words.transpose(1, 2)))
                in_text = torch.arange(tokens.shape[1]) < lengths.unsqueeze(1)
                pooled = (activity * in_text.unsqueeze(1)).amax(dim=2)
            else:
                packed = nn.utils.rnn.pack_padded_sequence(
                    words, lengths.clamp(min=1), batch_first=True, enforce_sorted=False
                )
                _, (last, _) = self.lstm(packed)
                pooled = last[0] * (lengths > 0).unsqueeze(1)
            vectors = self.dense(pooled)
        if self.training and self.config.item_dropout > 0:
            vectors = functional.dropout(vectors, self.config.item_dropout)
        return functional.normalize(vectors, dim=1) if self.config.normalize else vectors

    def forward(self, batch: Any) -> torch.Tensor:
        """The objective of a batch."""
        config = self.config
        raw = self.users(batch.users)
        users = functional.normalize(raw, dim=1) if config.normalize else raw
        items = self.embed_items(batch.items)
        own = users[batch.pos_user]
        positive = (own * items[batch.pos_item]).sum(dim=1)
        weight = batch.negatives.weight
        if isinstance(batch.negatives, Listed):
            negative = (users[batch.negatives.user] * items[batch.negatives.item]).sum(dim=2)
        else:
            negative = own @ items.T
        if config.loss == "sg":
            value = functional.softplus(-positive).mean() + config.lambda_ * (weight * functional.softplus(negative)).sum()
        elif config.loss == "mse":
            value = (1 - positive).square().mean() + config.lambda_ * (weight * negative.square()).sum()
        elif config.loss == "log":
            value = (weight * functional.softplus(config.gamma * (negative - positive.unsqueeze(1)))).sum()
        elif config.loss == "hinge":
            value = (weight * functional.relu(negative - positive.unsqueeze(1) + config.gamma)).sum()
        else:
            raise UsageError(f"The peer has no loss {config.loss!r}: sg, mse, log or hinge.")
        return value + config.user_l2 * raw[batch.pos_user].square().sum(dim=1).mean()


def to_torch(batch: Batch) -> Any:
    """A batch of ours as tensors."""

    def tensor(array: Any) -> torch.Tensor:
        array = np.asarray(array)
        return torch.from_numpy(array.astype(np.int64) if array.dtype == np.int32 else array)

    negatives = type(batch.negatives)(*map(tensor, batch.negatives))
    fields = {name: tensor(getattr(batch, name)) for name in ("users", "items", "pos_user", "pos_item")}
    return batch._replace(**fields, negatives=negatives)


class PeerLoop:
    """A training loop of the peer over some batches."""

    def __init__(self, peer: Peer, batches: list[Any], *, compiled: bool) -> None:
        self.peer, self.batches = peer.train(), batches
        trained = [parameter for parameter in peer.parameters() if parameter.requires_grad]
        self.optimizer = torch.optim.Adam(trained, lr=peer.config.learning_rate, fused=True)
        self.objective: Callable[[Any], torch.Tensor] = torch.compile(peer) if compiled else peer

    def run(self, iterations: int) -> float:
        """Seconds of some iterations. On a CPU PyTorch's operations have ended when they return: no wait is needed."""
        begin = time.perf_counter()
        for batch in islice(cycle(self.batches), iterations):
            self.optimizer.zero_grad(set_to_none=True)
            loss = self.objective(batch)
            loss.backward()
            self.optimizer.step()
        return time.perf_counter() - begin


def check(config: RunConfig, dataset: Dataset, loop: TimedLoop, batch: Batch) -> None:
    """Loss and gradients of the peer against ours, at our parameters, without dropout.

    Raises:
        CheckFailedError: they differ.
    """
    parameters = loop.state.parameters
    value, gradient = loop.trainer.gradient(parameters, batch, loop.content, None)
    peer = Peer(config, dataset).eval()
    peer.load(parameters)
    found = peer(to_torch(batch))
    found.backward()
    if not np.isclose(float(found.detach()), float(value), rtol=TOLERANCE):
        raise CheckFailedError(f"{config.sampler}: PyTorch's loss is {float(found.detach())}, ours {float(value)}.")
    theirs = peer.gradient()
    ours: dict[str, np.ndarray] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(gradient):
        names = [str(getattr(entry, "key", getattr(entry, "name", entry))) for entry in path]
        ours[".".join(name for name in names if name != "value")] = np.asarray(leaf)
    if ours.keys() != theirs.keys():
        raise CheckFailedError(f"Other parameters: ours {sorted(ours)}, PyTorch's {sorted(theirs)}.")
    off = np.sqrt(sum(float(np.sum((ours[name] - theirs[name]) ** 2)) for name in ours))
    length = float(np.linalg.norm(flat(gradient)))
    if not off <= TOLERANCE * length:
        raise CheckFailedError(f"{config.sampler}: the gradients differ by {off / length:.1e} of their length.")


def with_words(dataset: Dataset, words: int) -> Dataset:
    """The same graph with texts of up to ``words`` words: the data set's own if it has such, else made ones."""
    if dataset.tokens_IxL.shape[1] == words:
        return dataset
    rng = np.random.default_rng(words)
    lengths = np.clip(rng.normal(194, 72, dataset.n_items) * words / 300, max(22 * words // 300, 1), words).astype(np.int32)
    ranks = np.minimum(rng.zipf(1.2, (dataset.n_items, words)), dataset.n_words)
    order = rng.permutation(dataset.n_words) + 1
    tokens = np.where(np.arange(words)[None, :] < lengths[:, None], order[ranks - 1], 0).astype(np.int32)
    return dataclasses.replace(dataset, tokens_IxL=tokens, lengths=lengths)


def compare(dataset: Dataset, configs: dict[str, RunConfig], rounds: int, *, compiled: bool) -> dict[str, dict[str, Any]]:
    """Seconds per iteration of every arm and sampler, round by round, after both programs were found to agree."""
    content = Content.of(dataset)
    with timed_loops(dataset, content, configs) as loops:
        arms: dict[str, dict[str, PeerLoop]] = {}
        for name, loop in loops.items():
            batches = list(islice(loop.sampler.batches(0, loop.item_slots), BATCHES))
            check(configs[name], dataset, loop, batches[0])
            tensors = [to_torch(batch) for batch in batches]
            arms[name] = {}
            for arm in ("eager", "compiled") if compiled else ("eager",):
                peer = Peer(configs[name], dataset)
                peer.load(loop.state.parameters)
                arms[name][arm] = PeerLoop(peer, tensors, compiled=arm == "compiled")
                arms[name][arm].run(2)
            loop.full_block(BATCHES)
            loop.step_block(4)
        counts: dict[tuple[str, str], int] = {}
        found: dict[str, dict[str, Any]] = {name: {} for name in loops}
        for number in range(rounds + 1):
            for name, loop in loops.items():
                calls: dict[str, Callable[[int], float]] = {arm: peer.run for arm, peer in arms[name].items()}
                calls |= {
                    "full": lambda n, loop=loop: ours(loop, n, "full"),
                    "step": lambda n, loop=loop: ours(loop, n, "step"),
                }
                for arm, call in calls.items():
                    count = counts.get((name, arm), 3)
                    seconds = call(count) / count
                    if number == 0:  # the first round only says how many iterations fill a block
                        counts[name, arm] = int(np.clip(BLOCK_SECONDS / seconds, 3, 2000))
                    else:
                        found[name].setdefault(arm, []).append(seconds)
            print(f"round {number} of {rounds}", file=sys.stderr)
        for name, loop in loops.items():
            found[name]["item_slots"] = loop.item_slots
    return found


def ours(loop: TimedLoop, iterations: int, account: str) -> float:
    """Seconds of a block of ours."""
    loop.samples.clear()
    if account == "full":
        loop.full_block(iterations)
    else:
        loop.step_block(iterations)
    return next(sample.seconds for sample in loop.samples if sample.kind == account)


def show(result: dict[str, Any]) -> None:
    """A table for each length of texts."""
    console = make_console()
    for words, samplers in result["words"].items():
        title = f"{result['dataset']}, {result['encoder']}, {result['loss']}, texts of up to {words} words"
        table = Table(title=Text(title), title_justify="left")
        table.add_column("sampler")
        arms = [arm for arm in ("eager", "compiled") if arm in next(iter(samplers.values()))]
        for heading in (
            "items",
            *(f"PyTorch {arm} ms" for arm in arms),
            "ours, step ms",
            "full ms",
            "PyTorch / ours",
            "interval",
            "/ full",
        ):
            table.add_column(heading, justify="right")
        for name, row in samplers.items():
            best = min(arms, key=lambda arm: float(np.median(row[arm])))
            middle, lower, upper = analysis.ratio_of_medians(row[best], row["step"])
            cells = [f"{1e3 * float(np.median(row[arm])):.2f}" for arm in (*arms, "step", "full")]
            full = analysis.ratio_of_medians(row[best], row["full"])[0]
            table.add_row(
                find_sampler(name).title,
                str(row["item_slots"]),
                *cells,
                f"{middle:.2f}",
                f"{lower:.2f}..{upper:.2f}",
                f"{full:.2f}",
            )
        console.print(table)
    where = result["environment"]
    console.print(
        Text(
            f"PyTorch / ours: the better of PyTorch's medians over ours, on batches that are ready; / full: over our "
            f"iterations with the sampler at work, which PyTorch is spared. {where['cpu']}, {where['cores']} cores, "
            f"jax {where['packages']['jax']}, torch {torch.__version__}, {torch.get_num_threads()} threads, {where['time']}"
        ),
    )


def main() -> None:
    """Parse, measure, print, and keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="synthetic")
    parser.add_argument("--encoder", default="cnn")
    parser.add_argument("--loss", default="sg")
    parser.add_argument("--samplers", default="iid,neg,strat,ns,strat-ns")
    parser.add_argument("--words", default="40,300", help="longest texts, separated by commas")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--eager-only", action="store_true", help="leave torch.compile out")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any other setting of a run")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also keep raw seconds and environment")
    arguments = parser.parse_args()
    try:
        family = find_loss(arguments.loss).family
        names = [name for name in arguments.samplers.split(",") if family in find_sampler(name).families]
        configs = {}
        for name in names:
            flags = {key: getattr(arguments, key) for key in ("dataset", "encoder", "loss", "data_dir")}
            configs[name], places = resolve(flags | {"sampler": name}, arguments.set)
        dataset = open_dataset(places.data_dir, arguments.dataset, lambda text: print(text, file=sys.stderr))
        result: dict[str, Any] = {
            **{name: getattr(arguments, name) for name in ("dataset", "encoder", "loss", "rounds", "set")},
            "data_fingerprint": dataset.fingerprint,
            "torch": torch.__version__,
            "torch_threads": torch.get_num_threads(),
            "environment": environment.describe(),
            "words": {},
        }
        for words in map(int, arguments.words.split(",")):
            data = with_words(dataset, words)
            result["words"][words] = compare(data, configs, arguments.rounds, compiled=not arguments.eager_only)
            if arguments.json:
                arguments.json.parent.mkdir(parents=True, exist_ok=True)
                arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    except KeyboardInterrupt as error:
        raise SystemExit(INTERRUPTED_EXIT_CODE) from error
    except NcfbenchError as error:
        print(f"Error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from error
    show(result)


if __name__ == "__main__":
    main()
