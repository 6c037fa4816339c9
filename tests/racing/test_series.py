"""Lines of training and validation, or of several processes, are no one series."""

import itertools
import math
import random
from collections.abc import Callable

import pytest

from ncfbench.racing.clock import Reading, Timeline, doubt
from ncfbench.racing.lines import split_in
from ncfbench.racing.metric import Metric

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
    """Under one name, without a word that says which is which."""
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


def test_processes_that_name_themselves_are_noticed():
    """Where their values differ, however little, and in whatever order they come."""
    mine, other = recall(0.3), lambda n: recall(0.3)(n) + 1e-3
    both = [
        [Reading(float(n), value(n), n, source=f"rank {rank}") for n in range(6)]
        for rank, value in enumerate((mine, other))
    ]
    mixed = sorted(both[0] + both[1], key=lambda line: (line.running // 3, line.source))
    assert doubt(mixed) == "rank 0 and rank 1 print it"
    long = [Reading(float(n), mine(n), n, source="rank 0") for n in range(50)]
    same = sorted([*long, *(line._replace(source="rank 1") for line in long)])
    assert doubt(same) == ""
    assert doubt(same[:-1]) == "", "of one the last line is missing"


@pytest.mark.parametrize(
    ("line", "split"),
    [
        ("train recall=0.5", "train"),
        ("[Validation] epoch 3 recall=0.5", "validation"),
        ("Training epoch 3 | val recall=0.5", "validation"),
        ("eval/recall=0.5", "validation"),
        ("recall=0.5 (test)", "test"),
        ("held-out recall=0.5", "validation"),
        ("upheld, recall=0.5", ""),
        ("recall=0.5 - val_loss: 2", ""),
        ("trained for 3 s, recall=0.5", ""),
        ("evaluator device recall=0.5", ""),
    ],
)
def test_words_say_which_data(line, split):
    word = split_in(line, line.index("0.5"))
    assert ((word and word.lastgroup) or "") == split


def test_validation_counts_of_several():
    def counted(*lines):
        metric = Metric.of("v=(.*)")
        for line in lines:
            metric.read(line)
        return metric.split

    assert counted("train v=1", "v=2", "valid v=3", "test v=4") == "validation"
    assert counted("train v=1", "test v=2") == "test"
    assert counted("train v=1", "v=2") == counted("val v=1") == counted("v=1") == ""


def test_lines_of_other_data_do_not_count():
    """Their values neither, which may have been seen before it was known."""
    own = [Reading(1.0, 0.9, split="train"), Reading(2.0, 0.1, split="validation")]
    own += [Reading(3.0, 0.95, split="train"), Reading(4.0, 0.2, split="validation")]
    timeline = Timeline(own)
    assert timeline.lowest(is_less_better=False) == -0.95
    timeline.split = "validation"
    assert timeline.lowest(is_less_better=False) == -0.2
    curve = timeline.curve(is_less_better=False)
    assert curve is not None
    assert [*curve.losses] == [-0.1, -0.2]
    assert timeline.startup_seconds == 0.0  # lines each 2 s, the first after 2 s
    own.append(Reading(5.0, 0.3))  # one that names none
    assert timeline.lowest(is_less_better=False) == -0.3
