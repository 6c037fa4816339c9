"""Interactions and user towers: one class and one entry, and everything that scores goes by it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from own_models import WEIGHTS
from trial import Trial

from ncfbench import catalog
from ncfbench.auditing.exact import ExactObjective
from ncfbench.config import Locations, RunConfig, complete, digest
from ncfbench.data.store import Dataset
from ncfbench.errors import UsageError
from ncfbench.models import interaction
from ncfbench.models.interaction import Interaction, make_interaction
from ncfbench.reporting.labels import unusual_settings
from ncfbench.runs.folder import RunRecord
from ncfbench.sweeps.cells import expand, label_cells
from ncfbench.training import run as training
from ncfbench.training.checkpoint import Checkpoints
from ncfbench.training.probe import Probe

SMALL: dict[str, Any] = {"dataset": "tiny", "batch_size": 64, "epochs": 2, "user_l2": 0.01}
SMALL |= {"dimension": 4, "word_dimension": 4, "encoder": "bow"}
DEEP = {"interaction": "mlp", "interaction_layers": 3, "interaction_units": 5}


def network(p: Any, u: np.ndarray, v: np.ndarray) -> float:
    """Return the network's score of the two vectors, concatenated, layer by layer."""
    kernel = np.concatenate([p["users"]["kernel"], p["items"]["kernel"]])
    hidden = np.maximum(np.concatenate([u, v]) @ kernel + p["users"]["bias"], 0)
    for layer in p.get("hidden", {}).values():
        hidden = np.maximum(hidden @ layer["kernel"] + layer["bias"], 0)
    return float(hidden @ p["output"]["kernel"][:, 0] + p["output"]["bias"][0])


def cosine(u: np.ndarray, v: np.ndarray) -> float:
    return math.fsum(u * v) / math.sqrt(math.fsum(u * u) * math.fsum(v * v))


PLAIN: dict[str, tuple[dict[str, Any], Any]] = {
    "dot": ({}, lambda p, u, v: math.fsum(a * b for a, b in zip(u, v, strict=True))),
    "own_models:Distance": (
        {"steepness": 2.0},
        lambda p, u, v: -p["factor"] * math.fsum((a - b) ** 2 for a, b in zip(u, v, strict=True)),
    ),
    "own_models:Weighted": (
        {},
        lambda p, u, v: math.fsum(w * a * b for w, a, b in zip(WEIGHTS, u, v, strict=True)),
    ),
    "cosine": ({"temperature": 0.5}, lambda p, u, v: 2 * cosine(u, v)),
    "learnt": (
        {"interaction": "cosine", "learn_temperature": True},
        lambda p, u, v: cosine(u, v) / (0.01 + math.exp(p["above_least"])),
    ),
    "gmf": ({}, lambda p, u, v: math.fsum(p["weights"] * u * v) + p["bias"]),
    "mlp": ({}, network),
    "deep": (DEEP, network),
}


def with_noise(score: Interaction) -> tuple[Interaction, Any]:
    """Return an interaction with other parameters, and these as float64."""
    graph, variables = nnx.split(score)
    rng = np.random.default_rng(3)
    noisy = jax.tree.map(
        lambda leaf: leaf + rng.normal(size=leaf.shape).astype(np.float32), nnx.as_pure(variables)
    )
    plain = jax.tree.map(lambda leaf: np.asarray(leaf, float), nnx.to_pure_dict(noisy))
    return nnx.merge(graph, noisy), plain


@pytest.mark.long_cases("mlp")
@pytest.mark.parametrize("name", PLAIN)
def test_the_three_layouts_are_one_function(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Identifiable vectors: each score belongs to the user and item that it is labelled with.

    In blocks of two users too, the last one partly padding, with the gradients of the whole.
    """
    settings, function = PLAIN[name]
    chosen = {} if "interaction" in settings else {"interaction": name}
    score, parameters = with_noise(make_interaction(complete(SMALL | chosen | settings)))
    rng = np.random.default_rng(0)
    users, items = rng.normal(size=(3, 4)), rng.normal(size=(5, 4))
    expected = np.array([[function(parameters, u, v) for v in items] for u in users])
    f, g = users.astype(np.float32), items.astype(np.float32)
    order = np.array([[4, 0], [2, 2], [1, 3]])
    rows, columns = np.array([[0, 1], [2, 2]]), np.array([[4, 0], [1, 1]])

    @jax.jit
    def layouts(score: Interaction) -> list[jax.Array]:
        made = score.lists(f, g[order]), score.indexed(f, g, rows, columns), score.pairs(f, g[:3])
        return list(made)

    wanted = np.take_along_axis(expected, order, axis=1), expected[rows, columns]
    for found, scores in zip(layouts(score), (*wanted, expected.diagonal()), strict=True):
        np.testing.assert_allclose(found, scores, rtol=1e-5, atol=1e-6)

    def total(score: Interaction, f: jax.Array, g: jax.Array) -> tuple[jax.Array, jax.Array]:
        matrix = score.matrix(f, g)
        return jnp.sum(jnp.sin(matrix)), matrix

    gradients = []
    for numbers in (interaction.BLOCK_NUMBERS, 2 * 5 * 5):
        monkeypatch.setattr(interaction, "BLOCK_NUMBERS", numbers)
        call = jax.jit(lambda *given: jax.grad(total, argnums=(0, 1, 2), has_aux=True)(*given))
        gradient, matrix = call(score, f, g)
        np.testing.assert_allclose(matrix, expected, rtol=1e-5, atol=1e-6)
        gradients.append(jax.tree.leaves(gradient))
    for one, other in zip(*gradients, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


class Distances(Trial):
    """A finished run that scores by distance, and all of its scores in plain NumPy."""

    def __init__(self, dataset: Dataset, record: RunRecord) -> None:
        super().__init__(dataset, record.config)
        self.record = record
        found = Checkpoints(record.folder / "checkpoints").restore(self.trainer.shapes)
        assert found is not None
        self.parameters = found[0].parameters
        f, self.raw = (np.asarray(array, float) for array in self.embedder.users(self.parameters))
        everything = np.arange(dataset.n_items, dtype=np.int32)
        g = np.asarray(self.embedder.items(self.parameters, everything), float)
        self.factor = float(self.parameters["interaction"]["factor"])
        self.squares = np.square(f[:, None, :] - g[None, :, :]).sum(axis=2)
        self.scores = -self.factor * self.squares


@pytest.fixture(scope="module")
def trained(
    tiny: Dataset, data_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Distances]:
    patch = pytest.MonkeyPatch()
    distance = catalog.find_interaction("own_models:Distance")
    patch.setitem(catalog.INTERACTIONS, "distance", distance)
    config = complete(SMALL | {"sampler": "ns", "interaction": "distance"})
    places = Locations(data_dir, tmp_path_factory.mktemp("runs"))
    record = training.run(config, places)
    yield Distances(tiny, record)
    patch.undo()


def objective(one: Distances, factor: float) -> float:
    """L of skip-gram, link by link and item by item, with the mask and unigram noise."""
    graph, config, scores = one.dataset.graph, one.config, -factor * one.squares
    links = list(zip(graph.link_user.tolist(), graph.link_item.tolist(), strict=True))
    noise = graph.item_degrees / graph.n_links
    allowed = np.ones(scores.shape)
    allowed[graph.link_user, graph.link_item] = 0
    negative = np.logaddexp(0, scores) * allowed @ noise
    return math.fsum(
        math.log1p(math.exp(-scores[u, v]))
        + config.lambda_ * negative[u]
        + config.user_l2 * float(one.raw[u] @ one.raw[u])
        for u, v in links
    ) / len(links)


def test_probe_and_exact_objective_use_it(trained: Distances) -> None:
    """With the trained factor; and the exact gradient by it, against a difference quotient."""
    expected = objective(trained, trained.factor)
    assert abs(trained.factor - 1) > 0.01, "trained"
    probe = Probe(trained.dataset.graph, trained.config, trained.embedder)
    exact = ExactObjective(trained.dataset.graph, trained.config, trained.embedder)
    assert probe(trained.parameters) == pytest.approx(expected, rel=1e-5)
    found, step = exact(trained.parameters), 1e-4
    assert found.value == pytest.approx(expected, rel=1e-5)
    around = [objective(trained, trained.factor + sign * step) for sign in (1, -1)]
    (gradient,) = found.gradient.interaction
    assert gradient == pytest.approx((around[0] - around[1]) / (2 * step), rel=1e-3)
    curve = [row["probe_loss"] for row in trained.record.curve]
    assert curve[-1] == pytest.approx(expected, rel=1e-5)
    assert curve[-1] < 0.9 * curve[0], "trained"


def test_recall_uses_it(trained: Distances) -> None:
    dataset, items = trained.dataset, trained.dataset.items_of("test")
    held_out: dict[int, set[int]] = {}
    for user, item in zip(*(side.tolist() for side in dataset.links("test")), strict=True):
        held_out.setdefault(user, set()).add(item)
    ranking = {user: items[np.argsort(-trained.scores[user, items])] for user in held_out}
    shares = [
        len(own & set(ranking[user][:10].tolist())) / len(own) for user, own in held_out.items()
    ]
    found = trained.record.curve[-1]["test_recall_at_10"]
    assert found == pytest.approx(float(np.mean(shares)), abs=1e-6)


@pytest.mark.parametrize("sampler", ["ns", "neg"])
def test_the_audit_uses_it(trained: Distances, sampler: str) -> None:
    """The audit's mean gradient, by slots and by the table, is that of the step that trains."""
    trained.check_audit(complete(SMALL | {"sampler": sampler, "interaction": "distance"}))


def test_a_user_tower_has_its_own_vectors(tiny: Dataset) -> None:
    trial = Trial(tiny, SMALL | {"encoder": "mf", "user_tower": "own_models:Gated"})
    tower = trial.parameters["user_tower"]
    vectors = np.asarray(tower["vectors"]["embedding"]) * np.asarray(tower["gate"])
    found = trial.embedder.users(trial.parameters)
    np.testing.assert_allclose(found.raw, vectors, rtol=1e-6)


def test_names_count_unless_they_are_the_defaults() -> None:
    plain = complete(SMALL)
    others: list[RunConfig] = [
        complete(SMALL | more)
        for more in ({"interaction": "own_models:Distance"}, {"user_tower": "own_models:Gated"})
    ]
    assert len({digest(config) for config in (plain, *others)}) == 3
    unusual = [dict(unusual_settings(config)).keys() for config in (plain, *others)]
    assert [names - unusual[0] for names in unusual[1:]] == [{"interaction"}, {"user_tower"}]
    cells, _ = expand({"sampler": ["ns"], "interaction": ["dot", "mlp"], "seed": [0]})
    assert len(set(label_cells(cells).values())) == 2
    for wrong, text in (
        ({"interaction": "dto"}, "did you mean 'dot'"),
        ({"interaction": "own_models:Gated"}, "an interaction is a subclass"),
        ({"user_tower": "tabel"}, "did you mean 'table'"),
        ({"user_tower": "own_models:WEIGHTS"}, "a user tower is a flax.nnx.Module"),
    ):
        with pytest.raises(UsageError, match=text):
            complete(wrong)
