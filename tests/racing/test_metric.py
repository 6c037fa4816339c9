"""Lines that hold a metric, their numbers, and whether less or more of it is better."""

import json
import math
import random
import re
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncfbench.errors import UsageError
from ncfbench.racing.direction import chance_of, is_less_better, trend
from ncfbench.racing.metric import Line, Metric, log_metric
from ncfbench.racing.numerals import number_at, number_of


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
        (
            r"step (?P<step>\d+).* v (?P<value>\S+) after (\S+) s",
            "step 7: v -1e-3 after 2 s",
            Line(-1e-3, 7),
        ),
        (r"step (?P<step>\d+) recall=([0-9.]+)", "step 200 recall=0.31", Line(0.31, 200)),
        ("x=(.*)", "x=abc", None),
        (r"(?P<step>\d+)/\d+ r=([0-9])[0-9.]*/", "7/9 r=0.31/0.42", Line(0.31, 7)),
        (r"r=([0-9.]+)/[0-9.]+ (?P<step>\d+)", "r=0.31/0.42 7/9", Line(0.31, 7)),
        ("recall=([0-9.]+)", "recall=nan", Line(math.nan)),
        ("recall=([0-9.]+)", "recall=inf after 3 s", Line(math.inf)),
        (r"^(?P<step>\d+),(?P<value>\d+)", "300,31", Line(31, 300)),
        (r"step (?P<step>\d+)\S* v=([0-9.]+)", "step 12,000 v=0,5", Line(0.5, 12000)),
        ("recall=([0-9.]+)", "\x1b[32mrecall=\x1b[1m0.\x1b[0m31\x1b(B\x1b[m", Line(0.31)),
        ("recall=([0-9.]+)", "recall=0.2\b\b\b0.3\ufeff", Line(0.3)),
        ("recall=([-0-9.]+)", "recall=\u22120.5", Line(-0.5)),
        ("r2=([0-9.]+)", "r2=\u22120.5", Line(-0.5)),
        ("r2=([0-9.]+)", "step -1 r2=-inf", Line(-math.inf)),
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
        (None, '{"loss": NaN}', Line(math.nan)),
        (r"v=(\S+) step=(?P<step>\S+)", "v=0.5 step=inf", Line(0.5)),
        (None, '{"lr": 10.0, "batch": 3, "seed": 1}', None),
        ("loss", "{'loss': 0.5, 'recall': nan, 'epoch': 1.0}", Line(0.5)),
        ("loss", "INFO {'loss': nan, 'x': None}", Line(math.nan)),
        ("loss", "{'loss': np.float64(0.5), 'x': tensor(1., device='cpu')}", Line(0.5)),
        ("loss", "{'loss': Array(0.5, dtype=float32)}", Line(0.5)),
    ],
)
def test_a_line_is_read(metric, line, read):
    result = Metric.of(metric).read(line)
    assert result == read or (math.isnan(result.value) and math.isnan(read.value))


def test_a_choice_is_asked_for():
    """Also of keys of later lines; a key that is called metric is the choice. Of nested ones that
    of validation is proposed.
    """
    choice = "loss and recall: choose one with --metric loss"
    with pytest.raises(UsageError, match=choice):
        Metric.of(None).read('{"loss": 1, "recall": 2, "step": 3}')
    metric = Metric.of(None)
    assert metric.read('{"loss": 2.3, "step": 1}') == Line(2.3, 1)
    assert metric.read('{"step": 2}') is None
    with pytest.raises(UsageError, match=choice):
        metric.read('{"recall": 0.1, "step": 100}')
    named = Metric.of(None)
    assert [*map(named.read, ('{"metric": 1}', '{"loss": 2}'))] == [Line(1.0), None]
    with pytest.raises(UsageError, match="choose one with --metric val.recall"):
        Metric.of("recall").read('{"train": {"recall": 0.9}, "val": {"recall": 0.3}}')


@pytest.mark.parametrize(
    ("text", "said"),
    [("f1(macro", "no regular expression"), (r"step (?P<step>\d+)", "a group for step alone")],
)
def test_what_is_no_metric_is_refused(text, said):
    with pytest.raises(UsageError, match=said):
        Metric.of(text)


@pytest.mark.parametrize(
    ("metric", "lines"),
    [
        (None, ['{"mode": "train", "recall": 0.5}', '{"mode": "val", "recall": 0.3}']),
        ("recall=([0-9.]+)", ["recall=0.5 (train)", "recall=0.3 (val)"]),
    ],
)
def test_a_word_chooses_one_of_several_series(metric, lines):
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
        ('"val_loss": ([0-9.]+)', None, True, "Less val_loss is better"),
        ("recall=(.*)", None, False, "More recall is better, by its name; --minimize if not."),
        ("v=(.*)", None, False, "its name does not say: --minimize if not."),
        ("val_loss", False, False, ""),
        ("v=(.*)", True, True, ""),
    ],
)
def test_a_name_says_what_is_better(metric, minimize, is_less, said):
    metric = Metric.of(metric, minimize=minimize)
    assert metric.is_less_better is is_less
    assert (said in " ".join(metric.notes), bool(metric.notes)) == (True, bool(said))


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
        lines = []
        patch.setattr("builtins.print", lambda text, flush: lines.append(text))
        log_metric(auc=value, step=step)
    assert json.loads(lines[0])["step"] == step
    assert Metric.of(None).read(lines[0]) == Line(value, step)


# Numbers are read whole, whatever part of them an expression matches.


CUTS = (r"[-+]?([0-9.]+)", r"[-+]?([0-9])", r"([-+]?[0-9]+)", r"\D*?([0-9.]+)", r"\S*([0-9])")
"""Expressions that match a part of a number, or all of it."""
PLAIN = "v=([0-9.]+)"


def read(expression, line, **more):
    return number_at(line, *re.search(expression, line).span(1), (0, len(line)), **more)


@given(
    st.floats(-1e12, 1e12),
    st.sampled_from(["{!r}", "{:.3e}", "{:.4E}", "{:+.5f}", "{:g}", "{:.8f}"]),
    st.sampled_from(CUTS),
    st.sampled_from(["", " ok", ".", ", step 3", "]", ";", " [3/9]", "s", "%"]),
)
def test_a_cut_number_is_extended(value, form, cut, behind):
    """Exponents, signs and digits that the expression leaves out belong to it."""
    text = form.format(value)
    assert read(f"v={cut}", f"step 7 v={text}{behind}") == float(text)


@given(st.integers(1000, 10**12), st.integers(1, 6), st.sampled_from(",_'\u2019\u00a0\u202f"))
def test_marks_of_thousands_and_of_decimals_are_no_ends(value, digits, mark):
    number = value + 0.5**digits
    text = f"{number:,.{digits}f}".replace(",", mark)
    assert read(PLAIN, f"v={text} after") == number
    assert read(rf"v=([0-9.{mark}]+)", f"v={text} after") == number
    if digits != 3:  # else it may be thousands
        text = f"{number:.{digits}f}"
        assert read(PLAIN, f"v={text.replace('.', ',')} ") == float(text)


READ = {
    "0,123": 0.123, "1,2e-05": 1.2e-05, "1,234,567 x": 1234567, "1 of 234.5": 1,
    "0.5 234.5 s": 0.5, "12 345": 12, "0.25,0.31": 0.25, "3, 4": 3, "0.2000.": 0.2, "0.3...": 0.3,
    "12.30%": 12.3, "12.30 %|##": 12.3, ".5": 0.5, "0.31s": 0.31, "0.31it/s": 0.31, "0.31/s": 0.31,
}  # fmt: skip
"""By what stands behind the equals sign."""
UNCLEAR = {
    "1,234": "1,234", "1.234,5": "1.234,5", "1 234.5": "1 234.5", "12 345 678.9 s": "12 345 678.9",
    "1.2d-3": "1.2d-3", "0x1F": "0x1", "1.5k": "1.5k", "1.2 x 10^-3": "1.2 x 10",
    "1.2\u00d710\u207b\u00b3": "1.2\u00d710", "1_0": "1_0", "1.#QNAN": "1.#", "3/4 of all": "3/4",
}  # fmt: skip


@pytest.mark.parametrize(
    ("expression", "line", "value"),
    [
        *((PLAIN, f"v={text}", value) for text, value in READ.items()),
        ("^[0-9]+,([0-9.]+)", "300,0.31,2.5", 0.31),
        ("^[0-9]+,([0-9.]+)", "300,31,2", 31),
        ("^[0-9]+,([0-9.]+)", "3,1.234,0.310", 1.234),
        (r"v=(\S+)", "v=(0.31),", 0.31),
        ("v=-([.0-9]+)", "v=-.5", -0.5),
        ("v-([0-9.]+)", "v-0.5", 0.5),
        ("v(-?[0-9.]+)", "v-0.5", -0.5),
        (r"-([0-9.]+)\.ckpt", "model-003-0.31.ckpt", 0.31),
        ("_([0-9.]+)", "model_0.31", 0.31),
        ("v=([0-9.-]+)", "v=-inf", -math.inf),
        (r"v=(\S+)", "v=Infinity", math.inf),
        ("v=.*/([0-9.]+)", "v=3/0.31", 0.31),
        ("v=(.*)", "v=0.31 after 3 s", None),
        (r"v=(\S+)", "v=...", None),
        (r"v=(\S+)", "v=nano", None),
    ],
)
def test_numbers_are_read_as_printed(expression, line, value):
    assert read(expression, line) == value


@pytest.mark.parametrize(
    ("expression", "line", "why"),
    [
        *((PLAIN, f"v={text}", why) for text, why in UNCLEAR.items()),
        ("v=[0-9]+,([0-9]+)", "v=12,31", "12,31"),
        ("v=.*,([0-9.]+)", "v=1,234.5", "1,234.5"),
        (r"v=([0-9]+\.[0-9]+)", "v=1.2.3", "1.2.3"),
        ("v=([0-9])", "v=31.5%/.45", "31.5%/.45"),
    ],
)
def test_what_cannot_be_read_is_refused(expression, line, why):
    """With the line; a step that cannot be read is left out."""
    with pytest.raises(UsageError, match=re.escape(f"{why!r} may be read in two")) as raised:
        read(expression, line)
    assert repr(line) in str(raised.value)
    step = read(expression, line, is_count=True)
    assert step is None or {*line} & {*",/ "}


@pytest.mark.parametrize(
    ("value", "number"),
    [
        *((3, 3.0), (0.5, 0.5), ("1e-3", 0.001), ("12.3%", 12.3), ("nan", math.nan)),
        *((True, None), (None, None), ([1], None), ("0.3 of 1", None), ("", None), (10**400, None)),
    ],
)
def test_values_of_json_are_numbers(value, number):
    assert number_of(value) == pytest.approx(number, nan_ok=True)


# Whether less or more is better, by a name and by values


LESS = (
    "loss error err perplexity ppl nll mse rmse mae cost log_loss cross_entropy wer cer val_loss"
    " eval/loss test-error valLoss trainloss probe_loss CrossEntropyLoss BCELoss recall_loss MAE@1"
    " val_loss/dataloader_idx_0 train.loss RMSE error_rate negative_log_likelihood kl_divergence"
)
MORE = (
    "recall ndcg auc accuracy f1 map mrr hit precision r2 bleu score recall@50 Recall50 NDCG@10"
    " nDCG@10 mAP@50 mIoU hit_rate HR@10 top5_acc acc1 f1-score eval/recall validation_recall_at_50"
    " rocAuc log_likelihood mean_average_precision elbo"
)


NEITHER = "v x value metric objective neg_log_loss neg_recall 1-ap"
"""Nor do negatives say which is better, but for a likelihood's."""


def test_names_say_what_is_better():
    for names, is_less in ((LESS, True), (MORE, False), (NEITHER, None)):
        names = names.split()
        assert {name: is_less_better(name) for name in names} == dict.fromkeys(names, is_less)
    assert {*map(chance_of, ("val_auc", "AUC@10", "roc-auc"))} == {0.5}
    assert {*map(chance_of, ("pr_auc", "recall", "accuracy", "v"))} == {None}


@pytest.mark.parametrize("sign", [1, -1])
def test_trends_are_seen_through_noise(sign):
    """A fall of two standard deviations over 1,000 lines; the same lines shuffled have none. Of
    noise alone about one in twenty has one.
    """
    draw = random.Random(0)
    values = [sign * (n / 500 + draw.gauss(0, 1)) for n in range(1000)]
    assert trend(values) == sign
    assert trend(draw.sample(values, len(values))) == 0
    trends = [trend([draw.random() for _ in range(20)]) for _ in range(1000)]
    assert 20 <= 1000 - trends.count(0) <= 80


@pytest.mark.parametrize(
    ("values", "now", "at_last"),
    [
        ([], 0, 0),
        ([1], 0, 0),
        ([2, 1], 0, -1),
        ([1, 2, 3], 0, 1),
        ([1, 2, 2], 0, 0),
        ([4, 3, 2, 1], -1, -1),
        ([3, 3, 3, 3, 3, 3], 0, 0),
    ],
)
def test_few_values_are_a_trend_at_last(values, now, at_last):
    assert (trend(values), trend(values, is_last=True)) == (now, at_last)
