"""Tables of vectors by user, item or word, and the rows of them that a batch names."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax

from ncfbench.catalog import find
from ncfbench.config import RunConfig

USER_TOWER, ENCODER = "user_tower", "encoder"
"""Attributes of :class:`ncfbench.models.towers.Towers`, and keys of its parameters: f and g."""
FREE_ITEMS = "free_items"
"""The same for the items' free vectors, which only regularised coupling has."""


class Rows(NamedTuple):
    """Rows of a batch's nodes and of their content in tables that hold some rows only."""

    users: jax.Array | None = None
    """int32[U]: rows of the user slots in tables by user; None where rows are user ids."""
    items: jax.Array | None = None
    """int32[V]: rows of the item slots in tables by item; None where rows are item ids."""
    words: jax.Array | None = None
    """int32[V, L]: rows of the texts' words in tables by word, 0 for none; None where rows are word
    ids.
    """
    histories: jax.Array | None = None
    """int32[U, H]: rows of the items of the users' histories in tables of the user tower by item, 0
    for none; None where rows are item ids.
    """

    def of_users(self, slots: jax.Array) -> Rows:
        """Return the rows of some user slots, int32[n]."""
        whole = Rows(users=self.users, histories=self.histories)
        rows: Rows = jax.tree.map(lambda rows: rows[slots], whole)
        return rows


WHOLE_TABLES = Rows()
"""Rows are ids."""


def names_of(path: Any) -> tuple[str, ...]:
    """Return the names in a path of a tree of parameters, or of moments of parameters."""
    return tuple(str(key.key) for key in path if isinstance(key, jax.tree_util.DictKey))


def kind_of(config: RunConfig, path: Any) -> str | None:
    """Return what the rows of a parameter or its moments are: ``users``, ``items``, ``words``, or
    ``histories`` for items of the user tower; None for an array that is no table whose rows a batch
    names.
    """
    names = names_of(path)
    if names[-1:] != ("embedding",):
        return None
    if names[0] == FREE_ITEMS:
        return "items"
    kind = names[0]
    tables = find(kind, getattr(config, kind)).tables
    return next((rows for table, rows in tables.items() if table in names), None)
