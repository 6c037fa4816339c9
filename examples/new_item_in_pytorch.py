"""The vector of a new item from its text, for ``--encoder bow`` without dense features.

It reads the folder ``vectors`` that ``ncfbench export`` wrote (docs/deploy.md): the mean of the
words' vectors, and a linear layer. A word's row is one more than its position in the vocabulary;
row 0 is padding.
"""

import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

from ncfbench import open_dataset
from ncfbench.data.words import tokenize

meta = json.loads(Path("vectors/meta.json").read_text())
weights, dataset = load_file("vectors/towers.safetensors"), open_dataset(meta["dataset"])
rows = {word: row for row, word in enumerate(dataset.vocabulary, 1)}
words = torch.nn.EmbeddingBag.from_pretrained(
    weights["encoder.words.embedding"], mode="mean", padding_idx=0
)
users = torch.nn.Embedding.from_pretrained(torch.from_numpy(np.load("vectors/users.npy")))


def item_vector(text: str) -> torch.Tensor:
    """Return the vector of an item of this text."""
    known = [rows[word] for word in tokenize(text) if word in rows]
    mean = words(torch.tensor([known[: dataset.manifest["options"]["max_length"]] or [0]]))
    vector = mean @ weights["encoder.dense.kernel"] + weights["encoder.dense.bias"]
    return torch.nn.functional.normalize(vector)[0] if meta["unit_length"] else vector[0]


scores = users.weight @ item_vector("a title that no item has yet")
print(scores.topk(10).indices)
