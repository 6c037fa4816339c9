"""Train vectors of users and words with a loss of sentence-transformers, for ``ncfbench race``.

    ncfbench race --budget 4m --try loss=CosineSimilarityLoss,MultipleNegativesRankingLoss \
      'python examples/race_in_sentence_transformers.py FOLDER {loss}'

FOLDER has items.csv (item, and columns of text) and links.csv.gz (user,item). A fifth of the items
is held out; the recall is that of the 50 of them whose vectors are nearest to a user's.
"""

import json
import re
import sys
import tempfile
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from numpy.typing import NDArray
from pyarrow import csv
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers import SentenceTransformerTrainingArguments as Arguments
from sentence_transformers.sentence_transformer import losses
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import TrainerCallback

OPTIONS = {"per_device_train_batch_size": 512, "num_train_epochs": 100, "report_to": "none"}
OPTIONS |= {"lr_scheduler_type": "constant", "save_strategy": "no", "disable_tqdm": True}


class Lines(TrainerCallback):
    """Prints the share of held-out links, [users, texts], that 50 texts have, every 16 batches."""

    def __init__(self, users: list[str], texts: list[str], links: NDArray[Any]) -> None:
        self.users, self.texts, self.links = users, texts, links

    def on_step_end(self, args: Any, state: Any, control: Any, *, model: Any, **_: Any) -> None:
        if state.global_step % 16 == 0:
            sides = (model.encode(each, batch_size=1024) for each in (self.users, self.texts))
            f, g = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in sides)
            best = np.argpartition(-f @ g.T, 50)[:, :50]
            hits = np.take_along_axis(self.links, best, 1).sum(1)
            recall = float((hits / self.links.sum(1)).mean())
            print(json.dumps({"recall": recall, "step": state.global_step}), flush=True)


def main(folder: str, loss: str, lr: str = "0.01", seed: str = "0") -> None:
    table, links = (csv.read_csv(f"{folder}/{name}") for name in ("items.csv", "links.csv.gz"))
    rows = [[*map(str, row.values())] for row in table.to_pylist()]
    texts = {row[0]: " ".join(re.findall(r"\w+", " ".join(row[1:]).lower())) for row in rows}
    user = np.char.add("user", np.asarray(links["user"]).astype(str))
    item, rng = np.asarray(links["item"]).astype(str), np.random.default_rng(0)
    held = np.sort(rng.choice([*texts], len(texts) // 5, replace=False))
    is_held = np.isin(item, held)
    users, row = np.unique(user[is_held], return_inverse=True)
    wanted = np.zeros((len(users), len(held)))
    wanted[row, np.searchsorted(held, item[is_held])] = 1
    lines = Lines([*users], [texts[each] for each in held], wanted)
    columns = {"user": user[~is_held], "item": item[~is_held]}
    if not loss.startswith("MultipleNegatives"):  # labels: 1, and 0 with an item drawn at random
        drawn = rng.choice(np.setdiff1d([*texts], held), len(columns["item"]))
        columns = {"user": np.tile(columns["user"], 2), "item": np.r_[columns["item"], drawn]}
        columns["label"] = np.repeat([1.0, 0.0], len(drawn))
    train = Dataset.from_dict(columns)
    train.set_transform(lambda rows: rows | {"item": [texts[each] for each in rows["item"]]})
    words = sorted({*" ".join(texts.values()).split(), *user})
    tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, words[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    torch.manual_seed(int(seed))
    vectors = StaticEmbedding(tokenizer, embedding_dim=64)
    vectors.embedding.weight.data *= 0.05  # from a length of 8, in steps of the learning rate
    model = SentenceTransformer(modules=[vectors], device="cpu")
    options = Arguments(tempfile.mkdtemp(), learning_rate=float(lr), seed=int(seed), **OPTIONS)
    objective = getattr(losses, loss)(model)
    SentenceTransformerTrainer(model, options, train, loss=objective, callbacks=[lines]).train()


if __name__ == "__main__":
    main(*sys.argv[1:])
