"""Batches, the objective and the lint of losses in PyTorch: those of the JAX side, batch by batch
and loss by loss.

Not in a folder of its own: one named ``torch`` on the path of the tests would stand in for PyTorch.
"""

import math
import pickle
from itertools import islice
from typing import NamedTuple

import jax
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from train_in_pytorch import TwoTower, train  # noqa: E402

from ncfbench.catalog import LOSSES, SAMPLERS, find_sampler, losses_for  # noqa: E402
from ncfbench.config import complete  # noqa: E402
from ncfbench.errors import UsageError  # noqa: E402
from ncfbench.linting.lint import lint_loss  # noqa: E402
from ncfbench.models.losses import make_loss  # noqa: E402
from ncfbench.models.objective import batch_scores, link_loss  # noqa: E402
from ncfbench.models.towers import DeviceContent  # noqa: E402
from ncfbench.rng import Streams  # noqa: E402
from ncfbench.sampling import batches, make_sampler  # noqa: E402
from ncfbench.sampling.batch import Batch, Shared  # noqa: E402
from ncfbench.torch import BatchLoader, Loss, as_tensors, dot_scores, objective  # noqa: E402
from ncfbench.torch.objective import ROWS  # noqa: E402
from ncfbench.training.step import Trainer  # noqa: E402

SMALL = {"batch_size": 16, "stratum_size": 4, "negatives": 2, "seed": 7}
SERVED = [
    (sampler, loss, strata)
    for sampler in SAMPLERS
    for strata in ("item", "user")
    if strata == "item" or find_sampler(sampler).reads("stratum_size")
    for loss in losses_for(find_sampler(sampler).with_strata(strata))
]
BATCH = Batch(
    users=np.array([7, 9], np.int32),
    items=np.array([30, 31], np.int32),
    pos_user=np.array([0, 1], np.int32),
    pos_item=np.array([0, 1], np.int32),
    negatives=Shared(np.array([[0, 0.5], [0.5, 0]], np.float32)),
    n_items=np.int32(2),
)
"""Negative Sharing's batch of the docstring of the layout."""


def parts_of(batch):
    return *batch[:4], *batch.negatives, batch.n_items


def assert_same(left, right):
    for one, other in zip(left, right, strict=True):
        for a, b in zip(parts_of(one), parts_of(other), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("sampler", "loss", "strata"), SERVED)
def test_loss_and_gradient_are_jax_ones(tiny, sampler, loss, strata):
    """To 1e-5 of the value and of each gradient's length, at random vectors."""
    settings = SMALL | {"sampler": sampler, "loss": loss, "strata": strata}
    config, rng = complete(settings), np.random.default_rng(0)
    batch = next(make_sampler(tiny.graph, config, Streams(7)).batches(3))
    vectors = [rng.normal(size=(len(ids), 6)).astype("f") for ids in (batch.users, batch.items)]

    def ours(users, items):
        scores = batch_scores(users, items, batch)
        return link_loss(*scores, batch.negatives.weight, make_loss(config), config.lambda_)

    value, gradients = jax.value_and_grad(ours, argnums=(0, 1))(*vectors)
    loader = BatchLoader(tiny, start=3, **settings)
    theirs = next(iter(loader))
    leaves = [torch.tensor(array, requires_grad=True) for array in vectors]
    # As in a trainer's checkpoint.
    kept = pickle.loads(pickle.dumps(loader.loss))
    actual = objective(*dot_scores(*leaves, theirs), theirs, kept)
    actual.backward()
    assert actual.item() == pytest.approx(float(value), rel=1e-5)
    for leaf, gradient in zip(leaves, gradients, strict=True):
        off = np.linalg.norm(leaf.grad.numpy() - np.asarray(gradient))
        assert off <= 1e-5 * np.linalg.norm(gradient)


def test_every_loss_of_ours_is_there():
    assert {loss for _, loss, _ in SERVED} == set(LOSSES) == set(ROWS)


def test_two_links_by_hand():
    """Scores 2 and -1 of the links, 0.5 and 3 of the other pairs; pairs of weight 0 are silent."""
    batch, (a, d), (b, c) = as_tensors(BATCH, "pointwise"), (2.0, -1.0), (0.5, 3.0)
    negative = torch.tensor([[math.inf, b], [c, -math.inf]], requires_grad=True)

    def softplus(x):
        return math.log1p(math.exp(x))

    sg = (softplus(-a) + softplus(-d)) / 2 + 128 * (softplus(b) + softplus(c)) / 2
    actual = objective(torch.tensor([a, d]), negative, batch, "sg")
    actual.backward()
    assert actual.item() == pytest.approx(sg, rel=1e-6)
    half = 64 / (1 + math.exp(-b)), 64 / (1 + math.exp(-c))
    expected = [0, half[0], half[1], 0]
    assert negative.grad.flatten().tolist() == pytest.approx(expected, rel=1e-6)
    # Weights that sum to items: twice those above are 1 for the row's one negative.
    share = [math.log(1 + math.exp(10 * (b - a))), math.log(1 + math.exp(10 * (c - d)))]
    actual = objective(torch.tensor([a, d]), negative, batch._replace(family="listwise"), "softmax")
    assert actual.item() == pytest.approx(sum(share) / 2, rel=1e-6)


def test_a_loss_of_your_own():
    own = Loss("pairwise", lambda p, n, w: (w * (n - p[:, None]) ** 2).sum(dim=1))
    batch = as_tensors(BATCH, "pairwise")
    scores = torch.tensor([2.0, -1.0]), torch.tensor([[9.0, 0.5], [3.0, 9.0]])
    assert objective(*scores, batch, own).item() == pytest.approx((1.5**2 + 4**2) / 2)


@pytest.mark.parametrize("sampler", ["neg", "strat-ns", "mixed-ns"])
def test_batches_by_number(tiny, sampler):
    """Any order of numbers, as the workers are asked for them, gives the batches of the stream."""
    whole = make_sampler(tiny.graph, complete(SMALL | {"sampler": sampler}), Streams(7))
    expected = [whole.assemble(draw) for draw in whole.draw(0, 40)]
    loader = BatchLoader(tiny, sampler, **SMALL)
    order = [*range(1, 40, 3), 38, 37, 3, 3]
    batches = [loader.dataset[number] for number in order]
    assert_same(batches, [expected[number] for number in order])


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.filterwarnings("ignore:.*fork", "ignore:.*worker processes")  # on one core
def test_passes_follow_one_another(tiny, persistent):
    """By processes; one that was left early continues there, and batch 5 resumes them."""
    alone = list(BatchLoader(tiny, start=2, batches=10, **SMALL))
    workers = {"num_workers": 2, "persistent_workers": persistent}
    loader = BatchLoader(tiny, start=2, batches=3, **workers, **SMALL)
    assert len(loader) == 3
    assert_same([*loader, next(iter(loader)), *islice(loader, 2), *loader], alone[:9])
    assert loader.number == 11
    resumed = BatchLoader(tiny.graph, start=5, batches=3, **SMALL)
    assert_same(list(resumed), alone[3:6])
    assert len(BatchLoader(tiny, **SMALL)) == tiny.graph.n_links // 16


def test_fixed_shapes(tiny):
    loader = BatchLoader(tiny, fixed_shapes=True, batches=20, **SMALL)
    batches = list(loader)
    assert len({len(batch.items) for batch in batches}) == 1
    assert len({int(batch.n_items) for batch in batches}) > 1
    assert {batch.negatives.weight.shape for batch in batches} == {(16, len(batches[0].items))}
    moved = batches[0].to("meta")
    assert {part.device.type for part in parts_of(moved)} == {"meta"}
    assert moved.family == "pointwise"


def test_pinned_memory(tiny, monkeypatch):
    """PyTorch pins every tensor of a batch and keeps the batch's form; here pinning is a copy."""
    from torch.utils.data._utils.pin_memory import pin_memory

    pinned = []

    def copy(tensor, *device):
        pinned.append(tensor.clone())
        return pinned[-1]

    monkeypatch.setattr(torch.Tensor, "pin_memory", copy)
    batch = BatchLoader(tiny, pin_memory=True, **SMALL).dataset[3]
    actual = pin_memory(batch)
    assert_same([actual], [batch])
    assert (type(actual.negatives), actual.family) == (type(batch.negatives), batch.family)
    assert {*map(id, parts_of(actual))} == {*map(id, pinned)}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"start": -1}, "start = -1 is no batch number: the first batch is 0."),
        ({"batches": 0}, "batches = 0: a pass has 1 or more."),
        ({"batches": 3, "num_workers": 4}, "num_workers = 4: a pass has 3 batches, and each"),
        ({"num_workers": -1}, "PyTorch refuses these options: num_workers"),
        ({"prefetch_factor": 2}, "PyTorch refuses these options: prefetch_factor"),
        ({"batch_size": 4096}, "is larger than the"),
        ({"sampler": "iid", "loss": "hinge"}, "iid cannot train --loss hinge"),
        ({"loss": "bpr"}, "Unknown loss 'bpr'"),
        ({"batchsize": 16}, "did you mean 'batch_size'?"),
        ({"epochs": 3}, "Unknown setting 'epochs'"),
    ],
)
def test_bad_input_is_one_sentence(tiny, settings, message):
    with pytest.raises(UsageError) as caught:
        BatchLoader(tiny, **SMALL | settings)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_has_no_form_is_refused(tiny, monkeypatch):
    batch, zeros = as_tensors(BATCH, "pointwise"), (torch.zeros(2), torch.zeros(2, 2))
    with pytest.raises(UsageError, match="weights of this batch are for pointwise losses"):
        objective(*zeros, batch, "softmax")
    with pytest.raises(UsageError, match="PyTorch has no loss 'ncfbench.models.losses:SkipGram'"):
        objective(*zeros, batch, "ncfbench.models.losses:SkipGram")

    class Everybody(NamedTuple):
        weight: object

    other = BATCH._replace(negatives=Everybody(BATCH.negatives.weight))
    kind = find_sampler("strat-ns").load()
    monkeypatch.setattr(kind, "assemble", lambda *arguments: other)
    with pytest.raises(UsageError, match="no form for the batch layout Everybody"):
        BatchLoader(tiny, **SMALL)


PARAMETERS = {
    ("user_tower", "vectors", "embedding"): "users.weight",
    ("encoder", "words", "embedding"): "words.weight",
    ("encoder", "dense", "kernel"): "dense.weight",
    ("encoder", "dense", "bias"): "dense.bias",
}
"""Our parameters, and the example's; a kernel lies the other way round there."""


def test_the_example_trains_as_jax_does(tiny):
    """From the same parameters: each loss to 1e-4 over twenty steps."""
    sampling = {"sampler": "strat-ns", "loss": "sg", "batch_size": 64, "seed": 7}
    plain = {"encoder": "bow", "word_dropout": 0, "item_dropout": 0, "user_l2": 0}
    config = complete({"dataset": "tiny", "dimension": 6, "word_dimension": 6, **plain, **sampling})
    trainer, state = Trainer.create(config, tiny)
    model, content, expected = TwoTower(tiny, dimension=6), DeviceContent.of(tiny), []
    with torch.no_grad():
        for (tower, layer, name), theirs in PARAMETERS.items():
            value = torch.tensor(np.array(state.parameters[tower][layer][name][...]))
            model.get_parameter(theirs).copy_(value.T if name == "kernel" else value)
    for batch in islice(batches(tiny.graph, config, Streams(7)), 20):
        state, loss = trainer.step(state, batch, content)
        expected.append(float(loss))
    loader = BatchLoader(tiny, batches=8, **sampling)
    actual = list(islice(train(model, loader, config.learning_rate), 20))
    assert expected[-1] < 0.8 * expected[0]
    assert actual == pytest.approx(expected, rel=1e-4)


@pytest.mark.filterwarnings("ignore")  # PyTorch's, of its own coming changes
def test_losses_of_pytorch_are_right():
    for loss in (torch.nn.BCEWithLogitsLoss, torch.nn.CrossEntropyLoss, torch.nn.TripletMarginLoss):
        assert lint_loss(loss).errors == []
