"""Pretrained checkpoints, fine-tuned and frozen: the vectors of BERT's definition, the texts that
they read, and what is refused.
"""

import importlib.util
import json
import shutil
from dataclasses import replace
from itertools import chain
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import save_file
from support.cli import check, invoke
from support.tables import prepare
from support.tiny_bert import LAYERS, PIECES, POSITIONS, WIDTH, text_vector, write_checkpoint
from support.training import CHECKPOINT_DIGEST, traced_for
from tokenizers import BertWordPieceTokenizer

from ncfbench.config import Locations, complete
from ncfbench.data import store
from ncfbench.data.assets import checkpoint as kept
from ncfbench.data.assets import name_files
from ncfbench.data.assets.pieces import Pieces, tokenizer_digest
from ncfbench.data.text import Texts
from ncfbench.errors import DataError, UsageError
from ncfbench.models import blocks
from ncfbench.models.embedding import embed_texts
from ncfbench.models.encoders import bert, packing
from ncfbench.models.encoders.protocol import DataFacts, EncoderInput
from ncfbench.models.towers import DeviceContent
from ncfbench.rng import Streams
from ncfbench.runs.plan import RunPlan
from ncfbench.sampling import batches
from ncfbench.sweeps.grid import Sweep, with_named_files
from ncfbench.training import run as training
from ncfbench.training.step import Trainer

CONFIG, WEIGHTS, POOLING, MODULES = kept.CONFIG, kept.WEIGHTS, kept.POOLING, kept.MODULES
SMALL = {"dataset": "x", "encoder": "bert", "batch_size": 2, "dimension": 4, "sampler": "ns"}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a checkpoint."""
    folder = tmp_path_factory.mktemp("bert")
    write_checkpoint(folder / "model")
    return folder


@pytest.fixture(scope="module")
def pieces(home):
    """A data set of the pieces of the checkpoint."""
    return prepare(home, tokenizer=home / "model", max_length=POSITIONS)[0]


@pytest.fixture(scope="module")
def checkpoint(home, pieces):
    return kept.keep_checkpoint(home / "model", pieces, print)


LISTS = [[2, 5, 6, 7, 3], [], [2, 3], [2, 9, 9, 8, 7, 6, 5, 4, 3], [2, 12, 3]]


@pytest.mark.long
@pytest.mark.parametrize(("mode", "normalises"), [("mean", True), ("first", False)])
def test_vectors_by_definition(tmp_path, mode, normalises):
    """In plain NumPy, for texts padded, two at a time and packed; the gradients agree."""
    folder = kept.kept_path(tmp_path, CHECKPOINT_DIGEST)
    weights = write_checkpoint(folder, pooling=mode, normalises=normalises, prefix="bert.")
    values, gradients = [], []
    tokens = np.array([text + [0] * (11 - len(text)) for text in LISTS], np.int32)
    lengths = np.array([*map(len, LISTS)], np.int32)
    texts = EncoderInput(*jax.device_put((np.arange(len(LISTS)), tokens, tokens > 0, lengths)))
    two = 2 * 11 * LAYERS * WIDTH
    config = complete(SMALL | {"checkpoint": CHECKPOINT_DIGEST})
    facts = DataFacts(1, len(LISTS), len(PIECES) - 1, folder=tmp_path)
    module = bert.Bert(config, facts, rngs=nnx.Rngs(0))
    graph, parameters = nnx.split(module)
    for backend, most in (("cpu", bert.MOST_KEPT), ("gpu", two), ("cpu", two)):
        with pytest.MonkeyPatch.context() as patch, traced_for(backend):
            patch.setattr(bert, "SHAPE", packing.Shape(12, 24, 2))
            patch.setattr(bert, "MOST_KEPT", most)

            def total(parameters):
                value = nnx.merge(graph, parameters)(texts)
                return jnp.sum(jnp.sin(value)), value

            gradient, value = jax.jit(jax.grad(total, has_aux=True))(parameters)
        values.append(np.asarray(value))
        gradients.append([np.asarray(leaf) for leaf in jax.tree.leaves(gradient)])
    kernel, bias = np.asarray(module.dense.kernel[...]), np.asarray(module.dense.bias[...])
    for place, tokens in enumerate(LISTS):
        vector = text_vector(weights, tokens, mode, normalises) if tokens else np.zeros(8)
        for value in values:
            np.testing.assert_allclose(value[place], vector @ kernel + bias, rtol=2e-4, atol=2e-4)
    for one, *rest in zip(*gradients, strict=True):
        for other in rest:
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("pooling", "normalises"), [("mean", True), ("first", False)])
def test_frozen_vectors_by_definition(tmp_path, monkeypatch, pooling, normalises):
    """Two texts in a block, all of one length."""
    monkeypatch.setattr(blocks, "SORTED_WORDS", 12)
    monkeypatch.setattr(blocks, "LENGTHS", 1)
    weights = write_checkpoint(tmp_path, pooling=pooling, normalises=normalises)
    lengths = np.array([*map(len, LISTS)], np.int32)
    vectors, seconds = embed_texts(tmp_path, Texts(np.array([*chain(*LISTS)], np.int32), lengths))
    assert seconds > 0
    for vector, tokens in zip(vectors, LISTS, strict=True):
        expected = text_vector(weights, tokens, pooling, normalises) if tokens else np.zeros(WIDTH)
        np.testing.assert_allclose(vector, expected, atol=1e-5)


def test_pieces_are_those_of_the_tokenizer(pieces):
    """Lower case, split at unknown ends; each text has its first and last piece."""
    rows = enumerate(pieces.item_ids.to_pylist())
    words = {id_: [PIECES[token] for token in pieces.texts[row]] for row, id_ in rows}
    assert words["5"] == ["[CLS]", "blue", "fish", "war", "[SEP]"]
    assert words["30"][:3] == ["[CLS]", "dog", "##s"]
    assert pieces.n_words == len(PIECES) - 1


def test_both_files_of_a_tokenizer(tmp_path):
    """`tokenizer.json` is read first, without its limit and padding; the case is the model's."""
    write_checkpoint(tmp_path)
    text = "Red fishs cat"
    pieces = Pieces(tmp_path, 9)
    assert pieces(text) == ["red", "fish", "##s", "cat"]
    tokenizer = BertWordPieceTokenizer(str(tmp_path / "vocab.txt"), lowercase=True)
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=7)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    other = Pieces(tmp_path, 9)
    assert (other(text), other.ids) == (pieces(text), pieces.ids)
    digests = {tokenizer_digest(tmp_path)}
    (tmp_path / "tokenizer.json").unlink()
    for is_lower, first in ((True, "red"), (False, "[UNK]")):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": is_lower}))
        assert Pieces(tmp_path, 9)(text) == [first, "fish", "##s", "cat"]
        digests.add(tokenizer_digest(tmp_path))
    assert len(digests) == 3


def test_a_named_folder_is_its_checkpoint(home, checkpoint):
    sweep = Sweep("", "", {"dataset": ("x",), "checkpoint": (str(home / "model"),)})
    assert with_named_files(sweep, home / "data", print).axes["checkpoint"] == (checkpoint,)
    again = name_files(SMALL | {"checkpoint": str(home / "model")}, home / "data", print)
    assert again["checkpoint"] == checkpoint


@pytest.mark.long
def test_pretrained_weights_have_their_own_rate(pieces, checkpoint):
    """A step of Adam moves a weight by its learning rate: the dense layer's or the pretrained."""
    rates = {"learning_rate": 0.01, "pretrained_learning_rate": 1e-4, "loss": "mse"}
    config = complete(SMALL | rates | {"checkpoint": checkpoint, "item_dropout": 0.0})
    trainer, state = Trainer.create(config, pieces)
    before = jax.tree.map(np.asarray, state.parameters["encoder"])
    batch = next(batches(pieces.graph, config, Streams(0)))
    after, _ = trainer.step(state, batch, DeviceContent.of(pieces))
    after = jax.tree.map(np.asarray, after.parameters["encoder"])
    moved = jax.tree.map(lambda new, old: float(np.abs(new - old).max()), after, before)
    assert moved["dense"]["kernel"] == pytest.approx(0.01, rel=0.02)
    stack = moved["pretrained"]["stack"]
    for layer in range(LAYERS):
        assert stack["layers"][layer]["output"]["kernel"] == pytest.approx(1e-4, rel=0.05)
    assert min(moved["pretrained"]["words"]["embedding"], stack["norm"]["scale"]) > 0


def test_what_does_not_fit_is_refused(home, pieces, checkpoint, tiny, tmp_path):
    other, bare = tmp_path / "other", tmp_path / "bare"
    write_checkpoint(other)
    (other / "vocab.txt").write_text("\n".join([*PIECES, "more"]) + "\n")
    bare.mkdir()
    lengths = np.full_like(pieces.texts.lengths, POSITIONS + 1)
    long = replace(pieces, texts=replace(pieces.texts, lengths=lengths))
    for dataset, digest, words in (
        (pieces, "0" * 12, "has no checkpoint 000000000000"),
        (long, checkpoint, "texts of 25 pieces"),
    ):
        with pytest.raises(UsageError, match=words):
            kept.require_checkpoint(complete(SMALL | {"checkpoint": digest}), dataset)
    for folder, dataset, words in (
        (bare, pieces, "there is no config.json"),
        (other, pieces, "prepared with the tokenizer of model"),
        (home / "model", tiny, "tiny was prepared with words"),
    ):
        with pytest.raises(UsageError, match=words):
            kept.keep_checkpoint(folder, dataset, print)


DAMAGED = [
    (CONFIG, {"model_type": "roberta"}, "model_type is 'roberta'"),
    (CONFIG, {"num_hidden_layers": 0}, "num_hidden_layers is 0, and it must be a whole"),
    (CONFIG, {"num_attention_heads": 3}, "num_attention_heads is 3, and it must divide hidden_"),
    (CONFIG, {"hidden_size": 4}, r"weight has the shape \(253, 8\); config.json asks for"),
    (CONFIG, {"layer_norm_eps": "x"}, "layer_norm_eps is 'x'"),
    (CONFIG, "{}", "vocab_size is missing"),
    (CONFIG, "[]", r"config\.json is damaged: it must hold a JSON object"),
    (CONFIG, "{", r"Cannot read .*config\.json"),
    (POOLING, {"pooling_mode_cls_token": True}, r"the pooling (mean \+ cls|cls \+ mean) is not"),
    (POOLING, {"pooling_mode_mean_tokens": False}, "the pooling none is not supported"),
    (POOLING, '{"pooling_mode": "lasttoken"}', r"lasttoken is not .* \(mean\) .* \(cls\)"),
    (MODULES, '[{"type": "sentence_transformers.models.Dense"}]', "the module Dense is not supp"),
    (WEIGHTS, "no weights", r"model\.safetensors is damaged"),
    (WEIGHTS, np.float32(np.nan), r"encoder\.layer\.1\.output\.dense\.bias has a value that is"),
    (WEIGHTS, np.int8(1), r"output\.dense\.bias is of type I8, not F64, F32, F16 or BF"),
]


@pytest.mark.parametrize(("file", "change", "words"), DAMAGED)
def test_damaged_checkpoints_are_named(tmp_path, file, change, words):
    """A text replaces a file; other values change a setting, or the last weight."""
    weights = write_checkpoint(tmp_path)
    path, name = tmp_path / file, "encoder.layer.1.output.dense.bias"
    if isinstance(change, str):
        path.write_text(change)
    elif isinstance(change, dict):
        path.write_text(json.dumps(json.loads(path.read_text()) | change))
    else:
        save_file(weights | {name: np.full(8, change)}, path)
    with pytest.raises(DataError, match=words):
        kept.read_verified(tmp_path)


def test_both_spellings_of_a_pooling(tmp_path):
    """One name (sentence-transformers 6), or a flag for each; the mean where none is said."""
    write_checkpoint(tmp_path)
    for config, pooling in (
        ({"pooling_mode": "mean", "embedding_dimension": 8}, "mean"),
        ({"pooling_mode": "cls"}, "first"),
        ({"pooling_mode": ["cls"], "pooling_mode_mean_tokens": True}, "first"),
        ({"word_embedding_dimension": 8}, "mean"),
    ):
        (tmp_path / POOLING).write_text(json.dumps(config))
        assert kept.read_verified(tmp_path).pooling == pooling


def test_a_damaged_copy_is_repaired(home, checkpoint, tmp_path):
    """Before a run has a folder. A damaged original is not kept."""
    shutil.copytree(home / "data", tmp_path / "data")
    dataset = store.load(tmp_path / "data", "x")
    weights = kept.kept_path(dataset.folder, checkpoint) / "model.safetensors"
    whole = weights.read_bytes()
    config = complete(SMALL | {"checkpoint": checkpoint})
    for damaged in (whole[:-4], whole[:-4] + np.float32(np.nan).tobytes()):
        weights.write_bytes(damaged)
        with pytest.raises(
            DataError, match=r"safetensors.*\. Give its folder again, with --set check"
        ):
            training.run(RunPlan.of(config, Locations(tmp_path / "data", tmp_path / "runs")))
        assert not (tmp_path / "runs").exists()
        given = name_files(SMALL | {"checkpoint": str(home / "model")}, tmp_path / "data", print)
        assert given["checkpoint"] == checkpoint
        assert weights.read_bytes() == whole
    before = sorted(dataset.folder.iterdir())
    shutil.copytree(home / "model", tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").write_bytes(damaged)
    with pytest.raises(DataError, match="Get its files again, or use another checkpoint"):
        kept.keep_checkpoint(tmp_path / "model", dataset, print)
    assert sorted(dataset.folder.iterdir()) == before


def test_a_missing_package_is_named(home, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"package tokenizers\. Install .*\[bert\]'"):
        Pieces(home / "model", 9)


# Dense features by a frozen checkpoint


def embed(folder, model):
    """Prepare a data set in a new folder."""
    folder.mkdir()
    return prepare(folder, embed=model)[0]


def test_words_stay_words_beside_embedded_pieces(home, pieces, tmp_path):
    """Features are standardised vectors of the checkpoint's pieces; a copy of it makes the same."""
    embedded, plain = embed(tmp_path / "a", home / "model"), embed(tmp_path / "b", None)
    assert embedded.vocabulary == plain.vocabulary != pieces.vocabulary
    weights = write_checkpoint(tmp_path / "copy")
    texts = [pieces.texts[item].tolist() for item in range(pieces.n_items)]
    vectors = np.array([text_vector(weights, text, "mean", True) for text in texts])
    training = embedded.items_of("train")
    expected = (vectors - vectors[training].mean(axis=0)) / vectors[training].std(axis=0)
    np.testing.assert_allclose(embedded.item_features, expected, atol=1e-3)
    assert embedded.feature_seconds > 0
    same = embed(tmp_path / "c", tmp_path / "copy")
    (tmp_path / "copy" / "vocab.txt").write_text("\n".join([*PIECES, "more"]) + "\n")
    other = embed(tmp_path / "d", tmp_path / "copy")
    assert same.fingerprint == embedded.fingerprint not in (plain.fingerprint, other.fingerprint)
    assert "--embed model" in store.prepare_command("x", embedded.manifest)


def test_the_command_embeds_with_lsa_beside(home, pieces, tmp_path):
    words = ("--name", "y", "--data-dir", tmp_path, "--test-fraction", "0.34")
    files = ("--links", home / "r.csv", "--items", home / "m.csv")
    printed = invoke("prepare", "custom", *files, "--embed", home / "model", "--lsa", "1", *words)
    check(printed, 0, "--lsa: 1 features of each item", f"--embed: {WIDTH} features of each item")
    manifest = json.loads((tmp_path / "y" / "manifest.json").read_text())
    assert manifest["statistics"]["item_features"] == WIDTH + 1
    assert [*manifest["derived_features"]] == ["lsa", "embed"]


def test_texts_that_no_checkpoint_reads_are_refused(tmp_path):
    """By --tokenizer and --embed; nothing is prepared."""
    (tmp_path / "empty").mkdir()
    write_checkpoint(model := tmp_path / "model")

    def refuse(error, words, **options):
        with pytest.raises(error, match=words):
            prepare(tmp_path, **options)
        assert not (tmp_path / "data" / "x" / "manifest.json").exists()

    refuse(DataError, "holds no tokenizer", tokenizer=tmp_path / "empty")
    refuse(UsageError, "--min-count and --tokenizer exclude each", tokenizer=model, min_count=2)
    refuse(UsageError, "at least 3", tokenizer=model, max_length=2)
    nowhere = "--embed nowhere: there is no config.json. Name the folder"
    refuse(UsageError, nowhere, embed=Path("nowhere"))
    exclusive = "--tokens-column and --embed exclude each other"
    refuse(UsageError, exclusive, tokens_column="title", embed=model)
    np.save(tmp_path / "f.npy", np.eye(9))
    bare = {"links": [{"user": number, "item": number} for number in range(9)]}
    bare |= {"items": [{"item": number, "price": number} for number in range(9)]}
    bare |= {"item_features": tmp_path / "f.npy"}
    refuse(UsageError, "reads texts, and the items have", embed=model, **bare)
    (model / "vocab.txt").write_text("\n".join([*PIECES, *"abcdefghij"]) + "\n")
    with pytest.raises(UsageError, match="They do not belong together"):
        embed_texts(model, Texts(np.array([len(PIECES) + 2], np.int32), np.ones(1, np.int32)))
    (model / "vocab.txt").write_text("\n".join(PIECES[1:]) + "\n")
    refuse(DataError, "none of BERT's kind", tokenizer=model)
    (model / "tokenizer.json").write_text(json.dumps({"version": "1.0"}))
    refuse(DataError, r"tokenizer\.json is damaged", tokenizer=model)
