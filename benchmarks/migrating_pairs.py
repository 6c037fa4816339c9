"""A SentenceTransformer of users and plots, with its own batches and loss or with ours.

Users are words with a vector each; items go through a small BERT with random weights. ``corrected``
is the framework's loss with the correction that docs/frameworks.md recommends.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from bench_migrating import Clock, ColdItems
from datasets import Dataset as Rows
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.losses import MultipleNegativesRankingLoss
from sentence_transformers.models import Pooling, Router, StaticEmbedding, Transformer
from sentence_transformers.training_args import BatchSamplers
from sentence_transformers.util import cos_sim
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast, TrainerCallback

from ncfbench.torch.pairs import LinkedPairs, PairLoss

BATCH, WIDTH, WORDS, GAMMA = 128, 128, 64, 20
USER_RATE = 0.01
"""Learning rate of the users' vectors, each of which few batches reach."""


def by_word(words: list[str]) -> Tokenizer:
    """Return the tokenizer whose token i is word i, between spaces."""
    tokenizer = Tokenizer(WordLevel({word: at for at, word in enumerate(words)}, "[UNK]"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    return tokenizer


def make_model(users: list[str], words: list[str]) -> SentenceTransformer:
    """Return the towers: ``query`` for users, ``document`` for items."""
    pieces, folder = ["[PAD]", "[UNK]", *words], tempfile.mkdtemp()
    special = {"unk_token": "[UNK]", "pad_token": "[PAD]"}
    PreTrainedTokenizerFast(tokenizer_object=by_word(pieces), **special).save_pretrained(folder)
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 4 * WIDTH}
    config = BertConfig(vocab_size=len(pieces), hidden_size=WIDTH, **sizes)
    BertModel(config).save_pretrained(folder)
    of_users = StaticEmbedding(by_word([*users, "[UNK]"]), embedding_dim=WIDTH)
    with torch.no_grad():
        of_users.embedding.weight.mul_(0.05)  # from a length of 11, in steps of the learning rate
    documents = [Transformer(folder, max_seq_length=WORDS), Pooling(WIDTH, "mean")]
    router = Router.for_query_document(query_modules=[of_users], document_modules=documents)
    return SentenceTransformer(modules=[router], device="cpu")


class Corrected(torch.nn.Module):
    """MultipleNegativesRankingLoss with logits less the logarithm of an item's share of the links,
    which docs/frameworks.md recommends.

    Args:
        log_share: float32[I], by item; a batch's labels are items.
    """

    def __init__(self, model: SentenceTransformer, log_share: torch.Tensor) -> None:
        super().__init__()
        self.model, self.log_share = model, log_share

    def forward(self, sentence_features: Any, labels: torch.Tensor) -> torch.Tensor:
        """Return the mean over the batch's links."""
        f, g = (self.model(each)["sentence_embedding"] for each in sentence_features)
        logits = GAMMA * cos_sim(f, g) - self.log_share[labels]
        return torch.nn.functional.cross_entropy(logits, torch.arange(len(labels)))


def train(dataset: Any, way: str, seed: int, rate: float, start: Callable[..., Clock]) -> None:
    """Train until the clock is over."""
    torch.manual_seed(seed)
    graph, cold = dataset.graph, ColdItems(dataset)
    # Word i of the vocabulary has the token id i + 1.
    words = pq.read_table(dataset.folder / "vocabulary.parquet")["word"].to_pylist()
    tokens = [dataset.texts[item] for item in range(len(dataset.texts))]
    texts = [" ".join(words[token - 1] for token in own) for own in tokens]
    users = [f"user{number}" for number in range(dataset.n_users)]
    model = make_model(users, words)
    anchors = [users[user] for user in graph.link_user]
    rows = Rows.from_dict(
        {"anchor": anchors, "positive": [texts[item] for item in graph.link_item]}
    )

    def recall() -> float:
        model.eval()
        f = model.encode_query(users, normalize_embeddings=True)
        g = model.encode_document([texts[item] for item in cold.items], normalize_embeddings=True)
        model.train()
        return cold.recall(f, g)

    clock = start(recall)

    class Tick(TrainerCallback):
        def on_step_end(self, *arguments: Any, **more: Any) -> None:
            clock.batch()

    sampler: Any = BatchSamplers.NO_DUPLICATES if way == "no-duplicates" else None
    loss: Any = MultipleNegativesRankingLoss(model, scale=GAMMA)
    if way == "corrected":
        rows = rows.add_column("label", graph.link_item.tolist())
        count = torch.from_numpy(np.bincount(graph.link_item, minlength=dataset.n_items))
        loss = Corrected(model, torch.log(count / graph.n_links))
    if way == "after":
        pairs = LinkedPairs(
            rows["anchor"], rows["positive"], batch_size=BATCH, stratum_size=4, gamma=GAMMA
        )
        rows, sampler = rows.add_column("label", pairs.labels), pairs.batch_sampler
        loss = PairLoss(model, pairs)
    trainer = SentenceTransformerTrainer(
        model=model,
        args=SentenceTransformerTrainingArguments(
            output_dir=tempfile.mkdtemp(),
            per_device_train_batch_size=BATCH,
            batch_sampler=sampler or BatchSamplers.BATCH_SAMPLER,
            router_mapping={"anchor": "query", "positive": "document"},
            num_train_epochs=1000,
            learning_rate=rate,
            learning_rate_mapping={r"\.query\.": USER_RATE},
            lr_scheduler_type="constant",
            seed=seed,
            save_strategy="no",
            report_to="none",
            logging_strategy="no",
            disable_tqdm=True,
            use_cpu=True,
        ),
        train_dataset=rows,
        loss=loss,
        callbacks=[Tick()],
    )
    trainer.train()
