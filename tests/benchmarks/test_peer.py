"""The peer in PyTorch is the same model: loss and gradients agree, and where they do not, its check
says so.
"""

import json

import jax
import pytest

torch = pytest.importorskip("torch")

import peer_pytorch as peer  # noqa: E402

from ncfbench.config import complete  # noqa: E402
from ncfbench.errors import CheckFailedError, UsageError  # noqa: E402
from ncfbench.rng import Streams  # noqa: E402
from ncfbench.sampling import batches  # noqa: E402
from ncfbench.training.step import Trainer  # noqa: E402

SMALL = {"dataset": "tiny", "batch_size": 16, "negatives": 2, "user_l2": 0.01}
SMALL |= {"dimension": 6, "filters": 5, "word_dimension": 4, "lstm_units": 5}


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """These tensors are small."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def check(dataset, sampler, loss, encoder):
    """Compare at parameters far enough from zero that a wrong weight shows."""
    config = complete(SMALL | {"sampler": sampler, "loss": loss, "encoder": encoder})
    trainer, state = Trainer.create(config, dataset)
    keys = iter(jax.random.split(jax.random.key(1), len(jax.tree.leaves(state.parameters))))
    parameters = jax.tree.map(
        lambda leaf: 0.3 * jax.random.normal(next(keys), leaf.shape, leaf.dtype), state.parameters
    )
    batch = next(batches(dataset.graph, config, Streams(0)))
    peer.check(trainer, parameters, dataset, batch)


@pytest.mark.parametrize(
    "arm",
    [
        *(("iid", "sg", "cnn"), ("neg", "hinge", "cnn"), ("strat", "mse", "cnn")),
        *(("ns", "log", "cnn"), ("neg", "log", "lstm"), ("strat-ns", "mse", "lstm")),
    ],
)
def test_loss_and_gradients_agree(tiny, arm):
    check(tiny, *arm)


@pytest.mark.parametrize("arm", [("iid", "sg", "cnn"), ("ns", "hinge", "lstm")])
def test_a_changed_weight_is_noticed(tiny, arm, monkeypatch):
    right = peer.peer_model.Tensors.of.__func__

    def wrong(cls, batch, *arguments):
        weight = batch.negatives.weight.copy()
        weight[0, weight[0].argmax()] *= 1.1
        negatives = batch.negatives._replace(weight=weight)
        return right(cls, batch._replace(negatives=negatives), *arguments)

    monkeypatch.setattr(peer.peer_model.Tensors, "of", classmethod(wrong))
    with pytest.raises(CheckFailedError):
        check(tiny, *arm)


def test_a_run_from_the_command_line(data_dir, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(peer, "BLOCK_SECONDS", 0.02)
    file = tmp_path / "peer.json"
    words = ["--dataset=tiny", "--samplers=iid,strat-ns", "--batches=2", "--eager-only"]
    words += [f"--set={name}=8" for name in ("dimension", "word_dimension", "filters")]
    words += ["--set=batch_size=16", "--rounds=2", f"--data-dir={data_dir}", f"--json={file}"]
    peer.Peers().main(words)
    (cell,) = json.loads(file.read_text())["cells"]
    for times in (cell["samplers"][name] for name in ("iid", "strat-ns")):
        assert [len(times[arm]) for arm in ("eager", "full", "step")] == [2, 2, 2]
    assert "full / step" in capsys.readouterr().out
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    with pytest.raises(SystemExit, match=str(UsageError.exit_code)):
        peer.Peers().main(words)
