"""Each sentence and table row with a figure in README.md is traced to a command and to kept
records.
"""

import re

import claims_readme
import pytest
from kept import REPOSITORY
from traced import (
    CLAIMS,
    FIGURE,
    SETTINGS,
    UNSEEN,
    WORDS,
    claims_of,
    hide,
    problems,
    read,
    statements,
)

PAGES = (claims_readme.PAGE,)


@pytest.mark.parametrize(
    "claim", CLAIMS, ids=lambda claim: f"{claim.section.page}-{claim.starts.strip('| ')[:40]}"
)
def test_a_figure_is_that_of_kept_records(claim):
    """It stands on its page as it is computed, and what prints it is there."""
    page = claim.section.page
    assert [wrong for own, wrong in problems(read(page), claims_of(page)) if own is claim] == []
    for command in claim.command.split(" && "):
        target = re.fullmatch(r"(?:python|ncfbench report) (\S+)|ncfbench profile .+", command)
        assert target[1] is None or (REPOSITORY / target[1]).exists()


@pytest.mark.parametrize("page", PAGES)
def test_every_figure_is_traced(page):
    """By a claim, and every claim has its statement."""
    claims = claims_of(page)
    assert [wrong for _, wrong in problems(read(page), claims)] == []
    assert len(problems("", claims)) == len(claims)


@pytest.mark.parametrize("page", PAGES)
def test_a_changed_figure_is_noticed(page):
    """Each in turn: another last digit, or another number word."""
    text, claims = read(page), claims_of(page)
    assert problems(text, claims) == []
    seen = hide(re.compile(r"^#.*?$|`[^`]*`", re.M), hide(UNSEEN, text))
    found = list(FIGURE.finditer(seen))
    assert len(found) > 40
    for figure in found:
        old, last = figure[0], figure[0][-1]
        new = f"{old[:-1]}{(int(last) + 1) % 10}" if last.isdigit() else WORDS[2 + (old == "two")]
        changed = f"{text[: figure.start()]}{new}{text[figure.end() :]}"
        assert problems(changed, claims), f"{old} at {figure.start()}"


def test_numbers_without_records_are_listed():
    """None of them is a leftover."""
    said = " ".join(each.text for page in PAGES for each in statements(read(page)))
    assert [each for each in SETTINGS if each not in said] == []
