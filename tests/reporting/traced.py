"""Statements with figures on a page, and the claims that trace them to kept records.

A new statement needs a function that computes its figures, in a module of claims, with the section
and its first words in :func:`traces`, or :func:`traces_rows` for a table. A number that nobody
measured goes to :data:`SETTINGS` with its reason.
"""

import re
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from kept import REPOSITORY

SETTINGS = {
    "recall@50": "the metric's name",
    "MovieLens 100K": "a data set's name",
    "KDD 2017": "when the paper appeared",
    "the five samplers": "how many the paper has",
    "(95 %": "the level of an interval",
    "Python 3.11": "a version",
    "Apache-2.0": "a version",
    "two-tower": "a kind of model",
    "for ten minutes": "the budget in the command above",
    "30 epochs by default": "a default",
}
"""Numbers that are no measurement, as they stand on the pages, and why."""
WORDS = re.findall(
    r"\w+",
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
    " sixteen seventeen eighteen nineteen twenty hundred thousand twice half third quarter",
)
# "one" is mostly no figure: "no one is best", "one setting for all data".
FIGURE = re.compile(rf"(?<![A-Za-z])\d+(?:[.,]\d+)*|\b(?:{'|'.join(WORDS[2:])})\b", re.I)
UNSEEN = re.compile(r"^```.*?^```|^ {4}.*?$|(?<=\])\([^)]*\)|^\|[-:| ]+\|$", re.M | re.S)
"""Code blocks, targets of links, rules of tables."""
NO_FIGURES = re.compile("|".join(["`[^`]*`", *map(re.escape, SETTINGS)]))


class Section(NamedTuple):
    """A section of a page, and what prints most of its figures."""

    page: str
    heading: str
    command: str


class Claim(NamedTuple):
    """A sentence or a row of a table.

    Attributes:
        starts: its first words.
        command: what prints its figures; several are separated by ``&&``.
        texts: computes them from kept records, as they stand there and in that order. It fails
            where the records do not say what the statement does.
    """

    section: Section
    starts: str
    command: str
    texts: Callable[[], Sequence[str]]


class Statement(NamedTuple):
    """A sentence or a row of a table, under its heading."""

    heading: str
    text: str

    def is_of(self, claim):
        """Return whether a claim is about it."""
        return self.heading == claim.section.heading and self.text.startswith(claim.starts)


CLAIMS: list[Claim] = []
Texts: TypeAlias = Callable[[], Sequence[str]]


def traces(section, starts, command=""):
    """Return a decorator of the function that computes the figures of a statement."""

    def register(texts):
        CLAIMS.append(Claim(section, starts, command or section.command, texts))
        return texts

    return register


def traces_rows(section, titles):
    """Return a decorator of the function that computes the rows of a table, by first cells."""

    def register(rows):
        def row(start):
            lines = [" ".join(each.split()) for each in rows()]
            return [next((each for each in lines if each.startswith(start)), f"(no row {start})")]

        for title in titles:
            start = " ".join(f"| {title} |".split())
            traces(section, start)(partial(row, start))
        return rows

    return register


def hide(pattern, text):
    """Return a text of the same length with spaces in place of what a pattern finds."""
    return pattern.sub(lambda found: re.sub(r"\S", " ", found[0]), text)


def statements(text):
    """Return the sentences and the rows of a page, each in one line."""
    found, heading, paragraph = [], "", ""
    for line, following in pairwise([*hide(UNSEEN, text).splitlines(), ""]):
        if line.startswith("#"):
            heading = line.strip("# ")
            continue
        paragraph += f" {line}"
        if not following.strip() or re.match(r"[|#]|[-*] |\d+\. ", following):
            own = " ".join(paragraph.split()).removeprefix("- ")
            if not own.startswith("|"):
                own = re.sub(r"(?<=[.!?])([)*\]]*) (?=[A-Z*`\[(])", r"\1\n", own)
            found += [Statement(heading, each) for each in own.splitlines()]
            paragraph = ""
    return found


def figures(text):
    """Return the figures of a statement, without settings and those in code."""
    return FIGURE.findall(hide(NO_FIGURES, text))


def problems(text, claims):
    """Return what is wrong with the figures of a page that has these claims, with the claim.

    Of statements that begin alike, as rows of two tables do, each claim has the next one.
    """
    said = statements(text)
    rest = [each.text for each in said]
    owners: dict[int, Claim] = {}
    found: list[tuple[Claim | None, str]] = []
    for claim in claims:
        own = next((i for i in range(len(said)) if i not in owners and said[i].is_of(claim)), None)
        if own is None:
            found.append((claim, f"No statement begins so: {claim.starts}"))
            continue
        owners[own], begin = claim, 0
        for part in recomputed(claim):
            left = rest[own]
            begin = left.find(part, begin)
            if begin < 0:
                found.append((claim, f"{part!r} does not stand in: {said[own].text}"))
                break
            rest[own] = f"{left[:begin]} {left[begin + len(part) :]}"
    for at, left in enumerate(rest):
        if figures(left):
            found.append((owners.get(at), f"{figures(left)} not traced: {said[at].text}"))
    return found


@cache
def recomputed(claim):
    """Return the texts of a claim; one that stands nowhere if the records deny it."""
    try:
        return claim.texts()
    except AssertionError as error:
        return [f"(denied by the records: {error})"]


def read(page):
    return (REPOSITORY / page).read_text("utf-8")


def word(number):
    """Return a small number as a word."""
    return WORDS[number]


def claims_of(page):
    return [each for each in CLAIMS if each.section.page == page]
