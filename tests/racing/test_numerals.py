"""Numbers of lines are read whole, whatever part of them an expression matches."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncfbench.errors import UsageError
from ncfbench.racing.numerals import number_at, number_of

CUTS = (r"[-+]?([0-9.]+)", r"[-+]?([0-9])", r"([-+]?[0-9]+)", r"\D*?([0-9.]+)", r"\S*([0-9])")
"""Expressions that match a part of a number, or all of it."""


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


@given(
    st.integers(1000, 10**12),
    st.integers(1, 6),
    st.sampled_from([",", "_", "'", "\u2019", "\u00a0", "\u202f"]),
)
def test_marks_of_thousands_are_no_ends(value, digits, mark):
    number = value + 0.5**digits
    text = f"{number:,.{digits}f}".replace(",", mark)
    assert read(r"v=([0-9.]+)", f"v={text} after") == number
    assert read(rf"v=([0-9.{mark}]+)", f"v={text} after") == number


@given(st.floats(0, 1e6), st.sampled_from([1, 2, 4, 5]))
def test_a_decimal_comma_is_no_end(value, digits):
    text = f"{value:.{digits}f}"
    assert read(r"v=([0-9.]+)", f"v={text.replace('.', ',')} ") == float(text)


@pytest.mark.parametrize(
    ("expression", "line", "value"),
    [
        (r"recall=([0-9.]+)", "recall=0,123", 0.123),
        (r"recall=([0-9.]+)", "recall=1,2e-05", 1.2e-05),
        (r"recall=([0-9.]+)", "recall=1,234,567 x", 1234567),
        (r"recall=([0-9.]+)", "recall=1 of 234.5", 1),
        (r"recall=([0-9.]+)", "recall=0.5 234.5 s", 0.5),
        (r"recall=([0-9.]+)", "recall=12 345", 12),
        (r"recall=([0-9.]+)", "recall=0.25,0.31", 0.25),
        (r"recall=([0-9.]+)", "recall=3, 4", 3),
        (r"^[0-9]+,([0-9.]+)", "300,0.31,2.5", 0.31),
        (r"^[0-9]+,([0-9.]+)", "300,31,2", 31),
        (r"^[0-9]+,([0-9.]+)", "3,1.234,0.310", 1.234),
        (r"recall=([0-9.]+)", "recall=0.2000.", 0.2),
        (r"recall=([0-9.]+)", "recall=0.3...", 0.3),
        (r"recall=([0-9.]+)", "recall=12.30%", 12.3),
        (r"recall=([0-9.]+)", "recall=12.30 %|##", 12.3),
        (r"recall=(\S+)", "recall=(0.31),", 0.31),
        (r"recall=([.0-9]+)", "recall=.5", 0.5),
        (r"recall=-([.0-9]+)", "recall=-.5", -0.5),
        (r"loss-([0-9.]+)", "loss-0.5", 0.5),
        (r"loss(-?[0-9.]+)", "loss-0.5", -0.5),
        (r"-([0-9.]+)\.ckpt", "model-003-0.31.ckpt", 0.31),
        (r"_([0-9.]+)", "model_0.31", 0.31),
        (r"x=([0-9.-]+)", "x=-inf", -math.inf),
        (r"x=(\S+)", "x=Infinity", math.inf),
        (r"took ([0-9.]+)s", "took 0.31s", 0.31),
        (r"x=([0-9.]+)", "x=0.31it/s", 0.31),
        (r"x=([0-9.]+)", "x=0.31/s", 0.31),
        (r"x=.*/([0-9.]+)", "x=3/0.31", 0.31),
        (r"x=(.*)", "x=abc", None),
        (r"x=(.*)", "x=0.31 after 3 s", None),
        (r"x=(\S+)", "x=...", None),
        (r"x=(\S+)", "x=nano", None),
    ],
)
def test_numbers_are_read_as_printed(expression, line, value):
    assert read(expression, line) == value


@pytest.mark.parametrize(
    ("expression", "line", "why"),
    [
        (r"v=([0-9.]+)", "v=1,234", "'1,234' may be read in two ways"),
        (r"v=([0-9.]+)", "v=1.234,5", "'1.234,5'"),
        (r"v=([0-9.]+)", "v=1 234.5", "'1 234.5'"),
        (r"v=([0-9.]+)", "v=12 345 678.9 s", "'12 345 678.9'"),
        (r"v=[0-9]+,([0-9]+)", "v=12,31", "'12,31'"),
        (r"v=.*,([0-9.]+)", "v=1,234.5", "'1,234.5'"),
        (r"v=([0-9.]+)", "v=1.2d-3", "'1.2d-3'"),
        (r"v=([0-9.]+)", "v=0x1F", "'0x1'"),
        (r"v=([0-9.]+)", "v=1.5k", "'1.5k'"),
        (r"v=([0-9.]+)", "v=1.2 x 10^-3", "'1.2 x 10'"),
        (r"v=([0-9.]+)", "v=1.2\u00d710\u207b\u00b3", "'1.2\u00d710'"),
        (r"v=([0-9]+\.[0-9]+)", "v=1.2.3", "'1.2.3'"),
        (r"v=([0-9.]+)", "v=1_0", "'1_0'"),
        (r"v=([0-9.]+)", "v=1.#QNAN", "'1.#'"),
        (r"v=([0-9.]+)", "v=3/4 of all", "'3/4'"),
        (r"v=([0-9])", "v=31.5%/.45", "'31.5%/.45'"),
    ],
)
def test_what_cannot_be_read_is_refused(expression, line, why):
    """With the line; a step that cannot be read is left out."""
    with pytest.raises(UsageError, match=re.escape(why)) as raised:
        read(expression, line)
    assert repr(line) in str(raised.value)
    step = read(expression, line, is_count=True)
    assert step is None or {*line} & {*",/ "}


def test_a_step_may_have_marks_of_thousands():
    assert read(r"step (\d+)", "step 12,000:", is_count=True) == 12000


@pytest.mark.parametrize(
    ("value", "number"),
    [
        *((3, 3.0), (0.5, 0.5), ("1e-3", 0.001), ("12.3%", 12.3), ("nan", math.nan)),
        *((True, None), (None, None), ([1], None), ("0.3 of 1", None), ("", None), (10**400, None)),
    ],
)
def test_values_of_json_are_numbers(value, number):
    assert number_of(value) == pytest.approx(number, nan_ok=True)
