"""Lines that hold a metric."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncfbench.errors import UsageError
from ncfbench.racing.metric import Line, Metric, log_metric


@pytest.mark.parametrize(
    ("metric", "line", "read"),
    [
        (None, '{"metric": 0.5, "loss": 2}', Line(0.5)),
        (None, '{"recall": 0.5, "step": 3, "seconds": 1.5, "epoch": 1}', Line(0.5, 3, 1.5)),
        ("loss", ' {"loss": "2", "recall": 1} ', Line(2)),
        ("loss", '{"recall": 1}', None),
        (None, '  3%| | 9/300 [00:02<01:10, 4.1it/s]{"recall": 0.5}', Line(0.5)),
        (None, "loss}", None),
        (None, '{"flag": true, "note": "x"}', None),
        (None, "{not json}", None),
        (None, "[1]", None),
        ("recall@50=([0-9.]+)", "epoch 3 recall@50=0.31 ok", Line(0.31)),
        (
            r"step (?P<step>\d+).* v (?P<value>\S+) after (?P<seconds>\S+) s",
            "step 7: v -1e-3 after 2 s",
            Line(-1e-3, 7, 2),
        ),
        (r"step (?P<step>\d+) recall=([0-9.]+)", "step 200 recall=0.31", Line(0.31, 200)),
        ("x=(.*)", "x=abc", None),
    ],
)
def test_a_line_is_read(metric: str | None, line: str, read: Line | None) -> None:
    assert Metric.of(metric).read(line) == read


def test_a_metric_that_is_no_number_yet_is_read() -> None:
    found = Metric.of(None).read('{"loss": NaN}')
    assert found is not None
    assert math.isnan(found.value)


def test_a_choice_is_asked_for() -> None:
    with pytest.raises(UsageError, match="loss and recall: choose one with --metric loss"):
        Metric.of(None).read('{"loss": 1, "recall": 2, "step": 3}')
    metric = Metric.of(None)
    assert metric.read('{"loss": 2.3, "step": 1}') == Line(2.3, 1)
    assert metric.read('{"step": 2}') is None
    with pytest.raises(UsageError, match="loss and recall: choose one with --metric loss"):
        metric.read('{"recall": 0.1, "step": 100}')
    named = Metric.of(None)
    assert [named.read('{"metric": 1}'), named.read('{"loss": 2}')] == [Line(1.0), None]
    with pytest.raises(UsageError, match="no regular expression"):
        Metric.of("f1(macro")
    with pytest.raises(UsageError, match="for step and seconds alone"):
        Metric.of(r"step (?P<step>\d+) after (?P<seconds>\S+) s")


def test_metrics_have_names() -> None:
    names = {
        None: "metric",
        "loss": "loss",
        "recall@50=(.+)": "recall@50",
        "(.+)": "metric",
        r"step (?P<step>\d+) recall=(.+)": "recall",
    }
    assert {text: Metric.of(text).name for text in names} == names
    metric = Metric.of(None)
    metric.read('{"auc": 0.5, "step": 1}')
    assert metric.name == "auc"


@given(st.floats(allow_nan=False), st.integers(0, 2**40))
def test_logged_metrics_are_read(value: float, step: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        lines: list[str] = []
        patch.setattr("builtins.print", lambda text, flush: lines.append(text))
        log_metric(auc=value, step=step)
    assert json.loads(lines[0])["step"] == step
    assert Metric.of(None).read(lines[0]) == Line(value, step)
