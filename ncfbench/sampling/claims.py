"""What a sampler says of its batches: audits test it, and tables of costs print it."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ncfbench.catalog import SamplerInfo

OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.Pow: operator.pow,
}


class Nominal(NamedTuple):
    """Contents of a batch by the paper's count (KDD 2017, table 2): equal nodes count as often as
    they are named.
    """

    users: int
    items: int
    negatives: int


class Claims(NamedTuple):
    """What a sampler says of its batches."""

    nominal: Nominal | None
    """None where the sampler's record has no ``symbols``."""
    drawn_items: NDArray[np.float64] | None
    """float64[I]: the distribution of the items that it draws; None where they are not independent.
    """
    draws_links_uniformly: bool = True
    """With replacement each positive link of a batch is any link, all alike."""
    shuffled_bias: float | None = None
    """Relative bias of the negative term when positives are shuffled over an epoch instead of drawn
    with replacement, an order of magnitude; None where it is not known.
    """
    biases: tuple[str, ...] = ()
    """Why the estimate is biased on purpose, in words. An audit measures such a bias, says so, and
    does not count it as a fault.
    """
    weighs_biased: bool = False
    """The bias lies in the weights of its batches, with replacement; otherwise these are right, and
    the model makes something else of them.
    """

    @property
    def declared_bias(self) -> str:
        """The biases in one text; empty where there is none."""
        return "; ".join(self.biases)

    def with_bias(self, reason: str) -> Claims:
        """Return the claims with one more bias, the first to be named."""
        return self._replace(biases=(reason, *self.biases))


def nominal(info: SamplerInfo, strata: str, letters: Mapping[str, int]) -> Nominal | None:
    """Return the numbers that a record's formulas stand for, by their letters."""
    negatives, users, items, *_ = info.symbols_with(strata)
    if "-" in (users, items):
        return None
    return Nominal(*(_number(symbol, letters) for symbol in (users, items, negatives)))


def _number(symbol: str, letters: Mapping[str, int]) -> int:
    text = symbol.replace("k'", "K").replace("^", "**")
    product = re.sub(r"(?<=[\w)])(?=[A-Za-z(])", "*", text)
    return _value(ast.parse(product, mode="eval").body, letters)


def _value(node: ast.expr, letters: Mapping[str, int]) -> int:
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left, letters), _value(node.right, letters)
        return int(OPERATORS[type(node.op)](left, right))
    return letters[node.id] if isinstance(node, ast.Name) else int(ast.literal_eval(node))
