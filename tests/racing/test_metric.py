"""Lines that hold a metric."""

import json
import math
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncfbench.errors import UsageError
from ncfbench.racing.metric import Line, Metric, log_metric


@pytest.mark.parametrize(
    ("metric", "line", "read"),
    [
        (None, '{"metric": 0.5, "loss": 2}', Line(0.5)),
        (None, '{"recall": 0.5, "step": 3, "seconds": 1.5, "epoch": 1}', Line(0.5, 3)),
        ("loss", ' {"loss": "2", "recall": 1} ', Line(2)),
        ("loss", '{"recall": 1}', None),
        (None, '  3%| | 9/300 [00:02<01:10, 4.1it/s]{"recall": 0.5}', Line(0.5)),
        (None, "loss}", None),
        (None, '{"flag": true, "note": "x"}', None),
        (None, "{not json}", None),
        (None, "[1]", None),
        ("recall@50=([0-9.]+)", "epoch 3 recall@50=0.31 ok", Line(0.31)),
        (
            r"step (?P<step>\d+).* v (?P<value>\S+) after (\S+) s",
            "step 7: v -1e-3 after 2 s",
            Line(-1e-3, 7),
        ),
        (r"step (?P<step>\d+) recall=([0-9.]+)", "step 200 recall=0.31", Line(0.31, 200)),
        ("x=(.*)", "x=abc", None),
        (r"(?P<step>\d+)/\d+ r=([0-9])[0-9.]*/", "7/9 r=0.31/0.42", Line(0.31, 7)),
        (r"r=([0-9.]+)/[0-9.]+ (?P<step>\d+)", "r=0.31/0.42 7/9", Line(0.31, 7)),
        ("recall=([0-9.]+)", "step=3 recall=1.2e-05", Line(1.2e-05)),
        ("recall=([0-9.]+)", "recall=nan", Line(math.nan)),
        ("recall=([0-9.]+)", "recall=inf after 3 s", Line(math.inf)),
        (r"^(?P<step>\d+),(?P<value>\d+)", "300,31,2", Line(31, 300)),
        (r"^(?P<step>\d+),(?P<value>\d+)", "300,31", Line(31, 300)),
        (r"step (?P<step>\d+)\S* v=([0-9.]+)", "step 12,000 v=0,5", Line(0.5, 12000)),
        ("recall=([0-9.]+)", "\x1b[32mrecall=\x1b[1m0.\x1b[0m31\x1b(B\x1b[m", Line(0.31)),
        ("recall=([0-9.]+)", "recall=0.2\b\b\b0.3\ufeff", Line(0.3)),
        ("recall=([-0-9.]+)", "recall=\u22120.5", Line(-0.5)),
        ("r2=([0-9.]+)", "r2=\u22120.5", Line(-0.5)),
        ("r2=([0-9.]+)", "step -1 r2=-inf", Line(-math.inf)),
        ("r2=([0-9.]+)", "r2=+1e-3", Line(0.001)),
        (r"r2=-([0-9.]+)", "r2=-.5", Line(-0.5)),
        (r"r2: (?P<value>[0-9.]+) at (?P<step>\d+)", "r2: -.5 at 7", Line(-0.5, 7)),
        ("r2=([0-9.]+)", "r2-0.5", None),
        ("recall=([0-9.]+)", "recall=1.2E\u201101", Line(0.12)),
        ("recall=([0-9.]+)", "recall=1.2e\u201301", Line(0.12)),
        ("recall=([0-9.]+)", "recall=0.25\u20130.31", Line(0.25)),
        (None, '\x1b[32m{"recall": 0.5}\x1b[0m', Line(0.5)),
        (None, ' 3%| 9/300{"recall": 0.5, "step": 2, "config": {"lr": 0.1}}', Line(0.5, 2)),
        (None, 'INFO a {b} {"recall": 0.5, "config": {"lr": 0.1}} (c)', Line(0.5)),
        (None, '{"recall": "1.5e-3", "step": "1,200"}', Line(0.0015, 1200)),
        ("recall", '{"step": 4, "n": {"recall": 0.5, "loss": 2}}', Line(0.5, 4)),
        ("n.recall", '{"step": 4, "n": {"recall": 0.5}, "m": {"recall": 1}}', Line(0.5, 4)),
        ("recall", '{"n": {"recall": 0.5, "step": 7}}', Line(0.5, 7)),
        (None, '{"recall": 0.5, "step": NaN}', Line(0.5)),
        (r"v=(\S+) step=(?P<step>\S+)", "v=0.5 step=inf", Line(0.5)),
        (None, '{"lr": 10.0, "batch": 3, "seed": 1}', None),
        ("loss", "{'loss': 0.5, 'recall': nan, 'epoch': 1.0}", Line(0.5)),
        ("loss", "INFO {'loss': nan, 'x': None}", Line(math.nan)),
        ("loss", "{'loss': np.float64(0.5), 'x': tensor(1., device='cpu')}", Line(0.5)),
        ("loss", "{'loss': Array(0.5, dtype=float32)}", Line(0.5)),
    ],
)
def test_a_line_is_read(metric, line, read):
    found = Metric.of(metric).read(line)
    if read is not None and math.isnan(read.value):
        assert found is not None
        assert math.isnan(found.value)
    else:
        assert found == read


def test_a_metric_that_is_no_number_yet_is_read():
    found = Metric.of(None).read('{"loss": NaN}')
    assert found is not None
    assert math.isnan(found.value)


def test_a_choice_is_asked_for():
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
    with pytest.raises(UsageError, match="a group for step alone"):
        Metric.of(r"step (?P<step>\d+)")


STYLES = {
    "sci": ("recall=([0-9.]+)", "step=3 recall={:.3e}"),
    "repr": ("recall=([0-9.]+)", "step=3 recall={!r}"),
    "plain": ("recall=([0-9.]+)", "step=3 recall={:.8f}"),
    "dot": ("recall is ([0-9.]+)", "Epoch 3: recall is {:.4f}."),
    "colours": ("recall=([0-9.]+)", "\x1b[32mrecall=\x1b[1m{:.5f}\x1b[0m"),
    "colours around JSON": (None, '\x1b[32m{{"recall": {}, "step": 3}}\x1b[0m'),
    "bar": (None, ' 3%|## | 3/100 [00:03<00:01, 9.1it/s]{{"recall": {}}}'),
    "nested": (None, ' 3%|## | 3/100{{"recall": {}, "config": {{"lr": 0.1}}}}'),
    "nested metric": ("recall", '{{"step": 3, "eval": {{"recall": {}}}}}'),
    "log": (None, '10:00:03,123 INFO trainer {{"recall": {}, "config": {{"lr": 0.1}}}}'),
    "dictionary": ("eval_recall", "{{'eval_loss': 2.1, 'eval_recall': {:.6f}, 'epoch': 3}}"),
    "erased": (r"val_recall: ([0-9.]+)", "\b\b\b - val_loss: 2.1 - val_recall: {:.4f}"),
    "several": ("recall", '{{"recall": {}, "loss": 2.1}}'),
    "logging": ("recall=([0-9.]+)", "WARNING:root:step=3 recall={:.5f}"),
    "large steps": (None, '{{"recall": {}, "step": 3000000}}'),
}


@pytest.mark.parametrize("style", STYLES)
@given(st.floats(0, 1))
def test_styles_of_lines_are_read(style, value):
    metric, form = STYLES[style]
    read = Metric.of(metric).read(form.format(value))
    assert read is not None
    assert read.value == pytest.approx(value, abs=1e-4, rel=1e-3)


def test_a_nested_choice_is_asked_for():
    """Validation is proposed."""
    line = '{"train": {"recall": 0.9}, "val": {"recall": 0.3}}'
    with pytest.raises(UsageError, match="choose one with --metric val.recall"):
        Metric.of("recall").read(line)


@pytest.mark.parametrize(
    ("metric", "lines"),
    [
        (None, ['{"mode": "train", "recall": 0.5}', '{"mode": "val", "recall": 0.3}']),
        ("recall=([0-9.]+)", ["recall=0.5 (train)", "recall=0.3 (val)"]),
    ],
)
def test_a_word_chooses_one_of_several_series(metric, lines):
    """The option that is proposed reads the lines with that word."""
    read = Metric.of(metric)
    assert [line.value for line in map(read.read, lines) if line] == [0.5, 0.3]
    (flag, option) = shlex.split(read.narrowed.replace("WORD", "val"))
    assert flag == "--metric"
    assert [*map(Metric.of(option).read, lines)] == [None, Line(0.3)]


def test_two_numbers_of_a_line_are_noted():
    metric = Metric.of("r=([0-9.]+)")
    assert [metric.read("r=0.5 r=0.5"), metric.notes[1:]] == [Line(0.5), []]
    assert metric.read("r=0.5 - val_r=0.3") == Line(0.5)
    assert "--metric matches 0.5 and 0.3 in one line: the first counts." in metric.notes[-1]


@pytest.mark.parametrize(
    ("metric", "minimize", "is_less", "said"),
    [
        ("val_loss", None, True, "Less val_loss is better, by its name; --maximize if not."),
        ("val_loss", False, False, ""),
        ('"val_loss": ([0-9.]+)', None, True, "Less val_loss is better"),
        ("recall=(.*)", None, False, "More recall is better, by its name; --minimize if not."),
        ("v=(.*)", None, False, "its name does not say: --minimize if not."),
        ("v=(.*)", True, True, ""),
    ],
)
def test_a_name_says_what_is_better(metric, minimize, is_less, said):
    found = Metric.of(metric, minimize=minimize)
    assert found.is_less_better is is_less
    assert said in " ".join(found.notes)
    assert bool(found.notes) == bool(said)


def test_metrics_have_names():
    names = {
        r'"val_loss": ([0-9.]+)': "val_loss",
        r"Epoch \d+: recall is ([0-9.]+)": "recall",
        r"([0-9.]+) recall": "recall",
        r"(?i)loss\s*[:=]\s*(\S+)": "loss",
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
def test_logged_metrics_are_read(value, step):
    with pytest.MonkeyPatch.context() as patch:
        lines: list[str] = []
        patch.setattr("builtins.print", lambda text, flush: lines.append(text))
        log_metric(auc=value, step=step)
    assert json.loads(lines[0])["step"] == step
    assert Metric.of(None).read(lines[0]) == Line(value, step)
