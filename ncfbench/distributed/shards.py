"""A batch cut into equal parts, one for each device: a batch again, whose arrays are the parts one
behind the other.

Part p of N holds the rows p b/N .. (p + 1) b/N - 1, the users that they name, and an equal share of
the item slots. With b = 2 positive links (user 7, item 30) and (user 9, item 31) that share their
negatives, over N = 2 devices::

    users    = [7 | 9]      pos_user = [0 | 0]       slot in the part's own users
    items    = [30 | 31]    pos_item = [0 | 1]       slot in all items (vectors are gathered)
    negatives = Shared(weight=[[0 1/2] | [1/2 0]])         row: positive link, column: item slot

With local sharing (:mod:`ncfbench.sampling.local`) ``pos_item`` and the columns are slots in the
part's own items, and each part is a batch by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ncfbench.errors import CheckFailedError
from ncfbench.sampling.batch import Batch, Shared, rounded_up

Int32 = NDArray[np.int32]


def cut(batch: Batch, parts: int) -> Batch:
    """A batch in equal parts; item slots are filled up to a multiple of their number, and no link
    is changed.

    Args:
        batch: whose links b are a multiple of ``parts``.

    Raises:
        CheckFailedError: a part's rows name more users than an equal share of the user slots.
    """
    slots = rounded_up(len(batch.items), parts) - len(batch.items)
    items, negatives = np.pad(batch.items, (0, slots)), batch.negatives
    if isinstance(negatives, Shared):
        users, pos_user, _ = _own_users(batch, parts, None)
        weight = np.pad(negatives.weight, ((0, 0), (0, slots))) if slots else negatives.weight
        return batch._replace(users=users, items=items, pos_user=pos_user, negatives=Shared(weight))
    users, pos_user, negative_user = _own_users(batch, parts, negatives.user)
    assert negative_user is not None
    return batch._replace(
        users=users,
        items=items,
        pos_user=pos_user,
        negatives=negatives._replace(user=negative_user),
    )


def stacked(batches: Sequence[Batch], n_items: int) -> Batch:
    """Batches of equal shapes one behind the other; each keeps slots of its own.

    Args:
        batches: whose negatives are shared.
        n_items: of the whole, as it may have parts elsewhere.
    """
    arrays = {
        name: np.concatenate([getattr(batch, name) for batch in batches])
        for name in ("users", "items", "pos_user", "pos_item")
    }
    weight = np.concatenate([batch.negatives.weight for batch in batches])
    return Batch(**arrays, negatives=Shared(weight), n_items=np.int32(n_items))


def part_of(batch: Batch, parts: int, own: range) -> Batch:
    """Some consecutive parts of a batch in parts: what one process holds of it. Views.

    Weights that are of these parts' rows already stay.
    """

    def taken(array: NDArray[np.generic]) -> NDArray[np.generic]:
        size = len(array) // parts
        return array[own.start * size : own.stop * size]

    negatives = batch.negatives
    return Batch(
        users=taken(batch.users),
        items=taken(batch.items),
        pos_user=taken(batch.pos_user),
        pos_item=taken(batch.pos_item),
        negatives=type(negatives)(
            *(taken(array) if len(array) == len(batch.pos_user) else array for array in negatives)
        ),
        n_items=batch.n_items,
    )


def _own_users(
    batch: Batch, parts: int, negative: Int32 | None
) -> tuple[Int32, Int32, Int32 | None]:
    """Each part's users in an equal share of the slots, and the slots that its rows name among
    them.
    """
    share = len(batch.users) // parts
    rows = len(batch.pos_user) // parts
    users = np.zeros(share * parts, np.int32)
    pos_user = np.empty_like(batch.pos_user)
    negative_user = None if negative is None else np.empty_like(negative)
    for part in range(parts):
        own = slice(part * rows, (part + 1) * rows)
        named = np.zeros(len(batch.users), bool)
        named[batch.pos_user[own]] = True
        if negative is not None:
            named[negative[own]] = True
        slots = np.flatnonzero(named)
        if len(slots) > share:
            raise CheckFailedError(
                f"{rows} rows of a batch name {len(slots)} users, more than their share of {share}"
                f" slots: this sampler's batches cannot be cut into {parts} parts. Use --devices 1."
            )
        place = np.cumsum(named, dtype=np.int32) - 1
        users[part * share : part * share + len(slots)] = batch.users[slots]
        pos_user[own] = place[batch.pos_user[own]]
        if negative is not None and negative_user is not None:
            negative_user[own] = place[negative[own]]
    return users, pos_user, negative_user
