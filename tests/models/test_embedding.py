"""Dense features by a frozen checkpoint: their definition, and what is refused."""

import json
from itertools import chain

import numpy as np
import pytest
from support.cli import check, invoke
from support.tables import ITEMS, LINKS, as_csv
from support.tiny_bert import PIECES, WIDTH, text_vector, write_checkpoint
from support.training import quiet

from ncfbench import prepare
from ncfbench.data import store
from ncfbench.data.text import Texts
from ncfbench.errors import UsageError
from ncfbench.models import blocks
from ncfbench.models.embedding import embed_texts

TOKENS = [[2, 4, 7, 3], [], [2, 3], [2, 5, 6, 4, 12, 3], [2, 9, 3], [2, 8, 8, 8, 3]]
TEXTS = Texts(np.array([*chain(*TOKENS)], np.int32), np.array([*map(len, TOKENS)], np.int32))


@pytest.fixture
def small_blocks(monkeypatch):
    """Two texts in a block, all of one length."""
    monkeypatch.setattr(blocks, "SORTED_WORDS", 12)
    monkeypatch.setattr(blocks, "LENGTHS", 1)


@pytest.mark.parametrize(("pooling", "normalises"), [("mean", True), ("first", False)])
def test_embeddings_are_those_of_the_definition(tmp_path, small_blocks, pooling, normalises):
    weights = write_checkpoint(tmp_path / "model", pooling=pooling, normalises=normalises)
    vectors, seconds = embed_texts(tmp_path / "model", TEXTS)
    assert vectors.shape == (len(TOKENS), WIDTH)
    assert seconds > 0
    for vector, tokens in zip(vectors, TOKENS, strict=True):
        expected = text_vector(weights, tokens, pooling, normalises) if tokens else np.zeros(WIDTH)
        np.testing.assert_allclose(vector, expected, atol=1e-5)


@pytest.fixture
def home(tmp_path):
    """Files of links and items, and a checkpoint."""
    write_checkpoint(tmp_path / "model")
    as_csv(tmp_path / "links.csv", LINKS)
    as_csv(tmp_path / "items.csv", ITEMS)
    return tmp_path


def make(home, name="x", **more):
    usual = {"links": home / "links.csv", "items": home / "items.csv", "embed": home / "model"}
    usual |= {"test_fraction": 0.34, "validation_fraction": 0.0, "data_dir": home / "data"}
    return prepare("custom", name=name, say=quiet, **(usual | more))


def test_words_stay_words_beside_embedded_pieces(home):
    """Features are the standardised vectors of what the checkpoint's tokenizer gives."""
    embedded, plain = make(home), make(home, "y", embed=None)
    pieces = make(home, "z", embed=None, tokenizer=home / "model", max_length=24)
    assert embedded.vocabulary == plain.vocabulary != pieces.vocabulary
    assert embedded.fingerprint not in (plain.fingerprint, pieces.fingerprint)
    weights = write_checkpoint(home / "again")
    texts = [pieces.texts[item].tolist() for item in range(pieces.n_items)]
    vectors = np.array([text_vector(weights, text, "mean", True) for text in texts])
    training = embedded.items_of("train")
    expected = (vectors - vectors[training].mean(axis=0)) / vectors[training].std(axis=0)
    np.testing.assert_allclose(embedded.item_features, expected, atol=1e-3)
    assert embedded.feature_seconds > 0


def test_the_manifest_names_the_checkpoint_by_content(home):
    """A copy is the same, another tokenizer is not; the command names the folder."""
    first = make(home)
    write_checkpoint(home / "copy")
    assert make(home, embed=home / "copy").fingerprint == first.fingerprint
    (home / "copy" / "vocab.txt").write_text("\n".join([*PIECES, "more"]) + "\n")
    with pytest.raises(UsageError, match=r"was prepared with embed = \w{12} \(now \w{12}\)"):
        make(home, embed=home / "copy")
    assert "--embed model" in store.prepare_command("x", first.manifest)


def test_the_command_embeds_with_lsa_beside(home):
    words = ("--name", "x", "--data-dir", home / "data", "--test-fraction", "0.34")
    files = ("--links", home / "links.csv", "--items", home / "items.csv")
    printed = invoke("prepare", "custom", *files, "--embed", home / "model", "--lsa", "1", *words)
    check(printed, 0, "--lsa: 1 features of each item", f"--embed: {WIDTH} features of each item")
    manifest = json.loads((home / "data" / "x" / "manifest.json").read_text())
    assert manifest["statistics"]["item_features"] == WIDTH + 1
    assert [*manifest["derived_features"]] == ["lsa", "embed"]
    assert store.load(home / "data", "x").feature_seconds > 0


def test_what_cannot_be_embedded_is_refused(home):
    def refuse(words, **more):
        with pytest.raises(UsageError, match=words):
            make(home, **more)
        assert not (home / "data" / "x" / "manifest.json").exists()

    refuse("--embed nowhere: there is no config.json. Name the folder", embed="nowhere")
    refuse("--tokens-column and --embed exclude each other", tokens_column="title")
    np.save(home / "f.npy", np.eye(9))
    for name, column in (("items", "item,price"), ("links", "user,item")):
        lines = (f"{number},{number}" for number in range(9))
        (home / f"{name}.csv").write_text("\n".join([column, *lines]))
    refuse("reads texts, and the items have", item_features=home / "f.npy")
    (home / "model" / "vocab.txt").write_text("\n".join([*PIECES, *"abcdefghij"]) + "\n")
    texts = Texts(np.array([len(PIECES) + 2], np.int32), np.ones(1, np.int32))
    with pytest.raises(UsageError, match="They do not belong together"):
        embed_texts(home / "model", texts)
