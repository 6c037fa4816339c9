"""A two-tower in PyTorch that prints its recall as it trains, for ``ncfbench race``.

    ncfbench race --budget 1m --try lr=1e-3,1e-2,1e-1 'python examples/race_in_pytorch.py {lr}'

Users like items of their own topic, which the words of an item tell.
"""

import json
import sys

import torch
from torch import nn

USERS, ITEMS, TOPICS, WORDS, BATCH, STEPS = 500, 1000, 10, 200, 256, 500


def main(lr: str = "1e-2", seed: str = "0") -> None:
    torch.manual_seed(0)  # of the data, which all arms share
    topic_of_user, topic_of_item = torch.arange(USERS) % TOPICS, torch.arange(ITEMS) % TOPICS
    words = (torch.rand(ITEMS, 8) * 20 + 20 * topic_of_item[:, None]).long() % WORDS
    torch.manual_seed(int(seed))
    users, tokens, dense = nn.Embedding(USERS, 32), nn.EmbeddingBag(WORDS, 32), nn.Linear(32, 32)
    model = nn.ModuleList([users, tokens, dense])
    optimizer = torch.optim.Adam(model.parameters(), lr=float(lr))
    for step in range(STEPS + 1):
        if step % 10 == 0:
            with torch.no_grad():
                scores = users.weight @ dense(tokens(words)).T
            best = topic_of_item[scores.topk(20).indices]
            recall = (best == topic_of_user[:, None]).float().mean().item()
            print(json.dumps({"recall": recall, "step": step}), flush=True)
        user = torch.randint(USERS, (BATCH,))
        item = torch.randint(ITEMS // TOPICS, (BATCH,)) * TOPICS + topic_of_user[user]
        scores = users(user) @ dense(tokens(words[item])).T
        loss = nn.functional.cross_entropy(scores, torch.arange(BATCH))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main(*sys.argv[1:])
