"""The peer in PyTorch is the same model: loss and gradients agree, and where they do not, its check
says so.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ncfbench.catalog import (  # noqa: E402
    SAMPLERS,
    find_sampler,
    losses_for,
)
from ncfbench.config import RunConfig, complete  # noqa: E402
from ncfbench.data.store import Dataset  # noqa: E402
from ncfbench.errors import CheckFailedError, UsageError  # noqa: E402
from ncfbench.rng import Streams  # noqa: E402
from ncfbench.sampling import batches  # noqa: E402
from ncfbench.training.step import Trainer  # noqa: E402

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
PEERS = ["mf", "cnn", "lstm"]
"""The paper's encoders."""
MODULES = [
    f"peer_{part}"
    for part in ("pytorch", "agreement", "loop", "model", "encoders", "torch", "table")
]
SMALL: dict[str, Any] = {
    "dataset": "tiny",
    "batch_size": 16,
    "dimension": 6,
    "filters": 5,
    "word_dimension": 4,
    "lstm_units": 5,
    "negatives": 2,
    "user_l2": 0.01,
}


@pytest.fixture(scope="module")
def peer() -> Iterator[Any]:
    """The module of the comparison; benchmarks/ is no package. One thread: these tensors are
    small.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    patch = pytest.MonkeyPatch()
    patch.syspath_prepend(str(BENCHMARKS))
    import peer_pytorch

    yield peer_pytorch
    patch.undo()
    torch.set_num_threads(threads)
    for name in MODULES:
        del sys.modules[name]


def made(dataset: Dataset, config: RunConfig) -> Any:
    """A trainer, parameters far enough from zero that a wrong weight shows, and a batch."""
    import jax

    trainer, state = Trainer.create(config, dataset)
    keys = iter(jax.random.split(jax.random.key(1), len(jax.tree.leaves(state.parameters))))
    parameters = jax.tree.map(
        lambda leaf: 0.3 * jax.random.normal(next(keys), leaf.shape, leaf.dtype), state.parameters
    )
    return trainer, parameters, next(batches(dataset.graph, config, Streams(0)))


@pytest.mark.parametrize(
    ("sampler", "loss", "encoder"),
    [
        (sampler, loss, encoder)
        for sampler in SAMPLERS
        for loss in losses_for(find_sampler(sampler))
        for encoder in PEERS
        if find_sampler(sampler).in_paper and not loss.startswith("softmax")
    ],
)
def test_loss_and_gradients_agree(
    tiny: Dataset, peer: Any, sampler: str, loss: str, encoder: str
) -> None:
    trainer, parameters, batch = made(
        tiny, complete(SMALL | {"sampler": sampler, "loss": loss, "encoder": encoder})
    )
    peer.check(trainer, parameters, tiny, batch)


@pytest.mark.parametrize(
    ("sampler", "loss", "encoder"),
    [("iid", "sg", "cnn"), ("ns", "hinge", "lstm"), ("ns", "mse", "mf")],
)
def test_a_changed_weight_is_found(
    tiny: Dataset, peer: Any, sampler: str, loss: str, encoder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, parameters, batch = made(
        tiny, complete(SMALL | {"sampler": sampler, "loss": loss, "encoder": encoder})
    )
    right = peer.peer_loop.Tensors.of.__func__

    def wrong(cls: Any, batch: Any, *arguments: Any) -> Any:
        weight = batch.negatives.weight.copy()
        weight[0, weight[0].argmax()] *= 1.1
        return right(
            cls, batch._replace(negatives=batch.negatives._replace(weight=weight)), *arguments
        )

    monkeypatch.setattr(peer.peer_loop.Tensors, "of", classmethod(wrong))
    with pytest.raises(CheckFailedError):
        peer.check(trainer, parameters, tiny, batch)


def test_no_arm_always_follows_the_same_one(peer: Any) -> None:
    arms = ["eager", "compiled", "full", "step", "sampling"]
    orders = [peer.in_turn(arms, number) for number in range(5)]
    assert all(sorted(order) == sorted(arms) for order in orders)
    for arm in arms:
        before = {order[order.index(arm) - 1] for order in orders if order[0] != arm}
        assert len(before) > 1
    assert len({order[0] for order in orders}) > 2


def test_a_changed_parameter_is_found_by_the_gradient_or_the_loss(
    tiny: Dataset, peer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, parameters, batch = made(tiny, complete(SMALL | {"sampler": "ns", "encoder": "lstm"}))
    load = peer.peer_loop.Peer.load

    def wrong(self: Any, parameters: Any) -> None:
        load(self, parameters)
        with torch.no_grad():
            self.encoder.lstm.bias_hh_l0.zero_()  # a forget gate that starts closed

    monkeypatch.setattr(peer.peer_loop.Peer, "load", wrong)
    with pytest.raises(CheckFailedError):
        peer.check(trainer, parameters, tiny, batch)


@pytest.mark.parametrize("encoder", ["bow", "gru", "transformer"])
def test_other_encoders_agree(tiny: Dataset, peer: Any, encoder: str) -> None:
    sizes = {"gru_units": 5, "layers": 2, "width": 6, "feed_forward": 7}
    config = complete(SMALL | {"sampler": "ns", "encoder": encoder, **sizes})
    trainer, parameters, batch = made(tiny, config)
    peer.check(trainer, parameters, tiny, batch)


def test_bfloat16_is_near_and_its_parameters_stay_float32(tiny: Dataset, peer: Any) -> None:
    losses = {}
    for encoder in PEERS:
        for precision in ("float32", "bfloat16"):
            config = complete(SMALL | {"sampler": "ns", "encoder": encoder, "precision": precision})
            # Our own step has no bfloat16 on a CPU.
            _, parameters, batch = made(tiny, dataclasses.replace(config, precision="float32"))
            model = peer.peer_loop.Peer(config, tiny).eval()
            model.load(parameters)
            loss = model(peer.peer_loop.Tensors.of(batch, config.family, tiny))
            loss.backward()
            assert loss.dtype == torch.float32
            assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
            losses[precision] = loss.item()
        assert losses["bfloat16"] != losses["float32"]
        assert losses["bfloat16"] == pytest.approx(losses["float32"], rel=0.02)


def test_a_run_from_the_command_line_and_one_that_is_resumed(
    data_dir: Path,
    tmp_path: Path,
    peer: Any,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peer, "BLOCK_SECONDS", 0.01)
    file = tmp_path / "peer.json"
    sizes = [
        word
        for key in ("batch_size=16", "dimension=6", "word_dimension=4", "lstm_units=5")
        for word in ("--set", key)
    ]
    common = [
        "--dataset",
        "tiny",
        "--data-dir",
        str(data_dir),
        "--rounds",
        "2",
        "--eager-only",
        "--json",
        str(file),
        *sizes,
    ]
    common += ["--samplers", "iid,strat-ns"]
    peer.main([*common, "--encoder", "mf", "--words", "40,8"])
    first = json.loads(file.read_text())
    assert [(cell["encoder"], cell["words"]) for cell in first["cells"]] == [("mf", 40)]
    assert (first["device"], first["device_name"]) == ("cpu", first["environment"]["cpu"])
    peer.main([*common, "--encoder", "mf,lstm", "--words", "40", "--resume"])
    second = json.loads(file.read_text())
    assert [(cell["encoder"], cell["words"]) for cell in second["cells"]] == [
        ("mf", 40),
        ("lstm", 40),
    ]
    assert second["cells"][0] == first["cells"][0], "measured again"
    for cell in second["cells"]:
        for row in cell["samplers"].values():
            assert [len(row[arm]) for arm in ("eager", "full", "step", "sampling")] == [2, 2, 2, 2]
    out = capsys.readouterr().out
    for word in ("full / step", "sampling", "lstm, 40 words: PyTorch / ours at least 1.00"):
        assert word in out
    for changed in (["--precision", "bfloat16"], ["--rounds", "3"]):
        with pytest.raises(SystemExit) as caught:
            peer.main([*common, "--encoder", "mf", "--resume", *changed])
        assert caught.value.code == UsageError("").exit_code
        assert f"made with another {changed[0].removeprefix('--')}" in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_a_usage_error(
    peer: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        peer.main(["--device", "cuda"])
    assert caught.value.code == UsageError("").exit_code
    assert "finds no GPU" in capsys.readouterr().err


def row(**medians: float) -> dict[str, Any]:
    return {name: [seconds] for name, seconds in medians.items()} | {"item_slots": 1}


def test_verdicts_by_hand(peer: Any) -> None:
    table = peer.peer_table
    rows = {
        "iid": row(eager=4.0, compiled=2.1, step=1.0, full=1.02, sampling=0.03),
        "ns": row(eager=1.9, step=1.0, full=1.2, sampling=0.3),
    }
    lines = list(
        table.verdicts(
            {"device": "cpu", "cells": [{"encoder": "cnn", "words": 300, "samplers": rows}]}
        )
    )
    assert lines == [
        "cnn, 300 words: PyTorch / ours at least 2.00: missed by ns 1.90",
        "cnn, 300 words: sampling / full at most 0.05: missed by ns 0.25",
        "cnn, 300 words: full / step at most 1.05: missed by ns 1.20",
    ]
    gpu = {
        "iid": row(
            **{
                "eager": 1.0,
                "reduce-overhead": 1.7,
                "max-autotune": 1.6,
                "step": 1.0,
                "full": 1.1,
                "sampling": 0.1,
            }
        )
    }
    gpu["ns"] = row(eager=9.0, step=1.0, full=1.0, sampling=0.0)
    lines = list(
        table.verdicts(
            {"device": "cuda", "cells": [{"encoder": "lstm", "words": 40, "samplers": gpu}]}
        )
    )
    assert (
        lines[0] == "lstm, 40 words: compiled PyTorch / ours at least 1.50: met (not measured: ns)"
    )
    assert [line.rpartition(": ")[2] for line in lines[1:]] == ["met", "met"]
    assert not list(
        table.verdicts(
            {"device": "cpu", "cells": [{"encoder": "mf", "words": 40, "samplers": rows}]}
        )
    )
