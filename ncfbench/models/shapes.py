"""Shapes of what plug-ins return, checked before anything is trained: they are traced, not run."""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from ncfbench.catalog import BUILT_IN, find, find_encoder, find_user_tower
from ncfbench.config import RunConfig
from ncfbench.data import Dataset
from ncfbench.errors import NcfbenchError, UsageError, reason
from ncfbench.models.encoders.protocol import DataFacts, Texts
from ncfbench.models.losses import make_loss
from ncfbench.models.user_table import Users
from ncfbench.settings import Kind

ITEMS, USERS, LISTED = 7, 5, 3
"""Items, users, and items of each user's list in what is traced: no two are equal."""


def require_shapes(config: RunConfig, dataset: Dataset) -> None:
    """Refuse a model that reads what the data set does not have, and plug-ins that fail, or return
    another shape or type than they must.

    Raises:
        UsageError: the message says what to use instead, or names the plug-in and what it must
            return.
    """
    data = DataFacts.of(dataset)
    require_content(config, data)
    require = getattr(find_encoder(config.encoder).load(), "require", None)
    if require is not None:
        require(config, dataset)
    _require(config, data, dataset.tokens_IxL.shape[1])


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
def _require(config: RunConfig, data: DataFacts, length: int) -> None:
    d = config.dimension
    if _is_plugin(config, "encoder"):
        build = find("encoder", config.encoder).load()

        def encode(texts: Texts) -> Any:
            return build(config, data, rngs=nnx.Rngs(config.seed))(texts)

        texts = Texts._make(
            [
                _shape(ITEMS, dtype=jnp.int32),
                _shape(ITEMS, length, dtype=jnp.int32),
                _shape(ITEMS, length, dtype=jnp.bool_),
                _shape(ITEMS, dtype=jnp.int32),
                _shape(ITEMS, data.item_features) if data.item_features else None,
            ]
        )
        _check(config, "encoder", encode, (texts,), (ITEMS, d), f"for {ITEMS} items")
    if _is_plugin(config, "user_tower"):
        build_users = find("user_tower", config.user_tower).load()

        def embed(users: Users) -> Any:
            return build_users(config, data, rngs=nnx.Rngs(config.seed))(users)

        features = _shape(USERS, data.user_features) if data.user_features else None
        users = Users._make([_shape(USERS, dtype=jnp.int32), features])
        _check(config, "user_tower", embed, (users,), (USERS, d), f"for {USERS} users")
    if _is_plugin(config, "interaction"):
        build_score = find("interaction", config.interaction).load()
        vectors = _shape(USERS, d)
        forms = (
            ("pairs", _shape(USERS, d), (USERS,)),
            ("lists", _shape(USERS, LISTED, d), (USERS, LISTED)),
            ("matrix", _shape(ITEMS, d), (USERS, ITEMS)),
            ("indexed", _shape(ITEMS, d), (LISTED,)),
        )
        first = jnp.zeros(LISTED, jnp.int32)
        for form, items, wanted in forms:

            def score(users: jax.Array, items: jax.Array, form: str = form) -> Any:
                built = build_score(config, rngs=nnx.Rngs(config.seed))
                return getattr(built, form)(users, items, *[first, first] * (form == "indexed"))

            what = f"from {form} for users {vectors.shape} and items {items.shape}"
            _check(config, "interaction", score, (vectors, items), wanted, what)
    if _is_plugin(config, "loss"):
        loss = make_loss(config)
        scores = (_shape(USERS), _shape(USERS, LISTED), _shape(USERS, LISTED))

        def rows(positive: jax.Array, negative: jax.Array, weight: jax.Array) -> Any:
            return loss.rows(positive, negative, weight, config.lambda_)

        _check(config, "loss", rows, scores, (USERS,), f"for {USERS} links of {LISTED} negatives")


def _is_plugin(config: RunConfig, kind: Kind) -> bool:
    return getattr(config, kind) not in BUILT_IN[kind]


def _shape(*shape: int, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def _check(
    config: RunConfig,
    kind: Kind,
    call: Callable[..., Any],
    arguments: tuple[Any, ...],
    wanted: tuple[int, ...],
    what: str,
) -> None:
    """Trace a call of a plug-in, and compare the result with float32 of a shape."""
    name = getattr(config, kind)
    plugin = f"The {kind.replace('_', ' ')} {name}"
    try:
        found = jax.eval_shape(call, *arguments)
    except NcfbenchError:
        raise
    except Exception as error:
        raise UsageError(
            f"{plugin} fails{_line(error, find(kind, name).load())}: {type(error).__name__}:"
            f" {reason(error)}."
        ) from error
    expected = _shape(*wanted)
    is_array = isinstance(found, jax.ShapeDtypeStruct)
    if not is_array or (found.shape, found.dtype) != (expected.shape, expected.dtype):
        shown = _text(found) if is_array else f"a {type(found).__name__}"
        raise UsageError(
            f"{plugin} returns {shown} {what}, and it must return {_text(expected)} (--dimension is"
            f" {config.dimension})."
        )


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
