"""Checks of models before anything is trained: the content that they read, and plug-ins, which are
built and called on a few made items, users or scores.
"""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from ncfbench.catalog import BUILT_IN, find
from ncfbench.config import RunConfig
from ncfbench.data import Dataset
from ncfbench.errors import NcfbenchError, UsageError, reason
from ncfbench.models.content import require_content
from ncfbench.models.encoders.protocol import DataFacts, EncoderInput
from ncfbench.models.histories import History
from ncfbench.models.losses import Loss, make_loss
from ncfbench.models.user_towers import Users

ITEMS, USERS, LISTED = 7, 5, 3
"""Items, users, and items of each user's list in a call: no two are equal."""
SCORES = np.array([0.07, 0.3, 0.9, 3.1, 11.0, 50.0], np.float32)
"""Scores at which a loss is called, and their negatives."""
TOLERANCE = 1e-4
"""Difference of two results that count as equal, relative to the largest number."""

Checks: TypeAlias = Generator[tuple[Any, str], None, Any]
"""Conditions, and each one's fault where it does not hold; the first fault is reported."""


def require_contracts(config: RunConfig, dataset: Dataset) -> None:
    """Refuse a model that reads what the data set does not have, and plug-ins that fail or do not
    keep their contract.

    Raises:
        UsageError: the message says what to use instead, or names the plug-in and what it must do.
    """
    require_content(config, dataset)
    _require_plugins(config, DataFacts.of(dataset), dataset.tokens_IxL.shape[1])


@functools.cache
def _require_plugins(config: RunConfig, data: DataFacts, length: int) -> None:
    for kind, checks in CHECKS.items():
        name = getattr(config, kind)
        if name in BUILT_IN[kind]:
            continue
        title, info = f"The {kind.replace('_', ' ')} {name}", find(kind, name)
        try:
            for holds, fault in checks(config, info, data, length):
                if not holds:
                    raise UsageError(f"{title} {fault}.")
        except NcfbenchError:
            raise
        except Exception as error:
            raise UsageError(
                f"{title} fails{_line(error, info.load())}: {type(error).__name__}:"
                f" {reason(error)}."
            ) from error


def _line(error: Exception, plugin: type) -> str:
    """Return where in the plug-in's own file an error was raised; empty if that is not known."""
    try:
        file = inspect.getsourcefile(plugin) or ""
    except TypeError:
        return ""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == file]
    return f" ({Path(file).name}, line {lines[-1]})" if lines else ""


def _encoder(config: RunConfig, info: Any, data: DataFacts, length: int) -> Checks:
    """Tokens after the last word must not affect the result, nor other items, nor chance."""
    module = yield from _built(info, config, data)
    yield from _named("item_tables", info.item_tables, module, data.items)
    yield from _named("word_tables", info.word_tables, module, data.words + 1)
    yield from _named("pretrained_parts", info.pretrained_parts, module)
    rng, longest = np.random.default_rng(0), max(length // 2, 1)
    lengths = np.minimum([longest, (longest + 1) // 2, 0, 1, 2, 3, longest], longest)
    lengths = (lengths * bool(data.words)).astype(np.int32)
    tokens = rng.integers(1, max(data.words, 1) + 1, (ITEMS, 2 * longest), np.int32)
    present = np.arange(2 * longest)[None, :] < lengths[:, None]
    features = rng.normal(size=(ITEMS, data.item_features)).astype(np.float32)
    items = np.arange(ITEMS, dtype=np.int32) % data.items
    arrays = items, tokens * present, present, lengths, features if data.item_features else None
    padded = EncoderInput(*jax.device_put(arrays))
    texts = padded._replace(tokens=padded.tokens[:, :longest], present=padded.present[:, :longest])
    yield from _rows(
        config,
        module,
        padded,
        texts,
        "items",
        "gives an item another vector where other items stand beside it",
        "gives a text another vector where more padding follows its last word: leave out tokens at"
        " which texts.present is false",
    )
    if info.word_tables and data.words:
        other = texts._replace(tokens=_next_rows(texts.tokens, data.words))
        yield from _by_row("word_tables", info.word_tables, module, texts, other, "texts.tokens")


def _user_tower(config: RunConfig, info: Any, data: DataFacts, _: int) -> Checks:
    """A user's vector must be that of her row, whoever stands beside her."""
    module = yield from _built(info, config, data)
    yield from _named("user_tables", info.user_tables, module, data.users)
    yield from _named("history_tables", info.history_tables, module, data.items)
    features = np.random.default_rng(0).normal(size=(USERS, data.user_features))
    rows = np.arange(USERS, dtype=np.int32) % data.users
    given = features.astype(np.float32) if data.user_features else None
    history = _made_history(config, data) if "history" in info.content else None
    users = Users(*jax.device_put((rows, given, history)))
    beside = (
        "gives a user another vector where other users stand beside her: it must be that of her"
        " row in Users.rows"
    )
    other, otherwise = users, beside
    if users.history is not None:
        items = jnp.where(users.history.present, users.history.items, 0)
        other = users._replace(history=users.history._replace(items=items))
        otherwise = (
            "gives a user another vector where other ids fill up her history: leave out items at"
            " which history.present is false"
        )
    yield from _rows(config, module, users, other, "users", beside, otherwise)
    if info.history_tables and users.history is not None:
        items = _next_rows(users.history.items, data.items - 1)
        other = users._replace(history=users.history._replace(items=items))
        use = "history_tables", info.history_tables, module, users, other, "history.items"
        yield from _by_row(*use)


def _made_history(config: RunConfig, data: DataFacts) -> History:
    rng, shape = np.random.default_rng(1), (USERS, config.history_items)
    features = rng.normal(size=(USERS, data.item_features))
    return History(
        jnp.asarray(rng.integers(0, data.items, shape), jnp.int32),
        jnp.asarray(np.arange(shape[1])[None, :] < np.arange(USERS)[:, None]),
        jnp.asarray(features, jnp.float32) if data.item_features else None,
    )


def _interaction(config: RunConfig, info: Any, *_: Any) -> Checks:
    """All layouts must give a pair of a user and an item one score."""
    graph, parameters = yield from _built(info, config)
    score, rng = nnx.merge(graph, parameters), np.random.default_rng(0)
    users, items = (
        rng.normal(size=(n, config.dimension)).astype(np.float32) for n in (USERS, ITEMS)
    )
    every, listed = np.arange(USERS), rng.integers(0, ITEMS, (USERS, LISTED))
    row, column = np.array([4, 0, 2], np.int32), np.array([1, 6, 3], np.int32)
    layouts: tuple[tuple[str, Any, Any, tuple[Any, ...]], ...] = (
        ("pairs", items[:USERS], (every, every), ()),
        ("lists", items[listed], (every[:, None], listed), ()),
        ("matrix", items, np.ix_(every, np.arange(ITEMS)), ()),
        ("indexed", items, (row, column), (row, column)),
    )

    def pair(user: Any, item: Any) -> Any:
        return score.pairs(user[None], item[None])[0]

    for layout, given, index, more in layouts:
        scores = jax.eval_shape(getattr(score, layout), users, given, *more)
        shape = np.broadcast_shapes(*(axis.shape for axis in index))
        made = f"from {layout} for users {users.shape} and items {given.shape}"
        yield _shaped(scores, shape, made, config)

    @jax.jit
    def all_scores() -> Any:
        one_by_one = jax.vmap(jax.vmap(pair, (None, 0)), (0, None))(users, items)
        return one_by_one, [
            getattr(score, layout)(users, given, *more) for layout, given, _, more in layouts
        ]

    expected, found = jax.device_get(all_scores())
    yield np.isfinite(expected).all(), "returns scores that are not finite"
    for (layout, _, index, _), scores in zip(layouts, found, strict=True):
        yield (
            _are_alike(expected[index], scores),
            f"gives users and items other scores from {layout} than from pairs of one user and one"
            " item",
        )


def _loss(config: RunConfig, *_: Any) -> Checks:
    """A loss must fall when a positive's score rises, and rise when a negative's does."""
    loss = make_loss(config)
    forms = [loss.rows]
    if type(loss).batch_rows is not Loss.batch_rows:
        forms.append(loss.batch_rows)
    for form in forms:

        def rows(*links: jax.Array, form: Any = form) -> Any:
            return form(*links, config.lambda_)

        yield from _slopes(config, rows)


def _slopes(config: RunConfig, rows: Callable[..., Any]) -> Checks:
    """Compare losses at a score and at minus it, where the other scores are 0; a squared distance
    need not be monotone.
    """
    scores, n = np.concatenate([SCORES, -SCORES]), 2 * len(SCORES)
    positive = np.concatenate([scores, 0 * scores])
    negative = np.zeros((2 * n, LISTED), np.float32)
    negative[n:, 0] = scores
    weight = np.full(negative.shape, 1 / LISTED, np.float32)

    def total(positive: jax.Array, negative: jax.Array) -> jax.Array:
        return jnp.sum(rows(positive, negative, weight))

    def alone(*row: jax.Array) -> Any:
        return rows(*(part[None] for part in row))[0]

    @jax.jit
    def everything(*links: jax.Array) -> Any:
        positive, *lists = links
        more = (jnp.pad(part, ((0, 0), (0, 1))) for part in lists)
        slopes = jax.grad(total, (0, 1))(positive, lists[0])
        return rows(*links), slopes, jax.vmap(alone)(*links), rows(positive, *more)

    shape = jax.eval_shape(rows, positive, negative, weight)
    yield _shaped(shape, (2 * n,), f"for {2 * n} links of {LISTED} negatives", config)
    losses, slopes, by_row, padded = jax.device_get(everything(positive, negative, weight))
    yield (
        all(np.isfinite(part).all() for part in (losses, *slopes)),
        "is not finite, or its slope is not, at scores of -50 to 50: use a form without overflow,"
        " such as jax.nn.softplus or logsumexp",
    )
    yield _are_alike(losses, by_row, 1e-2), "mixes links: a row's loss must depend on it alone"
    yield _are_alike(losses, padded, 1e-2), "counts negatives whose weight is 0"
    high, low, above, below = np.split(losses, 4)
    falls, rises = low - high, above - below
    yield (
        (falls >= -TOLERANCE * np.abs(low)).all() and (falls > TOLERANCE * np.abs(low)).any(),
        "does not fall when the score of a positive link rises",
    )
    # The square of a negative's score is the same at minus the score, and rises above 0.
    most = max(rises.max(), above[-1] - above[0])
    yield (
        (rises >= -TOLERANCE * np.abs(above)).all() and most > TOLERANCE * np.abs(above).max(),
        "does not rise when the score of a negative link rises",
    )


CHECKS: dict[Any, Callable[..., Checks]] = {
    "encoder": _encoder,
    "user_tower": _user_tower,
    "interaction": _interaction,
    "loss": _loss,
}


def _built(info: Any, config: RunConfig, *data: DataFacts) -> Checks:
    """Return the graph and the parameters of a module, with noise in place of zeros, which would
    hide faults.
    """
    graph, variables = nnx.split(info.load()(config, *data, rngs=nnx.Rngs(config.seed)))
    leaves, structure = jax.tree_util.tree_flatten_with_path(nnx.as_pure(variables))
    rng, noisy = np.random.default_rng(0), []
    for path, leaf in leaves:
        yield (
            jnp.issubdtype(leaf.dtype, jnp.floating),
            f"keeps {jax.tree_util.keystr(path)} of {leaf.dtype}, and what a module keeps is"
            " trained: keep floating-point parameters alone, and no random numbers",
        )
        held = np.asarray(leaf)
        noisy.append(held if held.any() else rng.normal(0, 0.1, held.shape).astype(held.dtype))
    return graph, jax.tree.unflatten(structure, jax.device_put(noisy))


def _named(declaration: str, names: tuple[str, ...], module: Any, rows: int = 0) -> Checks:
    leaves = jax.tree_util.tree_leaves_with_path(module[1])
    for name in names:
        parts = [leaf for path, leaf in leaves if jax.tree_util.DictKey(name) in path]
        yield (
            parts and all(len(leaf) == rows or not rows for leaf in parts),
            f"declares {declaration} with {name!r}, and has nothing of that name"
            + (f" with {rows:,} rows" if rows else ""),
        )


def _shaped(result: Any, shape: tuple[int, ...], made: str, config: RunConfig) -> tuple[bool, str]:
    expected = f"float32[{', '.join(map(str, shape))}]"
    returned = f"a {type(result).__name__}"
    if isinstance(result, jax.Array | jax.ShapeDtypeStruct):
        returned = f"{result.dtype}[{', '.join(map(str, result.shape))}]"
    return returned == expected, (
        f"returns {returned} {made}, and it must return {expected} (--dimension is"
        f" {config.dimension})"
    )


def _rows(
    config: RunConfig, module: Any, inputs: Any, other: Any, what: str, beside: str, otherwise: str
) -> Checks:
    """An encoder or a user tower gives each row of ``inputs`` one vector, by that row alone.

    Args:
        other: the same items or users in another form.
        beside: fault of rows that depend on others.
        otherwise: fault of another result for the other form.
    """

    def call(inputs: Any) -> jax.Array:
        vectors: jax.Array = nnx.merge(*module)(inputs)
        return vectors

    n = len(inputs[0])
    shape = n, config.dimension
    yield _shaped(jax.eval_shape(call, inputs), shape, f"for {n} {what}", config)
    order = np.array([3] * (n - 3) + [2, 1, 0])

    @jax.jit
    def calls(inputs: Any, other: Any) -> list[jax.Array]:
        reordered = jax.tree.map(lambda array: array[order], inputs)
        return [call(each) for each in (inputs, inputs, reordered, other)]

    vectors, again, others, last = jax.device_get(calls(inputs, other))
    yield np.isfinite(vectors).all(), "returns vectors that are not finite"
    yield _are_alike(vectors, again), "returns other vectors when it is called again"
    yield _are_alike(vectors[:3], others[:-4:-1]), beside
    yield _are_alike(vectors, last), otherwise


def _next_rows(rows: jax.Array, last: int) -> jax.Array:
    return jnp.where(rows > 0, rows % max(last, 1) + 1, 0)


def _by_row(
    declaration: str, names: tuple[str, ...], module: Any, inputs: Any, other: Any, rows: str
) -> Checks:
    """Where rows of tables have moved to the next, a module reads them by the next rows."""

    def moved(path: Any, leaf: jax.Array) -> jax.Array:
        is_table = any(jax.tree_util.DictKey(name) in path for name in names)
        return jnp.concatenate([leaf[:1], jnp.roll(leaf[1:], 1, axis=0)]) if is_table else leaf

    @jax.jit
    def vectors(parameters: Any, inputs: Any) -> Any:
        return nnx.merge(module[0], parameters)(inputs)

    found = vectors(module[1], inputs), vectors(jax.tree.map_with_path(moved, module[1]), other)
    yield (
        _are_alike(*found),
        (
            f"declares {declaration} with {names[0]!r}, and gives other vectors where {rows} are"
            " other rows of it: use them for nothing else"
        ),
    )


def _are_alike(one: Any, other: Any, scale: float | None = None) -> bool:
    """Return whether two results are equal, relative to a scale, by default the largest number."""
    atol = TOLERANCE * (np.abs(one).max() if scale is None else scale)
    return bool(np.allclose(one, other, rtol=TOLERANCE, atol=atol))
