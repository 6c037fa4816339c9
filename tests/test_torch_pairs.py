"""Pairs of texts for sentence-transformers: strata, linked pairs, and the trainer itself."""

import math
from collections import Counter

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from ncfbench.errors import UsageError  # noqa: E402
from ncfbench.torch.pairs import LinkedPairs, PairLoss  # noqa: E402

RNG = np.random.default_rng(0)
LINKS = [(user, item) for user in range(12) for item in range(8) if (3 * user + 5 * item) % 7 < 3]
LINKS = [LINKS[row] for row in RNG.permutation(len(LINKS))]
USERS = [f"reader {user}" for user, _ in LINKS]
ITEMS = [f"paper {item} on topic{item % 3}" for _, item in LINKS]


class Encoder(torch.nn.Module):
    """Stands in for a SentenceTransformer: the vector of a text is that of its first token."""

    def __init__(self, *, is_padded=True):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.encoded = torch.nn.Embedding(40, 4), 0
        self.is_padded = is_padded

    def forward(self, features):
        self.encoded += len(features["input_ids"])
        return {"sentence_embedding": self.table(features["input_ids"][:, 0])}

    def features(self, numbers):
        ids = torch.tensor(numbers)[:, None]
        return {"input_ids": ids} | ({"attention_mask": ids > -1} if self.is_padded else {})


def pairs(**settings):
    return LinkedPairs(USERS, ITEMS, **{"batch_size": 8, "stratum_size": 2} | settings)


def features_of(model, rows):
    """Columns of tokens of the users and items of some pairs."""
    users, items = zip(*(LINKS[row] for row in rows), strict=True)
    return [model.features(list(users)), model.features([20 + item for item in items])]


def softmax_by_hand(vector, rows, stratum, gamma):
    """The loss of a batch, pair by pair: an item stands for N / (its links) items."""
    degree, b, total = Counter(item for _, item in LINKS), len(rows), 0.0
    for at, row in enumerate(rows):
        user, item = LINKS[row]
        negatives = 0.0
        for other, row_of_other in enumerate(rows):
            candidate = LINKS[row_of_other][1]
            if other // stratum != at // stratum and (user, candidate) not in LINKS:
                weight = len(LINKS) / degree[candidate] / (b - stratum)
                gap = vector(20 + candidate) @ vector(user) - vector(20 + item) @ vector(user)
                negatives += weight * math.exp(gamma * gap)
        total += math.log(1 + negatives)
    return total / b


@pytest.mark.parametrize("is_padded", [True, False])
def test_loss_by_hand(is_padded):
    """Linked pairs are silent; every distinct text is encoded once if texts are padded."""
    linked, model = pairs(gamma=5.0), Encoder(is_padded=is_padded)
    rows = next(iter(linked.batch_sampler(LINKS, 8)))

    def vector(token):
        numbers = model.table.weight[token].detach().double().numpy()
        return numbers / np.linalg.norm(numbers)

    value = PairLoss(model, linked)(features_of(model, rows), torch.tensor(linked.labels[rows]))
    assert value.item() == pytest.approx(softmax_by_hand(vector, rows, 2, 5.0), rel=1e-5)
    distinct = sum(len({LINKS[row][side] for row in rows}) for side in (0, 1))
    assert model.encoded == (distinct if is_padded else 2 * len(rows))
    assert distinct < 2 * len(rows)


def test_users_that_are_ids():
    """The same loss as from texts whose vectors are the table's."""
    linked, model = pairs(loss="sg", **{"lambda": 3.0}), Encoder()
    rows = next(iter(linked.batch_sampler(LINKS, 8)))
    columns, labels = features_of(model, rows), torch.tensor(linked.labels[rows])
    table = torch.nn.Embedding(12, 4)
    with torch.no_grad():
        order = [int(name.removeprefix("reader ")) for name in linked.users]
        table.weight.copy_(model.table.weight[order])
    by_id = PairLoss(model, linked, users=table)(columns[1:], labels)
    assert by_id.item() == pytest.approx(PairLoss(model, linked)(columns, labels).item(), rel=1e-6)
    by_id.backward()
    touched = {linked.users[row] for row in table.weight.grad.abs().sum(dim=1).nonzero()[:, 0]}
    assert touched == {USERS[row] for row in rows}


def test_epochs_hold_every_pair_equally_often():
    linked = pairs()
    batches = linked.batch_sampler(dataset=LINKS, batch_size=8, drop_last=False, seed=3)
    seen = Counter()
    for epoch in range(len(LINKS)):
        batches.set_epoch(epoch)
        rows = list(batches)
        assert len(rows) == len(batches) == len(LINKS) // 8
        seen.update(row for batch in rows for row in batch)
    assert max(seen.values()) - min(seen.values()) <= 1
    assert set(seen) == set(range(len(LINKS)))
    other = linked.batch_sampler(LINKS, 8, seed=4)
    assert list(other) != list(linked.batch_sampler(LINKS, 8, seed=3))


def test_strata_are_of_one_item_or_one_user():
    """Segments of the sorted pairs: at most one for each item has the next one's first."""
    for strata, column in (("item", 1), ("user", 0)):
        rows = [row for batch in pairs(strata=strata).batch_sampler(LINKS, 8) for row in batch]
        nodes = [LINKS[row][column] for row in rows]
        mixed = sum(a != b for a, b in zip(nodes[::2], nodes[1::2], strict=True))
        assert mixed < len({*nodes}) < len(nodes) // 2


def test_elements_of_tensors_are_equal_by_value():
    """A tensor, its elements, which hash by identity, and those of NumPy."""
    numbers = tuple(map(list, zip(*LINKS, strict=True)))
    plain = LinkedPairs(*numbers, batch_size=8, stratum_size=2)
    for form in (torch.tensor, lambda ids: [*torch.tensor(ids)], np.array):
        same = LinkedPairs(*map(form, numbers), batch_size=8, stratum_size=2)
        assert same.users == plain.users
        assert same.labels.tolist() == plain.labels.tolist()


def test_what_cannot_work_is_refused():
    def sampled(dataset, size):
        return pairs().batch_sampler(dataset, size)

    loss = PairLoss(Encoder(), pairs())
    twice = (["a", "b", "a", "b"], ["x", "x", "y", "x"])
    for call, words in (
        (lambda: pairs(sampler="neg"), "The negatives of neg are not the batch's own items"),
        (lambda: pairs(sampler="mixed-ns"), "Use ns or strat-ns."),
        (lambda: pairs(batch_size=9), "not a multiple of stratum_size"),
        (lambda: pairs(loss="cosine"), "Unknown loss 'cosine'"),
        (lambda: LinkedPairs(*twice, batch_size=2, stratum_size=1), "Rows 1 and 3 are the same"),
        (lambda: LinkedPairs(["a", "b"], ["x"]), "2 users and 1 items make no pairs"),
        (lambda: sampled([1, 2, 3], 8), f"of {len(LINKS)} pairs, and the data set has 3"),
        (lambda: sampled(LINKS, 16), "give LinkedPairs batch_size=16"),
        (lambda: loss([{}, {}], None), "pairs.labels as the column label; it got 2 of texts"),
    ):
        with pytest.raises(UsageError, match=words):
            call()


def tiny_model(folder):
    """A BERT of one layer with a word for each word of the texts, from a configuration."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *sorted({*" ".join(USERS + ITEMS).split()})]
    tokenizer = Tokenizer(models.WordLevel({word: at for at, word in enumerate(words)}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    special = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    torch.manual_seed(0)
    config = BertConfig(vocab_size=len(words), intermediate_size=16, **sizes)
    BertModel(config).save_pretrained(folder)
    return SentenceTransformer(modules=[modules.Transformer(str(folder)), modules.Pooling(8)])


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("by_id", [False, True])
def test_the_trainer_trains(by_id, tmp_path):
    """Its checkpoints hold the arguments of training, and with them the batch sampler."""
    pytest.importorskip("sentence_transformers")
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )

    linked = pairs(loss="sg" if by_id else "softmax")
    model = tiny_model(tmp_path / "model")
    columns = {"positive": ITEMS, "label": linked.labels}
    users = torch.nn.Embedding(len(linked.users), 8) if by_id else None
    before = None if users is None else users.weight.detach().clone()
    trainer = SentenceTransformerTrainer(
        model=model,
        args=SentenceTransformerTrainingArguments(
            output_dir=str(tmp_path / "out"),
            per_device_train_batch_size=8,
            batch_sampler=linked.batch_sampler,
            num_train_epochs=10,
            learning_rate=0.01,
            logging_steps=4,
            save_steps=20,
            report_to=[],
            use_cpu=True,
        ),
        train_dataset=Dataset.from_dict(columns if by_id else {"anchor": USERS} | columns),
        loss=PairLoss(model, linked, users),
    )
    trainer.train()
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    assert trainer.state.global_step == 10 * (len(LINKS) // 8)
    assert losses[-1] < 0.8 * losses[0]
    assert (tmp_path / "out/checkpoint-20/training_args.bin").exists()
    if users is not None:
        assert (users.weight != before).any(dim=1).all()
