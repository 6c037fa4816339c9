"""The lint of losses in PyTorch: gradients, memories, and processes that gather."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

from ncfbench.errors import UsageError  # noqa: E402
from ncfbench.linting.lint import lint_loss  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # PyTorch's, of its own coming changes


def cross_entropy(users: Any, items: Any, ids: Any, probability: Any, first: int) -> Any:
    scores, own = 10 * users @ items.T, torch.arange(len(users)) + first
    is_own = torch.arange(len(items))[None, :] == own[:, None]
    shift = torch.log((len(items) - 1) * probability)[None, :]
    is_same = (ids[own][:, None] == ids[None, :]) & ~is_own
    logits = torch.where(is_own, scores, scores - shift).masked_fill(is_same, -torch.inf)
    return F.cross_entropy(logits, own)


def gather(part: Any) -> list[Any]:
    """All processes' parts without gradients; this process's own has one."""
    parts = [torch.empty_like(part) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, part.detach().contiguous())
    parts[dist.get_rank()] = part
    return parts


def right(users: Any, items: Any, item_ids: Any, probability: Any) -> Any:
    functional = importlib.import_module("torch.distributed.nn.functional")
    all_items = torch.cat(functional.all_gather(items))
    ids, p = torch.cat(gather(item_ids)), torch.cat(gather(probability))
    return cross_entropy(users, all_items, ids, p, dist.get_rank() * len(users))


def lost(users: Any, items: Any, item_ids: Any, probability: Any) -> Any:
    parts = [torch.cat(gather(part)) for part in (items, item_ids, probability)]
    return cross_entropy(users, *parts, dist.get_rank() * len(users))


def scaled(users: Any, items: Any, item_ids: Any, probability: Any) -> Any:
    return cross_entropy(*(torch.cat(gather(x)) for x in (users, items, item_ids, probability)), 0)


def mended(users: Any, items: Any, item_ids: Any, probability: Any) -> Any:
    return dist.get_world_size() * scaled(users, items, item_ids, probability)


def doubled(users: Any, items: Any, item_ids: Any, probability: Any) -> Any:
    return dist.get_world_size() * right(users, items, item_ids, probability)


def local_but_scaled(users: Any, items: Any, item_ids: Any, probability: Any) -> Any:
    one = cross_entropy(users, items, item_ids, probability, 0)
    return one * (dist.get_world_size() if dist.is_initialized() else 1)


class Memory:
    """A softmax over the batch and the items of the batch before."""

    kept: Any = None

    def __call__(self, users: Any, items: Any) -> Any:
        both = items if self.kept is None else torch.cat([items, self.kept])
        self.kept = items.detach()
        return F.cross_entropy(10 * users @ both.T, torch.arange(len(users)))


@pytest.mark.parametrize(
    ("loss", "code"),
    [
        (right, None),
        (lost, "gather-lost"),
        (scaled, "gather-scale"),
        (mended, None),
        (doubled, "gather-doubled"),
        (local_but_scaled, "gather-doubled"),
    ],
)
def test_gathered_gradients(loss: Any, code: str | None) -> None:
    found = [each.code for each in lint_loss(loss).errors]
    assert found == ([code] if code else [])


def test_a_failing_loss_leaves_no_process_group() -> None:
    def fails(users: Any, items: Any) -> Any:
        raise ValueError(f"of process {dist.get_rank()}")

    with pytest.raises(UsageError, match="fails on a batch"):
        lint_loss(fails)
    assert not dist.is_initialized()


def test_memory_is_seen() -> None:
    assert "memory" in [each.code for each in lint_loss(Memory).findings]


def test_losses_of_pytorch_are_right() -> None:
    for loss in (torch.nn.BCEWithLogitsLoss, torch.nn.CrossEntropyLoss, torch.nn.TripletMarginLoss):
        assert lint_loss(loss).errors == []


def test_losses_of_sentence_transformers() -> None:
    losses = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    found = lint_loss(losses.MultipleNegativesRankingLoss)
    assert found.facts is not None
    assert found.facts.scale is not None
    assert found.facts.scale.value == pytest.approx(20)
    assert {each.code for each in found.errors} == {"missing-logq", "duplicates"}
