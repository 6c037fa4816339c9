"""Evaluation against brute force, scores in blocks, ranks of held-out items and links; and the
probe beside the exact objective of audits.
"""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.cli import check, invoke
from support.training import SMALL, Trial

from ncfbench.auditing.exact import ExactObjective
from ncfbench.config import complete
from ncfbench.data.options import HOLD_OUTS
from ncfbench.floors.task import HeldOut, Task
from ncfbench.models import blocks
from ncfbench.models.towers import UserVectors
from ncfbench.runs.quality import chance
from ncfbench.runs.ranks import rank_links
from ncfbench.storage import schemas, tables
from ncfbench.storage.schemas import CUTOFFS
from ncfbench.training.evaluation import scores_of
from ncfbench.training.inference import Embedder
from ncfbench.training.probe import Probe, ProbeLinks


@pytest.mark.parametrize("size", [1, 3, 20])
def test_equal_items_tie_to_the_last_bit(size):
    """Vectors that do not multiply exactly, each four times, far apart."""
    rng = np.random.default_rng(0)
    f = rng.normal(size=(20, 50)).astype(np.float32)
    g = np.tile(rng.normal(size=(125, 50)).astype(np.float32), (4, 1))
    users, items = np.repeat(np.arange(20), 25), rng.integers(0, 500, 500)
    ranks = rank_links(scores_of(f, g, size), users, items, size)
    scores = f.astype(np.float64) @ g[:125].T.astype(np.float64)
    best = np.argsort(np.argsort(-scores, axis=1), axis=1)
    assert ranks.above.tolist() == (4 * best[users, items % 125]).tolist()
    assert (ranks.equal == 3).all()


def test_items_by_length_have_the_same_vectors(tiny, monkeypatch):
    """In any order, some twice; in blocks of at most 30 word slots, with little padding."""
    monkeypatch.setattr(blocks, "SORTED_WORDS", 30)
    trial = Trial(tiny, SMALL)
    ids = np.array([7, 300, 7, 41, 200, 3, 11, 12, 13, 14], np.int32)
    expected = trial.embedder.items(trial.parameters, ids)
    embedder = Embedder(trial.trainer.towers, trial.content, by_length=True)
    seen, shapes, compute = [], [], embedder._items
    embedder.watch = lambda done, total: seen.append((done, total))

    def watched(parameters, block, content):
        shapes.append((len(block), content.tokens.shape[1]))
        return compute(parameters, block, content)

    monkeypatch.setattr(embedder, "_items", watched)
    vectors = embedder.items(trial.parameters, ids)
    np.testing.assert_allclose(vectors, expected, rtol=1e-5, atol=1e-7)
    assert seen[-1] == (10, 10)
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    longest, lengths = int(tiny.tokens_IxL.shape[1]), [length for _, length in shapes]
    assert all(items * length <= max(30, longest) for items, length in shapes)
    assert {*lengths} <= {-(-quarters * longest // 4) for quarters in (1, 2, 3, 4)}
    assert lengths == sorted(lengths, reverse=True)
    shapes.clear()
    seconds = embedder.forecast(trial.parameters, ids)
    assert len(shapes) == 2, "a block is compiled, and timed"
    assert embedder.forecast(trial.parameters, np.tile(ids, 2)) > seconds > 0
    assert len(shapes) == 2


@pytest.mark.parametrize("split", ["validation", "test"])
@pytest.mark.parametrize(
    ("kind", "changed"),
    [("links", {"encoder": "mf"}), ("links", {"coupling": "regularised"}), ("items", {})],
)
def test_the_evaluator_ranks_by_brute_force(linked, tiny, monkeypatch, split, kind, changed):
    """New items by g, known ones by the vector that training scores, in padded blocks."""
    monkeypatch.setattr("ncfbench.training.evaluation.BLOCK_USERS", 7)
    dataset = linked if kind == "links" else tiny
    trial = Trial(dataset, {"dimension": 6, "encoder": "bow", **changed})
    embedder, parameters = trial.evaluators.embedder, trial.parameters
    embedder.block = 32
    graph, ids = dataset.graph, np.arange(dataset.n_items, dtype=np.int32)
    is_new = graph.item_degrees == 0
    known, new = embedder.items(parameters, ids), embedder.cold_items(parameters, ids)
    g = np.where(is_new[:, None], new, known).astype(np.float64)
    scores = np.asarray(embedder.users(parameters).scored, np.float64) @ g.T
    left_out = np.zeros(scores.shape, bool)
    if kind == "links":
        assert 0 < is_new.sum() < dataset.n_items / 2
        left_out[graph.link_user, graph.link_item] = True
    else:
        left_out[:, ~np.isin(ids, dataset.items_of(split))] = True
    scores[left_out] = -np.inf
    users, items = dataset.links(split)
    ahead = scores[users] - scores[users, items][:, None]
    expected = (ahead > 0).sum(axis=1)
    is_clear = (np.abs(ahead) > 1e-7).sum(axis=1) == dataset.n_items - 1  # all but its own
    assert is_clear.mean() > 0.9
    np.testing.assert_array_equal(trial.ranks(split).above[is_clear], expected[is_clear])
    figures = trial.evaluators.evaluate(parameters)[split].figures
    for m in CUTOFFS:
        recalls = [np.mean(expected[users == user] < m) for user in np.unique(users)]
        assert figures[f"recall_at_{m}"] == pytest.approx(np.mean(recalls), abs=2e-3)
    left = (~left_out).sum(axis=1)[np.unique(users)]
    by_chance = np.mean(np.minimum(50 / left, 1))
    assert figures["recall_at_50_chance"] == pytest.approx(by_chance)
    assert chance(dataset, split) == figures["recall_at_50_chance"], "that of a race"
    note = f"{100 * is_new[items].mean():.1f} % of the {split} links are to new items"
    notes = "\n".join(trial.evaluators.notes())
    assert (note in notes) == (trial.config.encoder == "mf")
    assert (figures["recall_at_50_known_items"] is not None) == (kind == "links")


def test_floors_and_models_have_one_figure_of_one_score(linked, tiny, monkeypatch):
    """Users' and items' vectors of whole numbers, with many ties and users of no vector."""
    rng = np.random.default_rng(2)
    f, g = (rng.integers(-1, 2, (n, 3)).astype("f") for n in (linked.n_users, linked.n_items))
    f[:5] = 0
    for dataset in (linked, tiny):
        evaluators = Trial(dataset, {"dimension": 3, "encoder": "bow"}).evaluators
        monkeypatch.setattr(evaluators.embedder, "users", lambda _: UserVectors(f, f))
        monkeypatch.setattr(evaluators.embedder, "candidates", lambda _, items, is_new: g[items])
        candidates = dataset.candidates("test")
        held_out = HeldOut(Task.of(dataset), *dataset.links("test"), candidates)
        floor = held_out.evaluate((f @ g[candidates].T).__getitem__)
        model = evaluators.evaluate({})["test"]
        assert model.figures == floor.figures
        np.testing.assert_array_equal(model.user_recalls, floor.user_recalls)
        np.testing.assert_array_equal(model.item_shares, floor.item_shares)


def test_a_run_on_held_out_links_is_reported(linked, tmp_path):
    """No word says that items are held out."""
    folders = ("--data-dir", linked.folder.parents[1], "--runs-dir", tmp_path)
    sizes = [f"--set={name}={value}" for name, value in {**SMALL, "epochs": 1}.items()]
    trained = invoke("run", *sizes, "--encoder=mf", "--sampler=ns", *folders)
    check(trained, 0)
    (path,) = tmp_path.rglob("summary.parquet")
    summary = tables.read_rows(path, schemas.SUMMARY)[0]
    assert 0 < summary["test_recall_at_50_known_items"] < 1
    assert 0 < summary["test_recall_at_50_new_items"] < 1
    reported = invoke("report", "--full", *folders)
    told_apart = "nown items: recall@50 of these alone.", "known items count alike"
    check(reported, 0, "Recall@50 on test links", *told_apart)
    assert not re.search("(test|validation|held-out|cold) items", trained.output + reported.output)
    check(invoke("describe", "tiny", *folders[:2]), 0, HOLD_OUTS["links"])


# The probe

PROBED = {"dimension": 5, "word_dimension": 6, "encoder": "bow"}


@pytest.mark.parametrize(("noise", "mask"), [("unigram", True), ("0.5", False)])
@pytest.mark.parametrize("loss", ["mse", "hinge", "softmax"])
def test_exact_probe_is_the_objective(tiny, loss, noise, mask):
    """Audits compare theirs with L written out."""
    settings = {"loss": loss, "noise": noise, "mask": mask, "user_l2": 0.01}
    trial = Trial(tiny, PROBED | settings)
    probe = Probe(tiny.graph, trial.config, trial.embedder)
    assert len(probe.links.user) == tiny.graph.n_links
    exact = ExactObjective(tiny.graph, trial.config, trial.embedder)(trial.parameters)
    assert probe(trial.parameters) == pytest.approx(exact.value, rel=1e-5)


@pytest.mark.parametrize("loss", ["sg", "softmax"])
def test_sampled_probe_is_unbiased(tiny, monkeypatch, loss):
    """The mean over twelve draws is within four standard errors of the exact sum."""
    trial = Trial(tiny, PROBED | {"loss": loss, "probe_links": 300, "probe_negatives": 20})
    config, embedder, parameters = trial.config, trial.embedder, trial.parameters
    # Larger vectors, so that the links' losses differ and a wrong weight would show.
    parameters["user_tower"] = jax.tree.map(lambda leaf: 30 * leaf, parameters["user_tower"])
    exactly = Probe(tiny.graph, config, embedder)(parameters)
    monkeypatch.setattr("ncfbench.training.probe.EXACT_TERMS", 0)
    values = []
    for seed in range(12):
        monkeypatch.setattr("ncfbench.training.probe.PROBE_SEED", seed)
        sampled = Probe(tiny.graph, config, embedder)
        columns = 20 if loss == "sg" else len(sampled.links.nodes)
        assert sampled.links.weight.shape == (300, columns)
        values.append(sampled(parameters))
    error = np.std(values, ddof=1) / len(values) ** 0.5
    assert abs(np.mean(values) - exactly) < 4 * error
    assert 0 < error < 0.05 * exactly


def test_the_probe_ignores_sampler_and_seed(tiny, monkeypatch):
    monkeypatch.setattr("ncfbench.training.probe.EXACT_TERMS", 0)
    one = ProbeLinks.choose(tiny.graph, complete({"sampler": "iid", "seed": 0}))
    two = ProbeLinks.choose(tiny.graph, complete({"sampler": "strat-ns", "seed": 9}))
    for left, right in zip(one, two, strict=True):
        np.testing.assert_array_equal(left, right)
    assert jnp.isfinite(one.weight).all()
