"""What plug-ins must keep to, checked before anything is trained.

A plug-in is built and called on a few made items, users or scores. Tests hold the built-in classes
to the same.
"""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from ncfbench.catalog import BUILT_IN, find, find_encoder, find_user_tower
from ncfbench.config import RunConfig
from ncfbench.data import Dataset
from ncfbench.errors import NcfbenchError, UsageError, reason
from ncfbench.models.encoders.protocol import DataFacts, EncoderInput
from ncfbench.models.losses import Loss, Pointwise, make_loss
from ncfbench.models.precision import full
from ncfbench.models.user_table import Users
from ncfbench.settings import Kind

ITEMS, USERS, LISTED = 7, 5, 3
"""Items, users, and items of each user's list in a call: no two are equal."""
SCORES = np.array([0.07, 0.3, 0.9, 3.1, 11.0, 50.0], np.float32)
"""Scores at which a loss is called, and their negatives."""
TOLERANCE = 1e-4
"""Difference of two results that are one, relative to the largest number."""


def require_contracts(config: RunConfig, dataset: Dataset) -> None:
    """Refuse a model that reads what the data set does not have, and plug-ins that fail or do not
    keep their contract.

    Raises:
        UsageError: the message says what to use instead, or names the plug-in and what it must do.
    """
    data = DataFacts.of(dataset)
    require_content(config, data)
    require = getattr(find_encoder(config.encoder).load(), "require", None)
    if require is not None:
        require(config, dataset)
    _require_plugins(config, data, dataset.tokens_IxL.shape[1])


def require_content(config: RunConfig, data: DataFacts) -> None:
    """Refuse an encoder or a user tower that reads what the data set does not have.

    Raises:
        UsageError: the message says what to use instead.
    """
    reads = find_encoder(config.encoder).content
    if "features" in reads and not data.item_features:
        raise UsageError(
            f"--encoder {config.encoder} reads dense features of items, and {config.dataset} has"
            " none. Prepare your data with --item-features FILE, or use another --encoder."
        )
    if reads == ("text",) and not data.words:
        raise UsageError(
            f"--encoder {config.encoder} reads texts, and {config.dataset} has none. Use --encoder"
            " mlp, which reads its dense features."
        )
    if "features" in find_user_tower(config.user_tower).content and not data.user_features:
        raise UsageError(
            f"--user-tower {config.user_tower} reads dense features of users, and {config.dataset}"
            " has none. Prepare your data with --user-features FILE, or use --user-tower table."
        )


@functools.cache
@full
def _require_plugins(config: RunConfig, data: DataFacts, length: int) -> None:
    checks: dict[Kind, Callable[[Plugin], None]] = {
        "encoder": lambda plugin: _require_encoder(plugin, data, length),
        "user_tower": lambda plugin: _require_user_tower(plugin, data),
        "interaction": _require_interaction,
        "loss": _require_loss,
    }
    for kind, check in checks.items():
        if getattr(config, kind) not in BUILT_IN[kind]:
            check(Plugin(config, kind))


class Plugin:
    """A class of the user's own, and how its faults are named."""

    def __init__(self, config: RunConfig, kind: Kind) -> None:
        self.config, self.kind, self.name = config, kind, getattr(config, kind)
        self.declared: Any = find(kind, self.name)

    def require(self, holds: Any, fault: str) -> None:
        """Refuse the plug-in, in one sentence, if something does not hold."""
        if not holds:
            raise UsageError(f"The {self.kind.replace('_', ' ')} {self.name} {fault}.")

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return what a function gives; its errors are the plug-in's."""
        try:
            return function(*arguments)
        except NcfbenchError:
            raise
        except Exception as error:
            line = _line(error, self.declared.load())
            raise UsageError(
                f"The {self.kind.replace('_', ' ')} {self.name} fails{line}:"
                f" {type(error).__name__}: {reason(error)}."
            ) from error

    def require_shape(
        self, function: Callable[..., Any], arguments: Any, shape: tuple[int, ...], what: str
    ) -> None:
        """Refuse a function whose trace is not float32 of a shape."""
        found = self.call(jax.eval_shape, function, *arguments)
        expected = jax.ShapeDtypeStruct(shape, jnp.float32)
        is_array = isinstance(found, jax.ShapeDtypeStruct)
        shown = _text(found) if is_array else f"a {type(found).__name__}"
        self.require(
            is_array and (found.shape, found.dtype) == (expected.shape, expected.dtype),
            f"returns {shown} {what}, and it must return {_text(expected)} (--dimension is"
            f" {self.config.dimension})",
        )

    def build(self, *arguments: Any) -> tuple[Any, Any]:
        """Return the graph and the parameters of a module; those that begin with 0 are noise, so
        that nothing is hidden by them.
        """
        build, rngs = self.declared.load(), nnx.Rngs(self.config.seed)
        module = self.call(functools.partial(build, self.config, *arguments, rngs=rngs))
        graph, variables = nnx.split(module)
        rng = np.random.default_rng(0)

        def noisy(path: Any, leaf: Any) -> Any:
            self.require(
                jnp.issubdtype(leaf.dtype, jnp.floating),
                f"keeps {jax.tree_util.keystr(path)} of {leaf.dtype}, and what a module keeps is"
                " trained: keep floating-point parameters alone, and no random numbers",
            )
            noise = 0 if jnp.any(leaf) else rng.normal(0, 0.1, leaf.shape)
            return leaf + jnp.asarray(noise, leaf.dtype)

        return graph, jax.tree.map_with_path(noisy, nnx.as_pure(variables))

    def require_parts(
        self, declaration: str, names: tuple[str, ...], module: Any, rows: int = 0
    ) -> None:
        """Refuse declared parts that the module does not have, and tables with other rows."""
        leaves = jax.tree_util.tree_leaves_with_path(module[1])
        for name in names:
            found = [leaf for path, leaf in leaves if jax.tree_util.DictKey(name) in path]
            self.require(
                found and all(len(leaf) == rows or not rows for leaf in found),
                f"declares {declaration} with {name!r}, and has nothing of that name"
                + (f" with {rows:,} rows" if rows else ""),
            )


def _require_encoder(plugin: Plugin, data: DataFacts, length: int) -> None:
    """Tokens after the last word must not affect the result, nor other items, nor chance."""
    module = plugin.build(data)
    words = ("words",) if plugin.config.word_vectors else ()
    plugin.require_parts("item_tables", plugin.declared.item_tables, module, data.items)
    plugin.require_parts("pretrained_parts", plugin.declared.pretrained_parts, module)
    plugin.require_parts("word_vectors", words, module, data.words + 1)
    length = max(length, 2)
    half = length // 2
    texts = _made_texts(data, length, half)
    cut = texts._replace(tokens=texts.tokens[:, :half], present=texts.present[:, :half])
    faults = (
        "gives an item another vector where other items stand beside it",
        "gives a text another vector where more padding follows its last word: leave out tokens at"
        " which texts.present is false",
    )
    _require_rows(plugin, module, texts, cut, faults)


def _require_rows(
    plugin: Plugin, module: Any, inputs: Any, other: Any, faults: tuple[str, str]
) -> None:
    """Require one vector of an encoder or a user tower for each row, by that row alone.

    Args:
        module: its graph and parameters.
        inputs: n items or users.
        other: the same ones in another form.
        faults: of rows that depend on others, and of another result for ``other``.
    """
    n, run = len(inputs[0]), _compiled(module)
    what = f"for {n} {'items' if plugin.kind == 'encoder' else 'users'}"
    call = functools.partial(_called, module)
    plugin.require_shape(call, (inputs,), (n, plugin.config.dimension), what)
    vectors = np.asarray(plugin.call(run, inputs))
    plugin.require(np.isfinite(vectors).all(), "returns vectors that are not finite")
    beside = np.array([3] * (n - 3) + [2, 1, 0])
    others = plugin.call(run, jax.tree.map(lambda array: array[beside], inputs))
    plugin.require(_are_alike(vectors[:3], others[:-4:-1]), faults[0])
    # Traced anew, so that numbers drawn in a call show.
    if not _are_alike(vectors, plugin.call(_compiled(module), other)):
        again = plugin.call(_compiled(module), inputs)
        plugin.require(_are_alike(vectors, again), "returns other vectors when it is called again")
        plugin.require(False, faults[1])


def _called(module: Any, inputs: Any) -> jax.Array:
    vectors: jax.Array = nnx.merge(*module)(inputs)
    return vectors


def _compiled(module: Any) -> Callable[[Any], jax.Array]:
    """Return a call of the module that is compiled anew, quickly: it takes no time itself."""
    options = {"xla_backend_optimization_level": 0}
    run = jax.jit(lambda *given: _called((module[0], given[0]), given[1]), compiler_options=options)
    return functools.partial(run, module[1])


def _made_texts(data: DataFacts, length: int, longest: int) -> EncoderInput:
    """Return random items: a text of the longest length, a shorter one, none, one word, others."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, longest + 1, ITEMS).astype(np.int32)
    lengths[:4] = longest, (longest + 1) // 2, 0, 1
    lengths *= bool(data.words)
    present = np.arange(length)[None, :] < lengths[:, None]
    tokens = rng.integers(1, max(data.words, 1) + 1, present.shape, np.int32) * present
    features = rng.normal(size=(ITEMS, data.item_features)).astype(np.float32)
    items = np.arange(ITEMS, dtype=np.int32) % data.items
    texts = EncoderInput(*map(jnp.asarray, (items, tokens, present, lengths, features)))
    return texts if data.item_features else texts._replace(features=None)


def _require_user_tower(plugin: Plugin, data: DataFacts) -> None:
    """A user's vector must be that of her row, whoever stands beside her."""
    module = plugin.build(data)
    plugin.require_parts("user_tables", plugin.declared.user_tables, module, data.users)
    features = np.random.default_rng(0).normal(size=(USERS, data.user_features))
    users = Users(
        jnp.arange(USERS, dtype=jnp.int32) % data.users,
        jnp.asarray(features, jnp.float32) if data.user_features else None,
    )
    beside = (
        "gives a user another vector where other users stand beside her: it must be that of her"
        " row in Users.rows"
    )
    _require_rows(plugin, module, users, users, (beside, beside))


def _require_interaction(plugin: Plugin) -> None:
    """All layouts must give a pair of a user and an item one score."""
    graph, parameters = plugin.build()
    rng, d = np.random.default_rng(0), plugin.config.dimension
    users, items = (jnp.asarray(rng.normal(size=(n, d)), jnp.float32) for n in (USERS, ITEMS))
    every, listed = np.arange(USERS), rng.integers(0, ITEMS, (USERS, LISTED))
    row, column = np.array([4, 0, 2], np.int32), np.array([1, 6, 3], np.int32)
    score = nnx.merge(graph, parameters)
    forms: tuple[tuple[str, Any, Any, tuple[Any, ...]], ...] = (
        ("pairs", items[:USERS], (every, every), ()),
        ("lists", items[listed], (every[:, None], listed), ()),
        ("matrix", items, np.ix_(every, np.arange(ITEMS)), ()),
        ("indexed", items, (row, column), (row, column)),
    )
    for form, given, index, more in forms:
        shape = np.broadcast_shapes(*(axis.shape for axis in index))
        what = f"from {form} for users {users.shape} and items {given.shape}"
        plugin.require_shape(getattr(score, form), (users, given, *more), shape, what)

    def pair(user: Any, item: Any) -> Any:
        return score.pairs(user[None], item[None])[0]

    each_pair = jax.jit(jax.vmap(jax.vmap(pair, (None, 0)), (0, None)))
    expected = np.asarray(plugin.call(each_pair, users, items))
    plugin.require(np.isfinite(expected).all(), "returns scores that are not finite")
    for form, given, index, more in forms:
        plugin.require(
            _are_alike(expected[index], plugin.call(getattr(score, form), users, given, *more)),
            f"gives users and items other scores from {form} than from pairs of one user and one"
            " item",
        )


def _require_loss(plugin: Plugin) -> None:
    """A loss must fall when a positive's score rises, and rise when a negative's does."""
    loss, lambda_ = plugin.call(make_loss, plugin.config), plugin.config.lambda_
    has_own = type(loss).batch_rows is not Loss.batch_rows
    for form in [loss.rows, loss.batch_rows] if has_own else [loss.rows]:

        def rows(positive: Any, negative: Any, weight: Any, form: Any = form) -> Any:
            return form(positive, negative, weight, lambda_)

        few = jnp.zeros(USERS), jnp.zeros((USERS, LISTED)), jnp.ones((USERS, LISTED))
        plugin.require_shape(rows, few, (USERS,), f"for {USERS} links of {LISTED} negatives")
        _require_slopes(plugin, rows)
    if isinstance(loss, Pointwise):
        _require_negative_terms(plugin, loss)


def _require_slopes(plugin: Plugin, rows: Callable[..., Any]) -> None:
    """Compare each loss at a score with that at minus it; a squared distance need not be monotone.

    The other scores are 0.
    """
    n = len(SCORES)
    positive, negative = np.zeros(4 * n, np.float32), np.zeros((4 * n, LISTED), np.float32)
    positive[:n], positive[n : 2 * n] = SCORES, -SCORES
    negative[2 * n : 3 * n, 0], negative[3 * n :, 0] = SCORES, -SCORES
    weight = np.full(negative.shape, 1 / LISTED, np.float32)

    @jax.jit
    def computed(positive: Any, negative: Any, weight: Any) -> tuple[Any, ...]:
        def alone(*row: Any) -> Any:
            return rows(*(part[None] for part in row))[0]

        def total(positive: Any, negative: Any) -> Any:
            return jnp.sum(rows(positive, negative, weight))

        slopes: Any = jax.grad(total, (0, 1))
        silent = [jnp.pad(each, ((0, 0), (0, 1))) for each in (negative, weight)]
        return (
            rows(positive, negative, weight),
            jax.vmap(alone)(positive, negative, weight),
            rows(positive, *silent),
            slopes(positive, negative),
        )

    found, alone, padded, slopes = plugin.call(computed, positive, negative, weight)
    found = np.asarray(found)
    plugin.require(
        all(np.isfinite(each).all() for each in (found, *slopes)),
        "is not finite, or its slope is not, at scores of -50 to 50: use a form without overflow,"
        " such as jax.nn.softplus or logsumexp",
    )
    plugin.require(
        _are_alike(found, alone, 1e-2), "mixes links: a row's loss must depend on it alone"
    )
    plugin.require(_are_alike(found, padded, 1e-2), "counts negatives whose weight is 0")
    high, low, above, below = np.split(found, 4)
    falls = low - high
    rises = above - below
    plugin.require(
        (falls >= -TOLERANCE * np.abs(low)).all() and (falls > TOLERANCE * np.abs(low)).any(),
        "does not fall when the score of a positive link rises",
    )
    # The square of a negative's score is the same at minus the score, and rises above 0.
    most = max(rises.max(), above[-1] - above[0])
    plugin.require(
        (rises >= -TOLERANCE * np.abs(above)).all() and most > TOLERANCE * np.abs(above).max(),
        "does not rise when the score of a negative link rises",
    )


def _require_negative_terms(plugin: Plugin, loss: Pointwise) -> None:
    """The faster forms of a pointwise loss's negative term must be that term."""
    scores = jnp.concatenate([-SCORES, SCORES])
    expected = plugin.call(Pointwise.negative_and_slope, loss, scores)
    plugin.require(
        _are_alike(expected, plugin.call(loss.negative_and_slope, scores), 1e-2),
        "gives another value or slope from negative_and_slope",
    )
    plugin.require(
        not loss.squares_negatives or _are_alike(scores**2, expected[0], 1e-2),
        "declares squares_negatives, and does not square them",
    )
    at = loss.costless_score
    plugin.require(
        at is None or np.allclose(plugin.call(loss.negative_and_slope, jnp.float32(at)), 0),
        f"declares costless_score = {at}, and its loss is not 0 there",
    )


def _are_alike(one: Any, other: Any, scale: float | None = None) -> bool:
    """Return whether two results are one, relative to a scale, by default the largest number."""
    atol = TOLERANCE * (np.abs(one).max() if scale is None else scale)
    return bool(np.allclose(one, other, rtol=TOLERANCE, atol=atol))


def _text(array: jax.ShapeDtypeStruct) -> str:
    return f"{array.dtype}[{', '.join(map(str, array.shape))}]"


def _line(error: Exception, plugin: type) -> str:
    """Return where in the plug-in's own file an error was raised; empty if that is not known."""
    try:
        file = inspect.getsourcefile(plugin)
    except TypeError:
        return ""
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == file
    ]
    return f" ({Path(file).name}, line {lines[-1]})" if file and lines else ""
