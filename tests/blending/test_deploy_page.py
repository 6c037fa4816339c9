"""docs/deploy.md, from two CSV files to lists."""

import csv
import re
import shlex
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from support.cli import check, invoke

PAGE = (Path(__file__).parents[2] / "docs/deploy.md").read_text("utf-8")
COMMANDS = "".join(re.findall(r"^```sh\n(.*?)^```", PAGE, re.M | re.S)).replace("\\\n", "")
PAGES_RUN = re.compile(r"runs/custom-\S+\w")
SMALL = ["--epochs", "1", "--dimension", "8", "--set", "word_dimension=8", "--batch-size", "64"]
"""Flags that make the page's run short."""


def write_files(folder):
    """Users of two kinds, each with links to items of one of two vocabularies."""
    rng = np.random.default_rng(0)
    movies, ratings = ["movieId,title"], ["userId,movieId"]
    for item in range(900):
        words = rng.integers(0, 40, 6) + 40 * (item % 2)
        movies.append(f"m{item}," + " ".join(f"word{word}" for word in words))
    for user in range(60):
        items = 2 * rng.choice(450, 40, replace=False) + user % 2
        ratings += [f"u{user},m{item}" for item in items]
    (folder / "movies.csv").write_text("\n".join(movies))
    (folder / "ratings.csv").write_text("\n".join(ratings))


def test_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    assert len(COMMANDS.splitlines()) == 6
    for line in COMMANDS.splitlines():
        assert line.startswith("ncfbench ")
        words = shlex.split(line)[1:] + SMALL * (" run " in line)
        run = next(Path("runs").glob("custom-*"), None)
        words = [PAGES_RUN.sub(str(run), word) for word in words]
        printed = invoke(*words)
        check(printed, 0)
        if "report" in line:
            assert re.search(r"^DEPLOY .*:\n  ncfbench export \S+ vectors ", printed.stdout, re.M)
    with Path("ratings.csv").open() as file:
        linked = {(row["userId"], row["movieId"]) for row in csv.DictReader(file)}
    table = pq.read_table("all/recommendations.parquet").to_pylist()
    shown = {(row["user"], row["item"]) for row in table}
    assert len(shown) == 60 * 50
    assert shown.isdisjoint(linked)
    of_kind = [int(user[1:]) % 2 == int(item[1:]) % 2 for user, item in shown]
    assert np.mean(of_kind) > 0.8
