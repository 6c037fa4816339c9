"""What a source of data delivers, whatever it is and before it is stored."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ncfbench.data.graph import MAX_LINKS
from ncfbench.data.text import Texts, Vocabulary
from ncfbench.errors import DataError

Int32: TypeAlias = NDArray[np.int32]
VERSION = 1
"""Of what the fingerprint covers."""
PIECE = 2**16
"""Names worked on at a time."""


@dataclass(frozen=True)
class Content:
    """What a source delivers: every link once, each item's text as token ids, and which items are
    held out.

    Args:
        n_users: number of users; ids are 0..n_users-1.
        users, items: int32[links], the ends of each link.
        texts: the token ids (from 1) of each item.
        vocabulary: the words the ids stand for.
        split: uint8[n_items], an index into :data:`ncfbench.data.splits.SPLITS`.
        user_ids, item_ids: what the source calls each user and item; None where these are its own
            numbers.
        removed: how much of the source is not here, by reason (``duplicate_links``, ...), for the
            manifest.
    """

    n_users: int
    users: Int32
    items: Int32
    texts: Texts
    vocabulary: Vocabulary
    split: NDArray[np.uint8]
    user_ids: pa.StringArray | None = None
    item_ids: pa.StringArray | None = None
    removed: Mapping[str, int] = field(default_factory=dict)

    def fingerprint(self, options: Mapping[str, Any]) -> str:
        """SHA-256 (hexadecimal) of everything a run can see of this content, and of the options
        that made it.
        """
        digest = hashlib.sha256(
            json.dumps([VERSION, self.n_users, dict(options)], sort_keys=True).encode()
        )
        for array in (self.users, self.items, self.texts.lengths, self.texts.words, self.split):
            digest.update(np.ascontiguousarray(array).data)
        digest.update("\n".join(self.vocabulary.words).encode())
        for kind, ids in (("users", self.user_ids), ("items", self.item_ids)):
            if ids is None:
                continue
            digest.update(
                f"\n{kind} {len(ids)}\n".encode()
            )  # so that no name can pass from one list into the next
            # A name as a Python object takes ten times its bytes.
            for start in range(0, len(ids), PIECE):
                digest.update(
                    (
                        "\n" * (start > 0) + "\n".join(ids[start : start + PIECE].to_pylist())
                    ).encode()
                )
        return digest.hexdigest()

    def statistics(self) -> dict[str, float]:
        """Counts of the data set, with the paper's words per item (largest, smallest, mean,
        median).
        """
        lengths = self.texts.lengths
        split_of_link = self.split[self.items]
        with_test_items = np.zeros(self.n_users, bool)
        with_test_items[self.users[split_of_link == 2]] = True
        return {
            "users": self.n_users,
            "items": len(self.texts),
            "links": len(self.users),
            "training_links": int((split_of_link == 0).sum()),
            "training_items": int((self.split == 0).sum()),
            "validation_items": int((self.split == 1).sum()),
            "test_items": int((self.split == 2).sum()),
            "users_with_test_items": int(with_test_items.sum()),
            "vocabulary": len(self.vocabulary.words),
            "words_max": int(lengths.max()),
            "words_min": int(lengths.min()),
            "words_mean": round(float(lengths.mean()), 2),
            "words_median": float(np.median(lengths)),
            "items_without_text": int((lengths == 0).sum()),
        }


def distinct_links(
    users: NDArray[np.integer], items: NDArray[np.integer]
) -> tuple[Int32, Int32, int]:
    """Links by (user, item), each once, and how many were given again.

    8 bytes of scratch a link and, where links repeat, as much again.

    Raises:
        DataError: more links than int32 can number, or an id below 0 or above what int32 holds.
    """
    if len(users) > MAX_LINKS:
        raise DataError(f"{len(users):,} links: more than {MAX_LINKS:,} are not supported.")
    for kind, ids in (("user", users), ("item", items)):
        for id_ in (int(ids.min(initial=0)), int(ids.max(initial=0))):
            if not 0 <= id_ < MAX_LINKS:
                raise DataError(f"{kind} {id_}: ids from 0 to {MAX_LINKS - 1:,} are supported.")
    packed = users.astype(np.uint64)
    packed <<= np.uint64(32)
    np.bitwise_or(packed, items, out=packed, dtype=np.uint64, casting="unsafe")
    packed.sort()
    first = np.ones(len(packed), bool)
    np.not_equal(packed[1:], packed[:-1], out=first[1:])
    if repeated := len(packed) - int(first.sum()):
        packed = packed[first]
    ids = packed.view(np.int32).reshape(-1, 2)
    return ids[:, 1].copy(), ids[:, 0].copy(), repeated
