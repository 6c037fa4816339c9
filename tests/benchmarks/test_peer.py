"""The peer in PyTorch is the same model: loss and gradients agree, and where they do not, its check
says so.
"""

import json
from typing import Any

import jax
import pytest

torch = pytest.importorskip("torch")

import peer_pytorch as peer  # noqa: E402

from ncfbench.catalog import (  # noqa: E402
    SAMPLERS,
    find_sampler,
    losses_for,
)
from ncfbench.config import complete  # noqa: E402
from ncfbench.errors import CheckFailedError, UsageError  # noqa: E402
from ncfbench.rng import Streams  # noqa: E402
from ncfbench.sampling import batches  # noqa: E402
from ncfbench.training.step import Trainer  # noqa: E402

PEERS = ["cnn", "lstm"]
"""The paper's encoders of texts."""
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


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """These tensors are small."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def made(dataset, config):
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
def test_loss_and_gradients_agree(tiny, sampler, loss, encoder):
    trainer, parameters, batch = made(
        tiny, complete(SMALL | {"sampler": sampler, "loss": loss, "encoder": encoder})
    )
    peer.check(trainer, parameters, tiny, batch)


@pytest.mark.parametrize(
    ("sampler", "loss", "encoder"),
    [("iid", "sg", "cnn"), ("ns", "hinge", "lstm"), ("ns", "mse", "lstm")],
)
def test_a_changed_weight_is_found(tiny, sampler, loss, encoder, monkeypatch):
    trainer, parameters, batch = made(
        tiny, complete(SMALL | {"sampler": sampler, "loss": loss, "encoder": encoder})
    )
    right = peer.peer_model.Tensors.of.__func__

    def wrong(cls, batch, *arguments):
        weight = batch.negatives.weight.copy()
        weight[0, weight[0].argmax()] *= 1.1
        return right(
            cls, batch._replace(negatives=batch.negatives._replace(weight=weight)), *arguments
        )

    monkeypatch.setattr(peer.peer_model.Tensors, "of", classmethod(wrong))
    with pytest.raises(CheckFailedError):
        peer.check(trainer, parameters, tiny, batch)


def test_a_changed_parameter_is_found_by_the_gradient_or_the_loss(tiny, monkeypatch):
    trainer, parameters, batch = made(tiny, complete(SMALL | {"sampler": "ns", "encoder": "lstm"}))
    load = peer.peer_model.Peer.load

    def wrong(self, parameters):
        load(self, parameters)
        with torch.no_grad():
            self.encoder.lstm.bias_hh_l0.zero_()  # a forget gate that starts closed

    monkeypatch.setattr(peer.peer_model.Peer, "load", wrong)
    with pytest.raises(CheckFailedError):
        peer.check(trainer, parameters, tiny, batch)


def test_a_run_from_the_command_line(tmp_path, capsys):
    file = tmp_path / "peer.json"
    words = ["--quick", "--cells=cnn", f"--data-dir={tmp_path}", f"--json={file}"]
    peer.Peers().main(words)
    (cell,) = json.loads(file.read_text())["cells"]
    assert cell["cell"] == "cnn"
    assert list(cell["samplers"]) == ["iid", "strat-ns"]
    for found in cell["samplers"].values():
        assert [len(found[arm]) for arm in ("eager", "full", "step", "sampling")] == [2, 2, 2, 2]
    out = capsys.readouterr().out
    for word in ("full /", "sampling", "strat-ns"):
        assert word in out


def test_an_accelerator_is_a_usage_error(monkeypatch, capsys):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    with pytest.raises(SystemExit) as caught:
        peer.Peers().main([])
    assert caught.value.code == UsageError("").exit_code
    assert "set JAX_PLATFORMS=cpu" in capsys.readouterr().err
