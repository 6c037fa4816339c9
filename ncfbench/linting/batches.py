"""The content of batches: from a graph of pairs, or from the user's own iterable."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ncfbench.data.graph import BipartiteGraph
from ncfbench.data.ids import encode
from ncfbench.data.table import read_table
from ncfbench.errors import DataError, UsageError, reason
from ncfbench.linting.derivatives import Evaluator
from ncfbench.linting.facts import counted_columns
from ncfbench.linting.findings import Finding, finding
from ncfbench.linting.scenes import Ids
from ncfbench.timing.intervals import mean

USERS, ITEMS, LINKS = 60, 80, 480
"""Sizes of the graph without pairs."""
LOOKED_AT = 8
"""Batches whose gradients are looked at."""
LEAST_DRAWN = 0.001
"""Share of the drawn negatives that are links above which that is a fault."""
READ = 64
"""Batches of the user's own that are read."""
MOST_ROWS = {"gradients": 512, "drawn": 128, "quotients": 16}
"""Rows of a batch that are looked at, by what they cost."""
USER_NAMES = ("user", "user_id", "userid", "query", "anchor", "sentence1", "sentence_0")
ITEM_NAMES = ("item", "item_id", "itemid", "positive", "document", "sentence2", "sentence_1")


class Batch(NamedTuple):
    """The ids of a batch: [b], [b] and [b, k]."""

    user: Ids
    item: Ids
    negative: Ids


@dataclass(frozen=True)
class Contents:
    """The content of batches, a number for each batch whose gradients are looked at.

    Attributes:
        rows: of a batch, at most as many as were asked for.
        linked, linked_push: share of the pairs pushed apart that are training links, and of the
            push on them; the user's own item in another row is not among them.
        duplicates, duplicates_push: the same of that.
        drawn_linked: share of the drawn negatives that are training links, in all batches.
    """

    rows: int
    linked: list[float]
    linked_push: list[float]
    duplicates: list[float]
    duplicates_push: list[float]
    drawn_linked: list[float]


def default_graph() -> BipartiteGraph:
    """Return a small random graph in which popularity follows Zipf's law."""
    rng = np.random.default_rng(0)
    popularity = -0.9 * np.log(1 + rng.permutation(ITEMS))
    keys = rng.normal(0, 0.4, USERS)[:, None] + popularity + rng.gumbel(size=(USERS, ITEMS))
    pairs = np.argpartition(-keys.reshape(-1), LINKS)[:LINKS]
    # Every user and every item has a link.
    every = np.arange(max(USERS, ITEMS))
    pairs = np.unique(np.append(pairs, every % USERS * ITEMS + every % ITEMS))
    users, items = np.divmod(pairs, ITEMS)
    return BipartiteGraph.from_links(users, items, USERS, ITEMS)


def read_pairs(path: Path) -> BipartiteGraph:
    """Return the graph of a file of pairs: CSV, TSV, JSON Lines or Parquet.

    The columns are those named user and item, else the first two. Whole numbers from 0 keep their
    values, so that a loss can look ids up; other ids are numbered.

    Raises:
        DataError: it cannot be read, or has no pair.
    """
    table = read_table(path)
    if len(table.names) < 2:
        raise DataError(f"{path} has one column: pairs of a user and an item have two.")
    by_name = {name.lower(): name for name in reversed(table.names)}
    named = [
        next((by_name[word] for word in words if word in by_name), table.names[at])
        for at, words in enumerate((USER_NAMES, ITEM_NAMES))
    ]
    columns = [encode(table[name]) for name in named]
    is_pair = np.logical_and(*(column.codes >= 0 for column in columns))
    if not is_pair.any():
        raise DataError(f"{path} has no pair of {named[0]} and {named[1]}.")
    sides = [(column.names.to_pylist(), column.codes[is_pair]) for column in columns]
    (users, of_users), (items, of_items) = (_kept_numbers(*side) for side in sides)
    pairs = np.unique(users.astype(np.int64) * len(of_items) + items)
    ends = np.divmod(pairs, len(of_items))
    return BipartiteGraph.from_links(*ends, len(of_users), len(of_items), of_users, of_items)


def _kept_numbers(texts: Any, at: Ids) -> tuple[Ids, Sequence[Any]]:
    """Return ids by their indices in some texts, and the texts; small whole numbers are indices,
    and the texts a range.
    """
    if all(str(text).isdecimal() and len(str(text)) < 9 for text in texts):
        numbers = np.array(texts, np.int64)
        if (largest := int(numbers.max())) < max(100 * len(numbers), 10_000):
            return numbers[at], range(largest + 1)
    return at, list(texts)


def own_batches(
    source: Any, graph: BipartiteGraph | None, size: int
) -> tuple[list[Batch], BipartiteGraph]:
    """Read the first batches of the user's own iterable.

    Args:
        source: an iterable, or a function that returns one: of nothing, or of the links' users and
            items and the batch size. Ids are the pairs' own or, with links that are given so, the
            graph's numbers.

    Returns:
        batches, with ids as the graph numbers them, and the graph: without pairs that of the links
        that the function is given, or that of the batches' own links.

    Raises:
        UsageError: it yields no batches.
    """
    wanted = 0
    try:
        if callable(source) and not isinstance(source, Iterable):
            wanted = len(inspect.signature(source).parameters)
            graph = graph or (default_graph() if wanted else None)
            given = (graph.link_user, graph.link_item, size) if graph else ()
            source = source(*given[:wanted])
        batches = [_as_batch(each) for each in itertools.islice(source, READ)]
    except Exception as error:
        raise UsageError(
            f"The batches cannot be read: {type(error).__name__}: {reason(error)}. They must be"
            " tuples of users, items and, if there are any, negatives: [b], [b] and [b, k]."
        ) from error
    if not batches:
        raise UsageError("The batches are none: the iterable ends at once.")
    if graph is None:
        return _with_graph(batches)
    users, items = (
        _numbered(parts, names, n, are_numbers=wanted > 0)
        for parts, names, n in (
            ([batch.user for batch in batches], graph.user_ids, graph.n_users),
            ([part for batch in batches for part in batch[1:]], graph.item_ids, graph.n_items),
        )
    )
    return list(map(Batch, users, items[::2], items[1::2])), graph


def _as_batch(each: Any) -> Batch:
    if isinstance(each, dict):
        each = list(each.values())
    user, item, *rest = (np.asarray(part) for part in each)
    negative = rest[0] if rest else np.zeros((len(user), 0), np.int64)
    if user.ndim != 1 or user.shape != item.shape or len(negative) != len(user):
        raise ValueError(f"users {user.shape}, items {item.shape}, negatives {negative.shape}")
    if any(part.dtype.kind == "f" for part in (user, item, negative)):
        raise ValueError("ids are fractions, not whole numbers or texts")
    return Batch(user, item, negative.reshape(len(user), -1))


def _numbered(
    parts: Sequence[Ids], names: Sequence[Any] | None, n: int, *, are_numbers: bool
) -> list[Ids]:
    """Return arrays of ids with the graph's numbers in their place.

    Args:
        names: the graph's, by number; a range, or None, where numbers are their own names.
        are_numbers: whole numbers are the graph's whatever its names are.
    """
    are_numbers |= names is None or isinstance(names, range)
    index: dict[str, int] = {}
    found = []
    for part in parts:
        numbers, is_whole = part, part.dtype.kind in "iu"
        if not (is_whole and are_numbers):
            index = index or {str(name): at for at, name in enumerate(names or ())}
            different, at = np.unique(part if is_whole else part.astype(str), return_inverse=True)
            by_id = np.array([index.get(str(each), -1) for each in different], np.int64)
            numbers = by_id[at].reshape(part.shape)
        is_unknown = (numbers < 0) | (numbers >= n)
        if is_unknown.any():
            raise UsageError(
                f"The batches have an id that is in none of the pairs: {part[is_unknown][0]}. Give"
                " the pairs that the batches are made of with --pairs."
            )
        found.append(numbers.astype(np.int32))
    return found


def _with_graph(batches: list[Batch]) -> tuple[list[Batch], BipartiteGraph]:
    """Return batches and the graph of their links; ids that are no small numbers are numbered."""
    sides: list[list[Ids]] = []
    names: list[Sequence[Any]] = []
    for parts in ([b.user for b in batches], [part for b in batches for part in b[1:]]):
        texts, at = np.unique(np.concatenate([part.ravel() for part in parts]), return_inverse=True)
        at, own = _kept_numbers(texts, at)
        names.append(own)
        ends = np.split(at.astype(np.int32), np.cumsum([part.size for part in parts])[:-1])
        sides.append([end.reshape(part.shape) for end, part in zip(ends, parts, strict=True)])
    users, items, negatives = sides[0], sides[1][::2], sides[1][1::2]
    links = np.unique(np.stack([np.concatenate(users), np.concatenate(items)]), axis=1)
    graph = BipartiteGraph.from_links(*links, *map(len, names), *names)
    return list(map(Batch, users, items, negatives)), graph


def look(evaluator: Evaluator, size: int, own: list[Batch] | None) -> Contents:
    """Look at the gradients of some batches, of the user's own or of links drawn at random, and at
    all of the user's drawn negatives.
    """
    drawn_linked = [
        float(evaluator.graph.linked(batch.user[:, None], batch.negative).mean())
        for batch in own or ()
        if batch.negative.size
    ]
    found = Contents(0, [], [], [], [], drawn_linked)
    scenes, rows = evaluator.scenes(), size
    k = own[0].negative.shape[1] if own else evaluator.layout.k
    cost = "drawn" if k and evaluator.layout.k else "gradients"
    if evaluator.is_slow:
        cost = "quotients"
    most = MOST_ROWS[cost]
    for number in range(min(LOOKED_AT, len(own)) if own else LOOKED_AT):
        rng = np.random.default_rng((5, number))
        if own:
            user, item, negative = (part[:most] for part in own[number])
            takes = evaluator.layout.k if evaluator.layout.negatives == "single" else None
            negative = negative[:, : takes if evaluator.layout.k else 0]
            if evaluator.layout.k and not negative.size:
                negative = scenes.drawn(rng, user)
            scene = scenes.of_batch(rng, user, item, negative)
        else:
            scene = scenes.batch(rng, min(size, most))
        rows = scene.b
        layout = replace(evaluator.layout, k=scene.negative.shape[1])
        push = replace(evaluator, layout=layout).pushes(scene)
        is_negative = counted_columns(evaluator, push)
        is_same = scene.item[:, None] == scene.column_item[None, :]
        is_own = np.arange(push.shape[1])[None, :] == np.arange(rows)[:, None]
        is_negative &= ~is_own
        is_linked = scene.linked & ~is_same & is_negative
        total, amount = max(int(is_negative.sum()), 1), max(push[is_negative].sum(), 1e-30)
        found.linked.append(float(is_linked.sum()) / total)
        found.linked_push.append(float(push[is_linked].sum() / amount))
        is_again = is_same & is_negative
        found.duplicates.append(float(is_again.sum()) / total)
        found.duplicates_push.append(float(push[is_again].sum() / amount))
    return replace(found, rows=rows)


def log_spread(graph: BipartiteGraph) -> float:
    """Return the standard deviation over links of the logarithm of their items' links."""
    return float(np.std(np.log(graph.item_degrees[graph.link_item])))


def tilt(graph: BipartiteGraph, b: int) -> float:
    """Return the exponent of an item's probability in its chance to be in a batch of b links.

    It is 1 where batches are small and 0 where each has all items.
    """
    p = graph.item_degrees[graph.link_item] / graph.n_links
    chance = np.log(-np.expm1(b * np.log1p(-p)))
    x = np.log(p) - np.log(p).mean()
    return float(np.dot(x, chance) / max(np.dot(x, x), 1e-30))


def tilted(graph: BipartiteGraph, own: list[Batch]) -> Iterator[Finding]:
    """Say whether a softmax without a correction has negatives that are drawn by popularity.

    Their mean logarithm of popularity is compared with that of uniform items, 0, and that of links,
    1.
    """
    log_degree = np.log(np.maximum(graph.item_degrees, 1))
    uniform = log_degree[graph.items_in_use].mean()
    links = log_degree[graph.link_item].mean()
    some = [batch for batch in own if batch.negative.size][:LOOKED_AT]
    shares = [float((log_degree[b.negative].mean() - uniform) / (links - uniform)) for b in some]
    if links - uniform > 0.1 and shares and mean(shares).value > 0.3:
        unit = "popularity of the drawn negatives, 1 as links"
        yield finding("missing-logq", shares, unit, 0, "the batches draw popular items more often")


def drawn(contents: Contents) -> Iterator[Finding]:
    """Say whether the user's batches draw linked items as negatives."""
    if contents.drawn_linked:
        unit, detail = "share of the drawn negatives", f"{READ} batches at most"
        result = finding("sampled-positives", contents.drawn_linked, unit, 0, detail)
        if result.low > LEAST_DRAWN:
            yield result
