"""The audit of frameworks: exact objectives and losses by their definitions, planted faults."""

from __future__ import annotations

import json
import math
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from invoked import check, invoke

from ncfbench.auditing.frameworks import draws
from ncfbench.auditing.frameworks.audit import FrameworksAudit, undetected
from ncfbench.auditing.frameworks.claims import CLAIMS, Vectors
from ncfbench.auditing.frameworks.estimators import BY_NAME, ESTIMATORS
from ncfbench.auditing.frameworks.losses import CHUNKS
from ncfbench.auditing.frameworks.tables import finding, frameworks_tables
from ncfbench.data.graph import BipartiteGraph
from ncfbench.data.store import load
from ncfbench.errors import UsageError
from ncfbench.reporting.render import csv, latex, markdown
from ncfbench.reporting.render import json as json_format
from ncfbench.reporting.render.terminal import TableView, make_console
from ncfbench.storage import tables
from ncfbench.storage.schemas import FRAMEWORKS

SHARES = [0.5, 0.125, 0.25, 0.125]
"""Shares of the links of ``few`` that its four items have, exact in float32."""


@pytest.fixture(scope="module")
def few() -> BipartiteGraph:
    """Four users, four items, eight links: item 0 has four, item 2 two, items 1 and 3 one."""
    user = [0, 0, 1, 1, 1, 2, 2, 3]
    item = [0, 1, 0, 2, 3, 0, 2, 0]
    return BipartiteGraph.from_links(user, item, 4, 4)


@pytest.fixture(scope="module")
def skewed() -> BipartiteGraph:
    """A graph in which popularity matters, small enough for a test."""
    rng = np.random.default_rng(5)
    keys = np.log(1 / (1 + np.arange(40)))[None, :] + rng.gumbel(size=(60, 40))
    user, item = np.divmod(np.sort(np.argsort(-keys.reshape(-1))[:500]), 40)
    return BipartiteGraph.from_links(user, item, 60, 40)


@pytest.fixture
def vectors() -> Vectors:
    """Vectors of four users and four items, some way from zero."""
    users, items = (
        rows / np.linalg.norm(rows, axis=1, keepdims=True)
        for rows in np.random.default_rng(1).normal(size=(2, 4, 3)).astype(np.float32)
    )
    ones, zeros = np.ones((4, 1), np.float32), np.zeros((4, 1), np.float32)
    return Vectors(np.hstack([users, ones]), np.hstack([items, zeros]))


def dense(claim: str, links: BipartiteGraph, users: jax.Array, items: jax.Array) -> jax.Array:
    """An objective by its definition, link by link."""
    scores = users @ items.T
    pairs = list(zip(links.link_user.tolist(), links.link_item.tolist(), strict=True))
    degree = [4, 1, 2, 1]
    if claim == "bce":
        free = [(u, v) for u in range(4) for v in range(4) if (u, v) not in pairs]
        positive = sum(jnp.log1p(jnp.exp(-scores[u, v])) for u, v in pairs) / len(pairs)
        negative = sum(jnp.log1p(jnp.exp(scores[u, v])) for u, v in free) / len(free)
        return (positive + negative) / 2
    total = jnp.zeros(())
    for u, v in pairs:
        if claim == "softmax":
            total += jnp.log(sum(jnp.exp(20 * (scores[u, w] - scores[u, v])) for w in range(4)))
        elif claim == "paper":
            total += sum(
                SHARES[w] * jnp.log1p(jnp.exp(10 * (scores[u, w] - scores[u, v]))) for w in range(4)
            )
        else:
            free_items = [w for w in range(4) if (u, w) not in pairs]
            weight = [degree[w] if claim == "bpr-popular" else 1 for w in free_items]
            total += sum(
                n / sum(weight) * jnp.log1p(jnp.exp(scores[u, w] - scores[u, v]))
                for n, w in zip(weight, free_items, strict=True)
            )
    return total / len(pairs)


@pytest.mark.parametrize("claim", CLAIMS)
def test_exact_objective_is_its_definition(
    claim: str, few: BipartiteGraph, vectors: Vectors
) -> None:
    found = CLAIMS[claim].exact(few, vectors)
    value, (by_user, by_item) = jax.jit(
        jax.value_and_grad(partial(dense, claim, few), argnums=(0, 1))
    )(*vectors)
    assert found.value == pytest.approx(float(value), rel=1e-5)
    np.testing.assert_allclose(found.users, by_user, atol=1e-6)
    np.testing.assert_allclose(found.items, by_item, atol=1e-6)


USER, ITEM, OTHER = [0, 1, 2, 3], [0, 2, 0, 0], [2, 1, 3, 1]
"""A batch with item 0 thrice, and an other item for each link."""


def one_batch(other_user: list[int], other_item: list[int]) -> draws.Drawn:
    share = np.float32(SHARES)
    return draws.Drawn(
        np.int32(USER),
        np.int32(ITEM),
        np.ones(4, np.float32),
        share[ITEM],
        np.int32(other_user),
        np.int32(other_item),
        share[other_item],
    )


def softmax(scores: list[float], weights: list[float], own_weight: float = 1.0) -> float:
    """The loss of a positive link of score 0; a weight is a shift of a score by its logarithm."""
    rest = sum(w * math.exp(score) for w, score in zip(weights, scores, strict=True))
    return math.log(own_weight + rest) - math.log(own_weight)


def by_hand(s: np.ndarray) -> dict[str, float]:
    """The mean losses of the batch from the table of scores, in plain arithmetic."""
    losses: Counter[str] = Counter()
    for row, (u, v, other) in enumerate(zip(USER, ITEM, OTHER, strict=True)):
        p, own = SHARES[v], s[u, v]
        scores = [20 * (s[u, i] - own) for i in ITEM]
        hits = [float(column != row) for column in range(4)]
        others = [float(ITEM[column] != v) for column in range(4)]
        inverse = [w / SHARES[i] for w, i in zip(others, ITEM, strict=True)]
        inverse_hits = [w / SHARES[i] for w, i in zip(hits, ITEM, strict=True)]
        in_memory = sum(math.exp(20 * (s[u, i] - own)) / SHARES[i] for i in OTHER + ITEM)
        losses += Counter(
            {
                "tfrs": softmax(scores, hits),
                "st-mnrl": softmax(scores, hits),
                "gradcache": softmax(scores, hits),
                "tfrs-logq": softmax(scores, inverse_hits, 1 / p),
                "tfrs-hits": softmax(scores, others),
                "merlin": softmax(scores, others),
                # The temperature 1 / 20 divides log p too: 1 / p to the power of 20.
                "merlin-logq": softmax(scores, [w**20 for w in inverse], p**-20),
                "merlin-logq-t": softmax(scores, inverse, 1 / p),
                "reference": softmax(scores, [w / 3 for w in inverse]),
                "fault-sign": softmax(scores, [3 / w if w else 0.0 for w in inverse]),
                "xbm": math.log(p * in_memory),
                "recbole": math.log1p(math.exp(s[u, other] - own)),
                "pyg": (math.log1p(math.exp(-own)) + math.log1p(math.exp(s[u, other]))) / 2,
                # Items 0 and 2 are in the batch, each once.
                "paper": sum(math.log1p(math.exp(10 * (s[u, i] - own))) for i in (0, 2)) / 2,
            }
        )
    return {name: total / 4 for name, total in losses.items()}


def test_losses_are_those_of_the_documentation(vectors: Vectors) -> None:
    scores = vectors.users[:, :-1].astype(np.float64) @ vectors.items[:, :-1].T
    losses = by_hand(scores)
    assert len(losses) == 14
    with_others = {"recbole", "pyg", "xbm"}
    batches = {
        name: one_batch(*((USER, OTHER) if name in with_others else ([], []))) for name in losses
    }

    @jax.jit
    def all_losses(users: jax.Array, items: jax.Array) -> dict[str, jax.Array]:
        return {name: BY_NAME[name].loss(users, items, batches[name]) for name in losses}

    for name, found in all_losses(*vectors).items():
        assert float(found) == pytest.approx(losses[name], rel=1e-5), name


def gradients(vectors: Vectors, batch: draws.Drawn, *names: str) -> list[tuple[Any, Any]]:
    """Gradients by users and items of several losses, in one program."""

    @jax.jit
    def found(users: jax.Array, items: jax.Array) -> list[Any]:
        return [jax.grad(BY_NAME[name].loss, argnums=(0, 1))(users, items, batch) for name in names]

    return jax.device_get(found(*vectors))


def test_cache_changes_no_gradient(vectors: Vectors) -> None:
    """The cached gradient is the plain one; with a fault only the last chunk's is left."""
    names = ("gradcache", "tfrs", "fault-dropped", "reference")
    both, plain_both, (users, _), (whole, _) = gradients(vectors, one_batch([], []), *names)
    for cached, plain in zip(both, plain_both, strict=True):
        np.testing.assert_allclose(cached, plain, atol=1e-6)
    last = USER[-4 // CHUNKS :]
    np.testing.assert_allclose(users[np.int32(last)], whole[np.int32(last)], atol=1e-6)
    assert not np.delete(users, last, axis=0).any()


def test_memory_passes_no_gradient_to_its_items(vectors: Vectors) -> None:
    """Items 1 and 3 are in the queue only."""
    ((_, items),) = gradients(vectors, one_batch(USER, [1, 3, 1, 3]), "xbm")
    assert not items[[1, 3]].any()
    assert items[[0, 2]].any()


def test_batches_without_duplicates_are_an_epoch(skewed: BipartiteGraph) -> None:
    order = np.random.default_rng(0).permutation(500)
    batches = draws.without_duplicates(order, skewed, 16)
    assert sorted(np.concatenate(batches)) == list(range(500))
    for batch in batches:
        for ids in (skewed.link_user[batch], skewed.link_item[batch]):
            assert len(set(ids.tolist())) == len(batch) <= 16
    # Every batch can hold one link of an item.
    assert len(batches) >= skewed.item_degrees.max()


def test_negatives_are_no_links_where_checked(skewed: BipartiteGraph) -> None:
    rng = np.random.default_rng(0)
    for name in ("recbole", "recbole-popular", "pyg"):
        drawn = BY_NAME[name].draw(skewed, rng, (8, 32))
        assert not skewed.linked(drawn.other_user, drawn.other_item).any(), name
    pairs = {*zip(drawn.other_user[0].tolist(), drawn.other_item[0].tolist(), strict=True)}
    assert len(pairs) == 32
    unchecked = BY_NAME["fault-collisions"].draw(skewed, rng, (8, 32))
    assert skewed.linked(unchecked.other_user, unchecked.other_item).any()


@pytest.fixture(scope="module")
def small(skewed: BipartiteGraph) -> FrameworksAudit:
    return FrameworksAudit(skewed, 4, batches=192, batch_size=16)


@pytest.fixture(scope="module")
def warm(small: FrameworksAudit) -> dict[str, Vectors]:
    return {claim: small.vectors(claim) for claim in ("softmax", "bpr")}


@pytest.mark.parametrize(
    "name", ["fault-sign", "fault-missing", "fault-dropped", "fault-collisions"]
)
def test_planted_fault_is_found(
    name: str, small: FrameworksAudit, warm: dict[str, Vectors]
) -> None:
    row = small.row(BY_NAME[name], warm[BY_NAME[name].claim])
    assert row["verdict"] == "biased"
    assert undetected([row]) == []
    assert row["planted_fault"] in finding(row)
    (missed,) = undetected([row | {"verdict": "too few batches"}])
    assert name in missed


def test_limit_is_that_of_the_loss_by_hand(few: BipartiteGraph, vectors: Vectors) -> None:
    """Without the positive item in the sum; only its distance counts, so other claims have none."""

    def others(users: jax.Array, items: jax.Array) -> jax.Array:
        scores = 20 * users @ items.T
        pairs = zip(few.link_user.tolist(), few.link_item.tolist(), strict=True)
        return jnp.mean(
            jnp.stack(
                [
                    jnp.log(sum(jnp.exp(scores[u, w] - scores[u, v]) for w in range(4) if w != v))
                    for u, v in pairs
                ]
            )
        )

    def flat(parts: Any) -> np.ndarray:
        return np.concatenate([np.asarray(part)[:, :-1].reshape(-1) for part in parts])

    exact = CLAIMS["softmax"].exact(few, vectors)
    right = flat((exact.users, exact.items))
    wrong = flat(jax.jit(jax.grad(others, argnums=(0, 1)))(*vectors))
    expected = np.linalg.norm(wrong - right) / np.linalg.norm(right)
    found = {
        name: FrameworksAudit(few, 1).limit_bias(BY_NAME[name], vectors, exact)
        for name in ("merlin-logq-t", "tfrs-logq", "fault-missing")
    }
    assert found["merlin-logq-t"] == pytest.approx(expected, rel=1e-4)
    assert found["tfrs-logq"] == 0
    assert found["fault-missing"] is None


def test_popular_items_show_the_direction(small: FrameworksAudit, warm: dict[str, Vectors]) -> None:
    """No correction pushes popular items down; negatives that are all alike do not."""
    rows = {
        name: small.row(BY_NAME[name], warm[claim])
        for name, claim in (("tfrs", "softmax"), ("recbole", "bpr"))
    }
    assert rows["tfrs"]["verdict"] == "biased"
    assert rows["tfrs"]["popular_push_low"] > 0
    assert rows["recbole"]["verdict"] != "biased"
    assert rows["recbole"]["popular_push_low"] <= 0 <= rows["recbole"]["popular_push_high"]
    assert rows["recbole"]["linked_share"] == 0 < rows["tfrs"]["linked_share"]
    sizes = {"dataset": None, "users": 60, "items": 40}
    (table,) = frameworks_tables([row | sizes for row in rows.values()])
    console = make_console()
    console.width = 100
    with console.capture() as captured:
        console.print(TableView(table), crop=False)
    lines = captured.get().splitlines()
    assert max(map(len, lines)) <= 100
    assert sum(line.startswith("estimator") for line in lines) == 1
    for render in (csv.render, latex.render, markdown.render):
        assert "RecBole, uniform" in render([table])
    assert json_format.render([table])[0]["rows"]


def test_every_estimator_is_described() -> None:
    """In the program, and on its page."""
    page = (Path(__file__).parents[2] / "docs/frameworks.md").read_text("utf-8")
    assert len(BY_NAME) == len(ESTIMATORS)
    for estimator in ESTIMATORS:
        assert estimator.claim in CLAIMS
        assert estimator.source.startswith("https://")
        assert estimator.remedy.endswith(".")
        assert len(estimator.title) <= 20
        shown = [estimator.title, estimator.source, estimator.remedy]
        for part in [estimator.fault] if estimator.fault else shown:
            assert part in page, estimator.name


def test_graph_without_free_pairs_is_refused(few: BipartiteGraph) -> None:
    """Drawing would not end: for 16 pairs less 8 links, and for a user who has every item."""
    rng = np.random.default_rng(0)
    assert len(draws.unlinked_pairs(few, rng, 8)[0]) == 8
    with pytest.raises(UsageError, match="needs 9 different pairs .* there are 8"):
        draws.unlinked_pairs(few, rng, 9)
    every = BipartiteGraph.from_links([0, 0, 1], [0, 1, 0], 2, 2)
    with pytest.raises(UsageError, match="1 of 2 users have links with all 2 items"):
        draws.unlinked_items(every, rng, np.zeros(4, np.int32))
    with pytest.raises(UsageError, match="1 of 2 users have links with all 2 items"):
        CLAIMS["bpr"].warm_vectors(every, 0)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("--framework tfrs-logp", "did you mean 'tfrs-logq'?"),
        ("--framework ,", "No frameworks are named"),
        ("--frameworks --encoder cnn", "--encoder has no effect"),
        ("--frameworks --filters 3", "--filters has no effect"),
        ("--frameworks --loss sg", "--loss has no effect"),
        ("--frameworks --batches 9", "at least 48"),
        ("--frameworks --batch-size 6", "a multiple of 4 is needed"),
        ("--framework st-mnrl --seed -1", "seed = -1"),
    ],
)
def test_command_refuses_what_it_cannot_audit(words: str, text: str) -> None:
    check(invoke("audit", *words.split()), 2, text)


def test_command_audits_a_data_set(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its figures are printed, kept in a table, and shown by a report."""
    words = ("audit", "--framework", "recbole", "--dataset", "tiny", "--data-dir", data_dir)
    words = (*words, "--batches", "48", "--batch-size", "16", "--json", "--quiet")
    words = (*words, "--runs-dir", tmp_path / "runs")
    found = invoke(*words)
    assert found.exit_code == 0, found.output
    (row,) = json.loads(found.stdout)["frameworks"]
    assert (row["name"], row["batches"], row["batch_size"]) == ("recbole", 48, 16)
    assert row["bias_low"] <= row["bias"] <= row["bias_high"]
    assert row["linked_share"] == 0
    assert tables.read_rows(tmp_path / "runs/frameworks.parquet", FRAMEWORKS) == [row]
    assert (row["dataset"], row["links"]) == ("tiny", load(data_dir, "tiny").graph.n_links)
    shown = invoke("report", "--runs-dir", tmp_path / "runs", "--data-dir", data_dir)
    check(shown, 0, "Estimators of frameworks", "tiny, b=16, 48 batches", "RecBole, uniform")
    kept = invoke("report", "--runs-dir", tmp_path / "runs", "--data-dir", data_dir, "--json")
    assert json.loads(kept.stdout)["frameworks"] == [row]
    monkeypatch.setattr("ncfbench.auditing.frameworks.audit.undetected", lambda rows: ["a fault"])
    check(invoke(*words), 6, "missed planted faults", "a fault")
