"""README and docs: their commands run, their links lead somewhere, and they stay readable."""

import re
import shlex
import tomllib
from contextlib import nullcontext
from itertools import product
from pathlib import Path

import pytest
from support.cli import invoke
from support.races import OTHERS
from support.tables import as_csv
from support.training import store_prepared

from ncfbench.data.sources import synthetic
from ncfbench.errors import install_command

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/*.md"))]
LINKED = [
    *PAGES,
    *(path for pattern in ("*/README.md", "results/*/README.md") for path in ROOT.glob(pattern)),
    ROOT / "benchmarks/results/boards.md",
    ROOT / "CHANGELOG.md",
]
COMMANDS = [ROOT / "README.md", ROOT / "docs/data.md"]
SMALL = {"users": 120, "items": 200, "links": 1500, "topics": 5, "vocabulary_size": 200}
# The encoder that is compiled soonest of those that read texts; other tests train the CNN.
SIZES = ["--encoder", "bow", "--set", "dimension=8", "--set", "word_dimension=8"]
LESS = {
    "run": ["--epochs", "1", "--batch-size", "64", *SIZES],
    "advise": [
        *("--try", "encoder=bow", "--try", "sampler=strat-ns", "--try", "batch_size=64"),
        *("--try", "stratum_size=4", "--try", "loss=sg", "--try", "learning_rate=0.01,0.03"),
        *(word for name, (value,) in OTHERS.items() for word in ("--try", f"{name}={value}")),
        *("--set", "epochs=1", *SIZES[2:]),
    ],
    "sweep": [
        *("--epochs", "1", "--seeds", "1", "--set", "batch_size=64", "--set", "encoder=mf"),
        *("--set", "loss=sg", "--set", "sampler=iid,strat-ns"),
    ],
}
"""Added to the page's own commands, so that they have less to do."""


def blocks(page, language):
    """Return the code blocks of a page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)


def test_extras_are_installed_from_a_checkout():
    sources = [path for suffix in ("py", "html") for path in ROOT.glob(f"ncfbench/**/*.{suffix}")]
    wrong = re.compile(r"""(pip install|Install) ["']?ncfbench\[""")
    assert [path for path in (*LINKED, *sources) if wrong.search(path.read_text("utf-8"))] == []
    assert install_command("torch") == f"pip install {shlex.quote(f'{ROOT}[torch]')}"


def commands(page):
    """Return the words of each ``ncfbench`` command of a page, without the program's name."""
    lines = "".join(blocks(page, "sh")).splitlines()
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("ncfbench ")]


@pytest.mark.long_cases("data")
@pytest.mark.parametrize(
    ("page", "begin", "end"),
    [(COMMANDS[0], 0, 5), (COMMANDS[0], 5, 8), (COMMANDS[1], 0, 2)],
    ids=["README", "README of the paper", "data"],
)
def test_commands_of_the_first_pages_run(tmp_path, monkeypatch, page, begin, end):
    """In the order of the page, on synthetic data under the names that it uses."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ncfbench.advice.race.MOST_SEEDS", 1)  # of each finalist, as of all arms
    pairs = product(range(40), range(60))
    ratings = [{"userId": u, "movieId": v, "rating": 3 + (u + v) % 3} for u, v in pairs]
    as_csv(tmp_path / "ratings.csv", ratings)
    films = [{"movieId": item, "title": f"film {item} about {item % 7}"} for item in range(60)]
    as_csv(tmp_path / "movies.csv", films)
    options = synthetic.Options(**SMALL, min_words=3, max_length=12)
    for name in ("citeulike", "synthetic"):
        plan = synthetic.plan(options, say=print, progress=nullcontext)
        store_prepared(plan, tmp_path / "data", name, name)
    of_page = commands(page)
    assert len(of_page) == (8 if page.stem == "README" else 2)
    for words in of_page[begin:end]:
        if words[:2] == ["prepare", "citeulike"]:  # a download
            continue
        done = invoke(*words, *LESS.get(words[0], []))
        assert done.exit_code == 0, f"{words}: {done.output}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pages_are_readable(page):
    """At most six columns in a table, which has a head, and 100 columns in code; a short README."""
    text = page.read_text("utf-8")
    assert page.stem != "README" or len(text.splitlines()) <= 100
    for line in text.splitlines():
        if line.startswith("|"):
            assert line.replace("\\|", "").count("|") <= 7, line
    assert not re.findall(r"^(?!\|).*\n\| ?:?-+:? ?\|.*", text, re.M), "a table without its head"
    for block in re.findall(r"^```[a-z]*\n(.*?)^```", text, re.M | re.S):
        assert [line for line in block.splitlines() if len(line) > 100] == []


def anchors(page):
    """Return the anchors of a page's headings, as hosts of Markdown make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", LINKED, ids=lambda page: f"{page.parent.name}/{page.stem}")
def test_links_lead_to_files_and_headings(page):
    for target, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", page.read_text("utf-8")):
        if target.startswith("http"):
            continue
        there = page.parent / target if target else page
        assert there.exists(), target
        assert not anchor or anchor in anchors(there), f"{target}#{anchor}"


def test_the_drawing_names_every_room():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    rooms = [room.strip() for layer in layers for room in layer.split("|")]
    packages = {path.parent.name for path in (ROOT / "ncfbench").glob("*/__init__.py")}
    assert packages <= set(rooms)
    drawing = blocks(ROOT / "CONTRIBUTING.md", "")[0]
    drawn = re.findall(r"(?:^|│) (\w+(?:, \w+)*)(?: {2}|$)", drawing, re.M)
    assert sorted(", ".join(drawn).split(", ")) == sorted(rooms)
