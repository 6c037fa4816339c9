"""The derivative of a loss by every score of a scene: how a batch pushes each pair."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from ncfbench.data.graph import BipartiteGraph
from ncfbench.errors import UsageError, reason
from ncfbench.linting.frameworks import Arrays, Call, Framework, frameworks
from ncfbench.linting.scenes import Bool, Float, Scene, Scenes, Vectors
from ncfbench.linting.signature import MEANINGS, SCORES, SHAPES, VECTORS, Loss

ROWS = 8
"""Rows of a probe's scene."""
DRAWN = 3
"""Negatives for each row, where a loss takes several."""
LOOKED_UP = ("probability", "log_probability", "counts")
"""Meanings of an argument that may be a table of all items instead of one number for each row."""
DERIVED = (*VECTORS, *SCORES)
"""Meanings of arguments by which a loss is differentiated."""

SEEDS = tuple(range(3))
"""Scenes that each number is measured on."""
LEAST = 1e-4
"""Relative change of a push that is one."""
CHANGE = 0.1
"""Change of a score: vectors of length 1 have room for it."""


@dataclass(frozen=True)
class Layout:
    """The shapes that a loss takes.

    Attributes:
        k: negatives for each row.
        negatives: whether they are [b, k, D], [b, D] or [b k, D].
        labels: 0 to b - 1, one for each row; 0 and 1, one for each pair; or the identity.
        tables: whether probabilities and counts are those of all items, which ids look up.
        is_catalogue: scores are those of all items, each in one column, which labels count.
        masks: value of a mask at what is no padding.
        has_wide_mask: the mask is of negatives, [b, k], not of rows.
    """

    k: int = 0
    negatives: Literal["rows", "single", "shared"] = "rows"
    labels: Literal["rows", "pairs", "eye"] = "rows"
    is_catalogue: bool = False
    tables: bool = False
    masks: bool | float = True
    has_wide_mask: bool = False


@dataclass
class Evaluator:
    """A loss with its options, on scenes."""

    loss: Loss
    framework: Framework
    graph: BipartiteGraph
    layout: Layout
    options: Mapping[str, Any]
    spread: float = 0.25
    """Scores of a scene are uniform up to this."""
    calls: dict[str, Call] = field(default_factory=dict)
    """The loss with each choice of options, so that it is compiled once."""
    given: Mapping[str, Any] = field(default_factory=dict)
    """Arguments, by meaning, in place of those that scenes have."""

    @classmethod
    def of(cls, loss: Loss, graph: BipartiteGraph) -> Evaluator:
        """Find the framework and the shapes that a loss takes, by trying.

        Raises:
            UsageError: it fails with all of them.
        """
        errors: dict[str, Exception | SystemExit] = {}
        works: Evaluator | None = None
        for framework, layout in itertools.product(frameworks(), layouts_of(loss)):
            evaluator = cls(loss, framework, graph, layout, loss.options)
            scene = evaluator.scenes().plain(0, ROWS)
            try:
                pushes, _ = evaluator.pushes(scene), evaluator.value(scene)
            except UsageError:
                raise
            except (Exception, SystemExit) as error:  # noqa: BLE001 - users' code
                errors.setdefault(framework.name, error)
                continue
            works = works or evaluator
            diagonal = np.diagonal(pushes)
            # Rows beyond a margin have no push; another shape would only hide that.
            if np.isfinite(pushes).all() and (diagonal <= 0).all() and diagonal.any():
                return evaluator._settled()
        if works:
            return works._settled()
        why = "; ".join(
            f"{type(error).__name__}: {reason(error)} ({name})" for name, error in errors.items()
        )
        hint = SHAPES
        if re.search("cuda|gpu", why, re.IGNORECASE):
            hint = (
                "It is called with arrays of the CPU: take the device from them, such as x.device."
            )
        elif "TracerArrayConversionError" in why:
            hint = "Functions of NumPy have no gradient: import jax.numpy as np."
        elif "UnexpectedTracerError" in why:
            hint = "It keeps an array of one call for the next: make what it keeps an argument."
        first = next(iter(errors.values()))
        raise UsageError(f"{loss.name} fails on a batch of {ROWS} links: {why}.\n{hint}") from first

    def scenes(self) -> Scenes:
        """Return what makes the scenes that this loss takes."""
        popular = self.loss.has("negative_probability", "negative_log_probability")
        return Scenes(self.graph, self.layout.k, by_popularity=popular, spread=self.spread)

    def read_as(self) -> dict[str, str]:
        """Return how each argument of the loss was understood, by name, with its shape."""
        layout, scene = self.layout, self.scenes().plain(0, ROWS)
        arrays = self.arrays(scene)
        lengths = {len(scene.slot): "n", ROWS * layout.k: "b k", layout.k: "k", ROWS: "b"}
        lengths |= {self.graph.n_items: "V", scene.vectors().users.shape[1]: "D"}
        labels = {"rows": ", columns of the rows' items", "pairs": ", 1 for links, 0 for negatives"}
        more = {
            "labels": labels.get(layout.labels, ", 1 on the diagonal"),
            "row_mask": f", {layout.masks} is no padding",
            "negative_mask": f", {layout.masks} is no padding",
        }
        meanings = {}
        for name, role in (*self.loss.made_from.items(), *self.loss.roles.items()):
            shape = ", ".join(str(lengths.get(n, n)) for n in np.shape(arrays.get(name, 0)))
            meanings[name] = MEANINGS.get(role, role.replace("_", " "))
            meanings[name] += (f" [{shape}]" if shape else "") + more.get(role, "")
        return meanings | {name: f"option, {value}" for name, value in self.options.items()}

    def _settled(self) -> Evaluator:
        """Return the evaluator, if the loss gives the same value for the same batch."""
        scene = self.scenes().plain(0, ROWS)
        if not (self.pushes(scene) > 0).any():
            self.spread = 0.5  # negatives beyond a margin
            scene = self.scenes().plain(0, ROWS)
        first = self.value(scene)
        self.value(self.scenes().plain(1, ROWS))
        if not np.isclose(self.value(scene), first, rtol=1e-9, atol=0, equal_nan=True):
            raise UsageError(
                f"{self.loss.name} returns other values for the same batch. Make what it draws"
                " from, or remembers, an argument, such as a generator or a key."
            )
        return self

    def with_options(self, **changed: Any) -> Evaluator:
        """Return the evaluator with other options of the loss."""
        return replace(self, options={**self.options, **changed})

    def call(self) -> Call:
        """Return the loss as a function of a batch's arguments."""
        key = repr(self.options)
        if key not in self.calls:
            self.calls[key] = self.loss.bind(self.options, self.constants())
        return self.calls[key]

    def value(self, scene: Scene, vectors: Vectors | None = None, length: float = 1.0) -> float:
        """Return the loss of a scene; see :meth:`arrays`."""
        return self.value_of(self.arrays(scene, vectors, length))

    def value_of(self, arrays: Arrays) -> float:
        """Return the loss of a batch's arguments."""
        return self.framework.value(self.call(), arrays)

    def pushes(self, scene: Scene) -> Float:
        """Return float[b, columns]: the derivative of the loss by each score, on the items' side.

        A pair of derivative below 0 is pulled together, one above 0 is pushed apart.
        """
        gradients = self.gradients(scene)
        if "users" in gradients:
            return scene.along(_of_columns(gradients))[0].T
        b, rows = scene.b, scene.owner
        pushes = np.zeros((b, len(rows)))
        columns = {"positive_scores": slice(b), "negative_scores": slice(b, None)}
        for role, gradient in gradients.items():
            if role == "scores" and self.layout.labels != "pairs":
                pushes[:, : gradient.shape[1]] += gradient
            else:
                at = np.arange(len(rows))[columns.get(role, slice(None))]
                pushes[rows[at], at] += gradient.reshape(-1)
        return pushes

    def push(self, scene: Scene, row: int, column: int) -> float:
        """Return one of :meth:`pushes`."""
        return float(self.pushes(scene)[row, column])

    def slopes(self, scene: Scene, row: int, column: int) -> Float:
        """Return float[5]: a pair's push where its score is changed, from the lowest on."""
        changes = CHANGE * np.array([-1, -0.5, 0, 0.5, 1])
        scenes = [scene.with_score(row, column, change) for change in changes]
        return np.array([self.push(changed, row, column) for changed in scenes])

    def gradients(self, scene: Scene) -> dict[str, Float]:
        """Return the gradients of the loss by all vectors and scores, by their meaning."""
        names = {role: name for name, role in self.loss.roles.items() if role in DERIVED}
        arrays = self.arrays(scene)
        gradients = self.framework.gradients(self.call(), arrays, [*names.values()])
        return dict(zip(names, gradients, strict=True))

    def totals(self, scene: Scene) -> tuple[float, float]:
        """Return how hard all positives are pulled and all other pairs are pushed apart, in sum.

        Pairs of two users and of two items count too, where a loss compares them.
        """
        push = self.pushes(scene)
        pull = -float(np.trace(push[:, : scene.b]))
        rest = float(push.sum()) + pull
        gradients = self.gradients(scene)
        if "users" in gradients and self.layout.labels != "pairs":
            among_users, _ = scene.along(gradients["users"])
            _, among_items = scene.along(_of_columns(gradients))
            # Each such pair has the gradients of both its ends.
            for part in (among_users, among_items):
                rest += float(part.sum() - np.trace(part)) / 2
        return pull, rest

    @property
    def tolerance(self) -> float:
        """Share of the largest push below which one is none."""
        return 1e-5 if self.framework.is_double else 1e-3

    def pushed(self, push: Float) -> Bool:
        """Return bool[b, columns]: the pairs that are pushed apart."""
        size = np.abs(push).max() or 1.0
        return np.asarray(push > self.tolerance * size)

    def negatives(self, push: Float) -> Bool:
        """Return :meth:`pushed` but for the rows' own items."""
        return self.pushed(push) & not_own(push)

    def arrays(
        self, scene: Scene, vectors: Vectors | None = None, length: float = 1.0
    ) -> dict[str, Any]:
        """Return the arguments of a call, by name, where users' vectors have some length."""
        b, k, rows, layout = scene.b, self.layout.k, scene.owner, self.layout
        vectors = vectors or scene.vectors()
        is_pairs, is_single = layout.labels == "pairs", layout.negatives == "single"
        users, scores = length * vectors.users, length * scene.scores
        items, negatives = np.split(vectors.columns, [b])
        shape = {"rows": (b, k, -1), "single": (b, -1), "shared": (b * k, -1)}
        pairs = scores[rows, np.arange(len(rows))]
        square = scores if layout.is_catalogue else scores[:, :b]
        is_pair = (np.arange(len(rows)) < b).astype(np.float64)
        constants, probability = self.constants(), scene.probability

        def drawn(values: Any) -> Any:
            """Return values of the drawn columns, one row for each link."""
            return values[b:] if is_single else values[b:].reshape(b, k)

        known = {
            "users": users[rows] if is_pairs else users,
            "items": vectors.columns if is_pairs else items,
            "negatives": negatives.reshape(shape[layout.negatives]) if k else negatives,
            "scores": pairs if is_pairs else square.copy(),
            "positive_scores": pairs[:b],
            "negative_scores": drawn(pairs),
            "user_ids": scene.user.astype(np.int64),
            "item_ids": scene.item.astype(np.int64),
            "negative_ids": drawn(scene.column_item.astype(np.int64)),
            "negative_probability": drawn(probability),
            "negative_log_probability": drawn(np.log(probability)),
            "row_weights": np.ones(len(rows) if is_pairs else b),
            **self.masks(scene, np.ones(b, bool), np.ones((b, k), bool)),
            "linked": scene.linked[:, :b] & ~np.eye(b, dtype=bool),
            "labels": {"pairs": is_pair, "rows": np.arange(b), "eye": np.eye(b)}[layout.labels],
            **constants,
            **{
                name: constants[f"{name}_table"][... if layout.tables else scene.item]
                for name in LOOKED_UP
            },
            **self.given,
        }
        return {name: known[role] for name, role in self.loss.roles.items() if role in known}

    def masks(self, scene: Scene, rows: Bool, negatives: Bool) -> dict[str, Any]:
        """Return masks in which some rows, bool[b], and drawn negatives, bool[b, k], are real."""
        if self.layout.labels == "pairs":
            rows = rows[scene.owner]
        elif self.layout.has_wide_mask:
            rows = negatives & rows[:, None]
        if self.layout.negatives != "rows":
            negatives = negatives.reshape(-1)
        real = self.layout.masks
        named = {"row_mask": rows, "negative_mask": negatives}
        return {name: np.where(part, real, type(real)(not real)) for name, part in named.items()}

    def constants(self) -> dict[str, Any]:
        """Return the arguments that are the same for every batch, by meaning."""
        degrees = self.graph.item_degrees.astype(np.float64)
        share = degrees / self.graph.n_links
        return {
            "probability_table": share,
            "log_probability_table": np.log(share),
            "counts_table": degrees,
            "batch_size": ROWS,
            "n_items": self.graph.n_items,
            "key": self.framework.key() if self.loss.has("key") else None,
        }


def layouts_of(loss: Loss) -> list[Layout]:
    """Return the layouts that a loss may take, the likeliest first."""
    layouts = _shapes(loss)
    if loss.has("item_ids") and loss.has(*LOOKED_UP):
        layouts += [replace(layout, tables=True) for layout in layouts]
    if loss.has("row_mask", "negative_mask"):
        wide = (False, True) if loss.has("negatives", "negative_scores") else (False,)
        layouts = [
            replace(layout, masks=masks, has_wide_mask=is_wide)
            for layout in layouts
            for is_wide in (wide if loss.has("row_mask") else (False,))
            for masks in (True, 1.0, False, 0.0)
        ]
    return layouts


def _shapes(loss: Loss) -> list[Layout]:
    if loss.has("negatives", "negative_scores"):
        return [Layout(DRAWN), Layout(1, "single"), Layout(DRAWN, "shared")]
    if loss.has("labels") and loss.has("scores"):
        return [
            Layout(DRAWN, labels="rows", is_catalogue=True),
            Layout(DRAWN, labels="pairs"),
            Layout(labels="eye"),
        ]
    if loss.has("labels"):
        return [Layout(DRAWN, labels="pairs"), Layout()]
    return [Layout()]


def _of_columns(gradients: Mapping[str, Float]) -> Float:
    """Return float[columns, D], the gradient by each column's vector."""
    parts = [gradients[role] for role in ("items", "negatives") if role in gradients]
    return np.concatenate([part.reshape(-1, part.shape[-1]) for part in parts])


def not_own(push: Float) -> Bool:
    """Return bool[b, columns]: the pairs that are no row's own."""
    return np.asarray(np.eye(*push.shape) == 0)


def imbalance(push: Float) -> Float:
    """Return float[b]: a row's pull less its push, as a share; 0 where only differences of its
    scores count.
    """
    return np.asarray(np.abs(push.sum(axis=1)) / np.maximum(np.abs(push).sum(axis=1), 1e-300))
