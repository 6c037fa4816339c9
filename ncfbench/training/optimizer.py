"""Optimisers: an update of the parameters from a batch's gradient, of whole arrays or of rows.

Adam and Adagrad are optax's (Kingma and Ba 2015; Duchi et al. 2011), with decoupled weight decay
(Loshchilov and Hutter 2019). A batch names few rows of a large table, and the gradient of all other
rows is zero. :class:`Optimizer` updates the named rows of such a table alone: they are taken out
before differentiation and put back in place. Nothing of a table's size is made or gone through.

Rows with zero gradient still change under Adam, through their moments and weight decay. How far
follows from the number of iterations, so a row makes up for its rest when it is named again. With m
and v after iteration t, iteration t + j of Adam moves a resting row by ``lr r^j c(t + j) m /
sqrt(v)``, where ``r = b1 / sqrt(b2)`` and ``c(i) = sqrt(1 - b2^i) / (1 - b1^i)``, and the row
decays by ``q = 1 - lr decay``. With ``A(t) = sum over j >= 1 of (r / q)^j c(t + j)``
(:func:`still_to_move`) a iterations take a row x to ``q^a (x - lr (A(t) - (r / q)^a A(t + a)) m /
sqrt(v))``. So the parameters are those that updates of all rows give, up to rounding, and to eps
while a row rests.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.tree_util import tree_leaves_with_path

from ncfbench.catalog import find_encoder
from ncfbench.config import RunConfig
from ncfbench.models.dropout import rates_of
from ncfbench.models.tables import ENCODER, Rows, kind_of, names_of
from ncfbench.training.rows import Named, find_distinct, part, put, take
from ncfbench.training.state import Parameters, Rest, Scalars, Touched, TrainState

B1, B2, EPSILON = 0.9, 0.999, 1e-8
LAST_BIASED = 2**14
"""Iteration from which on Adam's correction of v is 1 in float32."""
CHEAP = "bow", "mf"
"""Encoders whose tables take most of a step."""
LARGE, LARGE_BESIDE, WIDE = 20_000, 2**16, 100
"""Rows from which on ``auto`` and ``adagrad`` update a table by row, with a cheap encoder and with
another; of rows longer than 50 numbers as many fewer, and of wide ones any with a cheap encoder.
Tables of docs/paper.md are smaller (docs/models.md).
"""
FEW = {"users": 6, "items": 6, "words": 4, "histories": 4}
FEW_WIDE = {"users": 4, "items": 4, "words": 1, "histories": 4}
"""Rows of a table, and of a wide one, for each id in a batch, by kind, below which an iteration
updates all of its rows: going through them is faster then. Of equal ids one row is updated, and
words repeat.
"""


class Held(NamedTuple):
    """Parameters that a step differentiates in place of all of them."""

    parameters: Parameters
    """With float32[1 + n, D] for each table by row: zeros, and the rows that are named."""
    rows: Rows
    """Rows of the batch's nodes and words in these."""
    named: dict[str, Named]
    """By kind of table; without kinds of which all rows are held."""
    state: TrainState
    """With all rows up to date of these kinds, and ``touched`` overwritten at the rows named."""


class Optimizer:
    """The optimiser of some settings.

    Args:
        tables: kinds of the tables that are updated by row, by their names in the parameters.
    """

    def __init__(self, config: RunConfig, tables: Mapping[tuple[str, ...], str]) -> None:
        self.config, self.tables = config, tables
        self._kinds = tuple(dict.fromkeys(tables.values()))
        self._pretrained = find_encoder(config.encoder).pretrained_parts

    def init(self, parameters: Parameters) -> tuple[Any, Touched]:
        """Return optax's state before the first update, and ``touched``."""
        rows = {
            kind: len(leaf)
            for kind in self._kinds
            for leaf in jax.tree.leaves(self._part(parameters, kind))[:1]
        }
        kinds = self.config.optimizer == "adagrad", self.config.weight_decay > 0
        initial: tuple[Any, Touched] = _initial(*kinds, tuple(rows.items()), parameters)
        return initial

    def scalars(self) -> Scalars:
        """Return the settings that a step takes as arguments."""
        config, factor = self.config, 1.0
        speeds = {False: config.learning_rate}
        if self._pretrained:
            speeds[True] = config.pretrained_learning_rate
            factor = config.pretrained_learning_rate / config.learning_rate
        kept = {slow: float(1 - rate * config.weight_decay) for slow, rate in speeds.items()}
        return Scalars(
            np.float32(config.learning_rate),
            np.float32(factor),
            np.uint32(config.seed),
            np.float32(config.weight_decay),
            rates_of(config),
            {slow: self._rest(share) for slow, share in kept.items() if self.tables},
        )

    def hold(self, state: TrainState, ids: Mapping[str, jax.Array], scalars: Scalars) -> Held:
        """Take the rows that a batch names out of the tables, up to date. Called while traced.

        Args:
            ids: int32[...] by kind of table; -1 is none. Tables of other kinds stay whole.
        """
        rows, named, touched = {}, {}, state.touched
        kinds = [kind for kind in self._kinds if kind in ids]
        every = [kind for kind in kinds if self._are_few(kind, len(touched[kind]), ids[kind].size)]
        if every:
            rested = [jnp.any(touched[kind] != _now(state)) for kind in every]
            # A loop changes the state in place; a condition would copy it.
            times = jnp.any(jnp.stack(rested)).astype(jnp.int32)
            state = jax.lax.fori_loop(
                0, times, lambda _, state: self.settle(state, scalars, every), state
            )
            touched = state.touched
        parameters, left = state.parameters, dict(touched)
        for kind in kinds:
            if kind not in every:
                distinct = find_distinct(ids[kind].reshape(-1), touched[kind])
                named[kind], left[kind], which = distinct
                rows[kind] = which.reshape(ids[kind].shape)
                held = self._taken(kind, state, named[kind], scalars)
                parameters = _merged(held, parameters)
        return Held(parameters, Rows(**rows), named, state._replace(touched=left))

    def update(self, held: Held, gradient: Parameters, scalars: Scalars) -> TrainState:
        """Return the state after a gradient by what is held."""
        state, touched = held.state, dict(held.state.touched)
        after = []
        for kind in (None, *self._kinds):
            arrays, moments, slopes = (
                self._part(tree, kind) for tree in (state.parameters, state.optimizer, gradient)
            )
            if kind in held.named:
                rows = (slopes, self._part(held.parameters, kind)), held.named[kind]
                arrays, moments, touched[kind] = self._updated_rows(
                    (arrays, moments), *rows, touched[kind], _now(state), scalars
                )
            else:
                arrays, moments = self._updated(arrays, moments, slopes, scalars)
                if kind is not None:
                    touched[kind] = jnp.full_like(touched[kind], _now(state) + 1)
            after.append((arrays, moments))
        parameters, optimizer = _merged(*after)
        return TrainState(parameters, optimizer, state.iteration + 1, touched)

    def settle(
        self, state: TrainState, scalars: Scalars, kinds: Collection[str] = tuple(FEW)
    ) -> TrainState:
        """Return the state with all rows of the tables of some kinds up to date."""
        after, touched = [], dict(state.touched)
        for kind in filter(kinds.__contains__, self._kinds):
            arrays, moments = (
                self._part(tree, kind) for tree in (state.parameters, state.optimizer)
            )
            after.append(self._rested(arrays, moments, touched[kind], _now(state), scalars))
            touched[kind] = jnp.full_like(touched[kind], _now(state))
        parameters, optimizer = _merged(*after, (state.parameters, state.optimizer))
        return state._replace(parameters=parameters, optimizer=optimizer, touched=touched)

    def _updated(
        self, arrays: Any, moments: Any, gradient: Any, scalars: Scalars
    ) -> tuple[Any, Any]:
        """Return arrays and their state in optax after a gradient."""
        decay = scalars.weight_decay if self.config.weight_decay else None
        is_adagrad = self.config.optimizer == "adagrad"
        transform = _transform(is_adagrad, decay, scalars.learning_rate)
        updates, moments = transform.update(gradient, moments, arrays)
        if self._pretrained:
            # An update is proportional to the learning rate.
            updates = jax.tree.map_with_path(
                lambda path, leaf: leaf * self._factor(path, scalars), updates
            )
        return optax.apply_updates(arrays, updates), moments

    def _taken(self, kind: str, state: TrainState, named: Named, scalars: Scalars) -> Any:
        """Return zeros and the named rows of each table of a kind."""
        whole = [self._part(tree, kind) for tree in (state.parameters, state.optimizer)]

        def work(first: jax.Array, held: Any) -> Any:
            ids, last = named.block(first)
            rows, moments = take(whole, ids)
            rows, _ = self._rested(rows, moments, last, _now(state), scalars)
            return jax.tree.map(
                lambda held, rows: jax.lax.dynamic_update_slice(held, rows, (1 + first, 0)),
                *(held, rows),
            )

        def empty(table: jax.Array) -> jax.Array:
            return jnp.zeros((1 + len(named.ids), table.shape[1]), table.dtype)

        return named.for_blocks(work, jax.tree.map(empty, whole[0]))

    def _updated_rows(
        self,
        whole: tuple[Any, Any],
        held: tuple[Any, Any],
        named: Named,
        touched: jax.Array,
        now: jax.Array,
        scalars: Scalars,
    ) -> tuple[Any, Any, jax.Array]:
        """Return tables of a kind, their state in optax and ``touched``, each in its memory, after
        a gradient by zeros and the named rows, both ``held``. A row whose gradient is zero rests.
        """

        def work(first: jax.Array, carry: tuple[Any, Any, jax.Array]) -> Any:
            *whole, touched = carry
            ids, last = named.block(first)
            slopes, rows = jax.tree.map(lambda array: part(array, 1 + first, len(ids)), held)
            moves = [jnp.any(slope != 0, axis=1) for slope in jax.tree.leaves(slopes)]
            moves_n = jnp.any(jnp.stack(moves), axis=0)
            # The rows that are held have rested already.
            _, of_rows = self._rested(rows, take(whole[1], ids), last, now, scalars)
            after = self._updated(rows, of_rows, slopes, scalars)
            whole = put(whole, jnp.where(moves_n, ids, len(touched)), [*after])
            return *whole, put(touched, ids, jnp.where(moves_n, now + 1, last))

        return named.for_blocks(work, (*whole, touched))

    def _rested(
        self, rows: Any, moments: Any, last: jax.Array, now: jax.Array, scalars: Scalars
    ) -> tuple[Any, Any]:
        """Return rows of tables and their state in optax, which were those after ``last``
        iterations, after ``now``, with a gradient of zero in between.
        """
        age = (now - last).astype(jnp.float32)[:, None]

        def power(logarithm: Any) -> jax.Array:
            return jnp.exp(age * logarithm)

        def decayed(path: Any, rows: jax.Array) -> jax.Array:
            return rows * power(scalars.rests[self._is_pretrained(path)].kept)

        def moved(path: Any, rows: jax.Array, mean: jax.Array, square: jax.Array) -> jax.Array:
            _, shrinks, ahead = scalars.rests[self._is_pretrained(path)]
            left_then, left_now = (ahead[jnp.minimum(t, LAST_BIASED)] for t in (last, now))
            distance = left_then[:, None] - power(shrinks) * left_now
            epsilon = EPSILON * jnp.sqrt(1 - B2 ** jnp.maximum(last, 1).astype(jnp.float32))
            rate = scalars.learning_rate * self._factor(path, scalars)
            after: jax.Array = rows - rate * distance * mean / (jnp.sqrt(square) + epsilon[:, None])
            return after

        if isinstance(moments[0], optax.ScaleByAdamState):
            mu, nu = moments[0].mu, moments[0].nu
            rows = jax.tree.map_with_path(moved, rows, mu, nu)
            mu = jax.tree.map(lambda mean: mean * power(_log(B1)), mu)
            nu = jax.tree.map(lambda square: square * power(_log(B2)), nu)
            moments = moments[0]._replace(mu=mu, nu=nu), *moments[1:]
        if self.config.weight_decay:
            rows = jax.tree.map_with_path(decayed, rows)
        return rows, moments

    def _are_few(self, kind: str, rows: int, ids: int) -> bool:
        """Return whether an iteration that names some ids goes through all rows of a table."""
        width = self.config.word_dimension if kind == "words" else self.config.dimension
        return rows < (FEW_WIDE if width >= WIDE else FEW)[kind] * ids

    def _rest(self, kept: float) -> Rest:
        """Return how a row rests of whose weights an iteration leaves a share; Adagrad's decays."""
        if self.config.optimizer == "adagrad":
            return Rest(_log(kept), None, None)
        return Rest(_log(kept), _log(B1 / B2**0.5 / kept), still_to_move(kept))

    def _factor(self, path: Any, scalars: Scalars) -> Any:
        """Return the learning rate of a parameter over that of most."""
        return scalars.pretrained_factor if self._is_pretrained(path) else 1

    def _is_pretrained(self, path: Any) -> bool:
        names = names_of(path)
        return names[0] == ENCODER and bool({*self._pretrained} & {*names[1:]})

    def _part(self, tree: Any, kind: str | None) -> Any:
        """Return the tables of a kind, or what is updated whole, of a tree of parameters or of
        optax; None in place of all else. Counts of optax, which have no name, are of every part.
        """
        if not self.tables:
            return tree

        def of_kind(path: Any, leaf: Any) -> Any:
            names = names_of(path)
            return leaf if not names or self.tables.get(names) == kind else None

        return jax.tree.map_with_path(of_kind, tree)


def _transform(is_adagrad: bool, decay: Any, rate: Any) -> optax.GradientTransformation:
    """Return optax's transformation; without weight decay where that is None."""
    return optax.chain(
        optax.scale_by_rss() if is_adagrad else optax.scale_by_adam(B1, B2, EPSILON),
        *([] if decay is None else [optax.add_decayed_weights(decay, _are_decayed)]),
        optax.scale_by_learning_rate(rate),
    )


@partial(jax.jit, static_argnums=(0, 1, 2))  # one program, not one for each shape
def _initial(
    is_adagrad: bool, decays: bool, rows: tuple[tuple[str, int], ...], parameters: Parameters
) -> tuple[Any, Touched]:
    touched = {kind: jnp.zeros(count, jnp.int32) for kind, count in rows}
    return _transform(is_adagrad, 0.0 if decays else None, 0.0).init(parameters), touched


def _log(base: float) -> np.float32:
    return np.float32(np.log(base))


@cache
def still_to_move(kept: float) -> np.ndarray:
    """Return A(t), float32, how far a row would move if it rested for ever after iteration t, in
    ``lr m / sqrt(v)``; see above. The last holds for later iterations too.

    Args:
        kept: the share of a row's weights that an iteration leaves.
    """
    shrinks = B1 / B2**0.5 / kept
    ahead = np.empty(LAST_BIASED + 1)
    ahead[-1] = shrinks / (1 - shrinks)
    for t in range(LAST_BIASED, 0, -1):
        corrected = np.sqrt(1 - B2**t) / (1 - B1**t)
        ahead[t - 1] = shrinks * (corrected + ahead[t])
    return ahead.astype(np.float32)


def tables_by_row(config: RunConfig, shapes: Parameters) -> dict[tuple[str, ...], str]:
    """Return the kinds of the tables that are updated by row, by their names in the parameters: the
    same for all samplers.
    """
    kinds = ((path, leaf, kind_of(config, path)) for path, leaf in tree_leaves_with_path(shapes))
    return {
        names_of(path): kind
        for path, leaf, kind in kinds
        if kind is not None and updates_rows(config, *leaf.shape)
    }


def updates_rows(config: RunConfig, rows: int, width: int) -> bool:
    """Return whether a table of so many rows of some length is updated by row."""
    if config.optimizer in ("adam", "row-adam"):
        return config.optimizer == "row-adam"
    is_cheap = config.encoder in CHEAP
    if find_encoder(config.encoder).pretrained_parts:
        width = 50  # its words have long rows, and its layers take all the time
    if is_cheap and width >= WIDE:
        return True
    return rows * max(width, 50) >= 50 * (LARGE if is_cheap else LARGE_BESIDE)


def _now(state: TrainState) -> jax.Array:
    """Return the iterations that are done, int32."""
    return state.iteration.astype(jnp.int32)


def _merged(*trees: Any) -> Any:
    """Return a tree of leaves of the first tree that has each."""
    return jax.tree.map(
        lambda *leaves: next((leaf for leaf in leaves if leaf is not None), None),
        *trees,
        is_leaf=lambda leaf: leaf is None,
    )


def _are_decayed(parameters: Parameters) -> Any:
    """Return which parameters decay: matrices and tables; not biases, scales of normalisations."""
    return jax.tree.map(lambda leaf: leaf.ndim > 1, parameters)
