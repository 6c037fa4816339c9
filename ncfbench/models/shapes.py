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

from ncfbench.config import RunConfig
from ncfbench.data import Dataset
from ncfbench.errors import NcfbenchError, UsageError, reason
from ncfbench.models.encoders.protocol import Texts
from ncfbench.models.losses import make_loss
from ncfbench.registry import BUILT_IN, find
from ncfbench.settings import Kind

ITEMS, USERS, LISTED = 7, 5, 3
"""Items, users, and items of each user's list in what is traced: no two are equal."""


def require_shapes(config: RunConfig, dataset: Dataset) -> None:
    """Refuse plug-ins of a run's model that fail, or return another shape or type than they must.

    Raises:
        UsageError: the message names the plug-in, and what it must return.
    """
    length = dataset.tokens_IxL.shape[1]
    _require(config, dataset.n_users, dataset.n_items, dataset.n_words, length)


@functools.cache
def _require(config: RunConfig, n_users: int, n_items: int, n_words: int, length: int) -> None:
    d = config.dimension
    if _is_plugin(config, "encoder"):
        build = find("encoder", config.encoder).load()

        def encode(texts: Texts) -> Any:
            return build(config, n_items, n_words, rngs=nnx.Rngs(config.seed))(texts)

        texts = Texts._make(
            [
                _shape(ITEMS, dtype=jnp.int32),
                _shape(ITEMS, length, dtype=jnp.int32),
                _shape(ITEMS, length, dtype=jnp.bool_),
                _shape(ITEMS, dtype=jnp.int32),
            ]
        )
        _check(config, "encoder", encode, (texts,), (ITEMS, d), f"for {ITEMS} items")
    if _is_plugin(config, "user_tower"):
        build_users = find("user_tower", config.user_tower).load()

        def users(ids: jax.Array) -> Any:
            return build_users(config, n_users, rngs=nnx.Rngs(config.seed))(ids)

        ids = _shape(USERS, dtype=jnp.int32)
        _check(config, "user_tower", users, (ids,), (USERS, d), f"for {USERS} users")
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
