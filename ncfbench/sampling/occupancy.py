"""How many distinct users and items a sampler's batch has on average, in closed form. Pure NumPy.

A node that is in a batch however often costs one evaluation of its tower, so this is the work of an
encoder. All of it follows from the chance that a node is *not* in a batch: positive links are b of
N drawn without replacement, strata are b/s of the epoch's segments drawn likewise, negative ends
are independent draws; and the three are independent of each other.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ncfbench.sampling import Sampler

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

QUADRATURE_NODES = 256
"""Of an integral of a polynomial of as many degrees as there are nodes: exact up to 511. Of more it
is next to nothing.
"""


class Expected(NamedTuple):
    """Mean distinct nodes of a batch; None where no closed form is known."""

    users: float | None
    items: float | None


def expected(sampler: Sampler) -> Expected:
    """For a batch of a built-in sampler that lies within an epoch of the shuffled stream.

    Exact without strata. With strata, exact for the nodes that strata are made of where s divides
    N, else off by less than one node; unknown for the others, as it depends on which links of
    theirs fall into one stratum.
    """
    graph, config = sampler.graph, sampler.config
    n, b, s = graph.n_links, config.batch_size, sampler.stratum_size
    drawn = b * config.negatives
    extra = config.uniform_items if config.sampler == "mixed-ns" else drawn * sampler.draws_items

    def missing(degrees: Int64, kind: str) -> Float64 | None:
        if s == 1:
            return chance_of_none(n, b, int(degrees.max()))[degrees]
        return absent_from_strata(degrees, s, b // s) if config.strata == kind else None

    users = missing(graph.user_degrees, "user")
    items = missing(graph.item_degrees, "item")
    if users is not None and sampler.draws_users:
        users = users * _never_drawn(graph.user_degrees / n, drawn)
    if items is not None and extra:
        items = items * _never_drawn(sampler.drawn_items, extra)
    return Expected(*(None if each is None else float(np.sum(1 - each)) for each in (users, items)))


def chance_of_none(total: int, drawn: int, most: int) -> Float64:
    """float64[most + 1]: the chance that ``drawn`` of ``total`` things, drawn without replacement,
    are none of d given ones.

    ``C(total - d, drawn) / C(total, drawn)``, by d = 0 .. most.
    """
    place = np.arange(most, dtype=np.float64)
    with np.errstate(divide="ignore"):
        steps = np.log1p(-np.minimum(drawn / np.maximum(total - place, 1), 1))
    chance: Float64 = np.exp(np.concatenate([[0.0], np.cumsum(steps)]))
    return chance


def absent_from_strata(degrees: Int64, size: int, drawn: int) -> Float64:
    """float64[n]: the chance that a node is in none of ``drawn`` of an epoch's strata.

    The nodes' links stand one node's after another's in random order, cut into segments of
    ``size``; a node of d links that begins at place o of a segment has links in ceil((o + d) /
    size) of them.
    """
    strata = int(degrees.sum()) // size
    none = chance_of_none(strata, drawn, -(-(int(degrees.max()) + size - 1) // size))
    offsets = offset_chances(degrees, size)
    values, inverse = np.unique(degrees, return_inverse=True)
    touched = -(-(values[:, None] + np.arange(size)) // size)
    # A node without links is in no stratum, wherever it stands.
    absent = np.where(values == 0, 1.0, np.sum(offsets[values % size] * none[touched], axis=1))
    return absent[inverse]


def offset_chances(degrees: Int64, size: int) -> Float64:
    """float64[size, size]: row r, column o: the chance that a node of degree r modulo ``size``
    begins at place o.

    In a random order each other node stands before this one with chance t, independently given t,
    which is uniform on 0..1. The sum of the degrees before it, modulo ``size``, has the Fourier
    coefficients ``integral over t of product over other nodes w of (1 - t + t exp(2 pi i h deg(w) /
    size))``. Nearly uniform where there are many nodes; not where, say, all degrees are multiples
    of ``size``.
    """
    points, weights = np.polynomial.legendre.leggauss(QUADRATURE_NODES)
    t, dt = (points + 1) / 2, weights / 2
    classes = np.bincount(degrees % size, minlength=size)
    place = np.arange(size)
    # Zero only for t = 1/2, which an even number of points does not have.
    logs = np.log(1 - t[:, None] + t[:, None] * np.exp(2j * np.pi * place / size))
    result = np.zeros((size, size))
    own = np.flatnonzero(classes)
    coefficients = np.empty((len(own), size), np.complex128)
    for h in place:
        of_all = logs[:, h * place % size] @ classes
        coefficients[:, h] = dt @ np.exp(of_all[:, None] - logs[:, h * own % size])
    result[own] = np.fft.fft(coefficients, axis=1).real / size
    return np.clip(result, 0, 1)


def _never_drawn(probability: Float64, draws: int) -> Float64:
    """float64[n]: the chance that independent draws from a distribution all miss a node."""
    with np.errstate(divide="ignore"):
        chance: Float64 = np.exp(draws * np.log1p(-np.minimum(probability, 1)))
    return chance
