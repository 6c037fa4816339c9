"""Lines of training and validation, or of several processes, are no one series."""

import itertools
import math
import random
from collections.abc import Callable

import pytest

from ncfbench.racing.clock import Reading, doubt

Values = Callable[[int], float]


def lines(*series, count=20, step=False):
    """Lines of several series that take turns."""
    numbered = itertools.product(range(count), series)
    return [
        Reading(float(at), value(n), n if step else None) for at, (n, value) in enumerate(numbered)
    ]


def recall(top, pace=8.0):
    return lambda n: top * (1 - math.exp(-(n + 1) / pace))


@pytest.mark.parametrize("step", [True, False])
@pytest.mark.parametrize(
    "series",
    [
        (recall(0.9), recall(0.3)),
        (lambda n: 2.3 * math.exp(-n / 8), lambda n: 2.3 * math.exp(-n / 8) + 1.0),
        (recall(0.9), recall(0.6), recall(0.3)),
    ],
    ids=["recalls", "losses", "three"],
)
def test_series_that_take_turns_are_noticed(series, step):
    why = doubt(lines(*series, step=step))
    assert why == ("a step has several values" if step else "values jump to and fro")


@pytest.mark.parametrize("between", [1, 2, 10, 18])
def test_validation_after_several_lines_of_training_is_noticed(between):
    """Under one name."""
    draw = random.Random(between)
    training = [lambda n: recall(0.8)(n) + draw.gauss(0, 0.01)] * between
    assert doubt(lines(*training, recall(0.3))) == "values jump to and fro"


@pytest.mark.parametrize("seed", range(20))
def test_one_noisy_series_is_not_doubted(seed):
    """Rising, at rest, and with several lines of one step, which are no copies."""
    draw = random.Random(seed)
    for noise, count in ((0.0, 60), (0.02, 60), (0.2, 60), (0.02, 7)):
        own = lines(lambda n, noise=noise: recall(0.3)(n) + draw.gauss(0, noise), count=count)
        assert doubt(own) == ""
        assert doubt([line._replace(step=n) for n, line in enumerate(own)]) == ""
        epochs = [line._replace(step=n // 5) for n, line in enumerate(own)]
        assert doubt(epochs) == "" or noise == 0.2  # which is all that is left of it
