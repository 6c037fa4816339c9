"""Results kept in the repository: every number comes out again, and the documents show them."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from folders import write_run

from ncfbench.paper import printed
from ncfbench.registry import find_encoder, find_loss
from ncfbench.reporting.answers import Answer
from ncfbench.reporting.claims.case import Judged
from ncfbench.reporting.claims.samplers import DISTURBED
from ncfbench.reporting.collecting import collect
from ncfbench.reporting.objectives import find_fields
from ncfbench.reporting.profiled_speedups import ProfiledSpeedup
from ncfbench.reporting.results import Results
from ncfbench.reporting.table import three_digits
from ncfbench.reporting.verify import verification
from ncfbench.reporting.views.objectives import objective_tables
from ncfbench.storage import schemas, tables

REPOSITORY = Path(__file__).parents[2]
CLAIMS_BY_LOSS = {
    "fewer-iterations": "sharing needs fewer iterations: times fewer than the baseline",
    "soonest": "`strat-ns` is soonest of the five: times sooner than `ns`",
    "kept-recall": "recall is kept: share of `strat-ns` above the baseline's",
}
MAIN = {"stratum_size": "4", "coupling": "direct"}
TITLES = {"citeulike-title-tags": "CiteULike", "movielens-plots": "MovieLens"}
PAPER = "iid", "neg", "strat", "ns", "strat-ns"
FOLDERS = sorted(path.parent for path in REPOSITORY.glob("results/*/speedup.parquet"))


@cache
def kept(folder: str, **only: str) -> Results:
    """A folder's results, read once, of runs whose settings have some values."""
    wanted = {name: [value] for name, value in only.items()}
    where = REPOSITORY / "results" / folder
    return collect(where, REPOSITORY / "no data", allow_mixed=False, locations={}, only=wanted)


def test_there_are_results() -> None:
    users = tuple(f"-all-users{end}" for end in ("-gru", "-mse"))
    rivals = "-rivals", "-rivals-gru"
    ends = ("", *users, "-bert", "-coupling", *rivals, "-transformer")
    others = "", *rivals
    names = [f"citeulike-title-tags{end}" for end in ends]
    names += [f"movielens-plots{end}" for end in others]
    assert [folder.name for folder in FOLDERS] == names


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_number_comes_out_again(folder: Path, tmp_path: Path) -> None:
    found = verification.verify(folder)
    assert found.numbers > 450  # the smallest has 468
    assert (found.mismatches, found.problems) == ([], [])
    # And a report of today writes the same tables.
    copied = Path(shutil.copytree(folder, tmp_path / "results"))
    collect(copied, tmp_path, allow_mixed=False, locations={}).write()
    assert verification.verify(copied).mismatches == []
    for name, schema in (("speedup.parquet", schemas.SPEEDUP), ("recall.parquet", schemas.RECALL)):
        written, kept = (tables.read_rows(place / name, schema) for place in (copied, folder))
        assert len(written) == len(kept) > 0
        for own, row in zip(written, kept, strict=True):
            # A command repeats the folders that `report` was called with.
            named = {column: value for column, value in row.items() if column != "command"}
            close = {
                column: pytest.approx(value, rel=1e-9)
                for column, value in named.items()
                if isinstance(value, float)
            }
            assert {column: own[column] for column in named} == named | close


def test_all_results_stay_below_forty_megabytes() -> None:
    files = [path for path in (REPOSITORY / "results").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 40e6
    assert max(path.stat().st_size for path in files if path.suffix == ".svg") < 300e3


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_they_are_compact_and_name_no_machine(folder: Path) -> None:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 12e6
    assert not [path for path in files if "checkpoints" in path.parts]
    for path in folder.glob("*/environment.json"):
        environment = json.loads(path.read_text())
        assert environment["commit"]["id"]
        assert not environment["commit"]["dirty"], "measured with code that no commit holds"
        assert not [
            text for text in ("/tmp", "/home", "/work", "/root") if text in path.read_text()
        ]


def test_the_documents_show_their_numbers() -> None:
    """The table of the README, with the times of a profile."""
    shown = [
        line
        for line in (REPOSITORY / "README.md").read_text().splitlines()
        if re.search(r"\.\d{3} \|$", line)
    ]
    assert shown == readme_lines(kept("citeulike-title-tags"))


def readme_lines(results: Results) -> list[str]:
    """Items and milliseconds of an iteration, speedups and recall; bold: the soonest."""
    recalls = {row["sampler"]: row["test_recall_at_50"] for row in results.recall if is_main(row)}
    (found,) = (
        each
        for each in results.profiled
        if each.rounds == 7 and not each.computation and is_main(each.speedups[0].speedup)
    )
    lines = []
    for each in found.speedups[: len(PAPER)]:
        row = each.speedup
        milliseconds, total = profiled_text(each)
        cells = [
            f"`{row['sampler']}`",
            f"{row['item_slots']:,.0f}",
            milliseconds,
            ratio(row, "iterations"),
            f"**{total}**" if row["sampler"] == "strat-ns" else total,
            f"{recalls[row['sampler']]:.3f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


@pytest.mark.parametrize(
    ("name", "encoder", "losses"),
    [
        ("citeulike-title-tags", "cnn", ("sg", "mse", "log", "hinge")),
        ("citeulike-title-tags", "lstm", ("sg", "mse", "log", "hinge")),
        ("movielens-plots", "cnn", ("sg", "mse", "log", "hinge")),
        ("movielens-plots", "lstm", ("sg", "mse", "log", "hinge")),
    ],
)
def test_the_page_on_tables_shows_recalls(name: str, encoder: str, losses: tuple[str, ...]) -> None:
    """Each sampler has a row with the recalls of all losses that it can train, in their order."""
    rows = [
        row
        for row in kept(name).recall
        if row["encoder"] == encoder and not row["variant"] and row.get("test_recall_at_50")
        if "coupling" not in (row["settings"] or "")
    ]
    lines = (REPOSITORY / "docs/tables.md").read_text().splitlines()
    for sampler in PAPER:
        own = {row["loss"]: row for row in rows if row["sampler"] == sampler}
        texts = [recall_text(own[loss]) for loss in losses if loss in own]
        assert texts
        pattern = ".*".join(map(re.escape, texts))
        title = f"| `{sampler}` |"
        assert [line for line in lines if line.startswith(title) and re.search(pattern, line)]


def test_the_page_on_results_begins_with_the_answers() -> None:
    """How much sooner `strat-ns` is, at three targets, with its recall and the baseline's."""
    expected = []
    for folder, title in TITLES.items():
        for encoder in ("cnn", "lstm"):
            negatives = str(find_encoder(encoder).negatives)
            results = kept(folder, encoder=encoder, negatives=negatives, **MAIN)
            recalls = {
                (row["loss"], row["sampler"]): f"{row['test_recall_at_50']:.3f}"
                for row in results.recall
                if not row["variant"] and row["test_recall_at_50"]
            }
            for answer in results.answers:
                expected += answer_lines(answer, f"{title}, {find_encoder(encoder).title}", recalls)
    page = (REPOSITORY / "docs/results.md").read_text().splitlines()
    rows = [
        line for line in page if re.match(r"\| (CiteULike|MovieLens), (CNN|LSTM) \| [A-Z]", line)
    ]
    assert sorted(row for row in rows if row.count("|") == 7) == sorted(expected)


def test_the_page_on_tables_shows_three_claims_of_every_loss() -> None:
    """A row for each data set, encoder and loss; verdicts but `reproduced` are written out."""
    page = (REPOSITORY / "docs/tables.md").read_text().splitlines()
    rows = [line for line in page if re.match(r"\| (CiteULike|MovieLens), [A-Z]+, [A-Z]", line)]
    expected = []
    for name, title in TITLES.items():
        expected += claim_lines(kept(name), title)
    assert sorted(rows) == sorted(expected)


def test_the_page_on_tables_compares_at_a_common_loss_where_the_baseline_still_falls() -> None:
    page = (REPOSITORY / "docs/tables.md").read_text()
    assert "\n".join(common_loss_lines()) in page


def common_loss_lines() -> list[str]:
    """The head, and each sampler with how much sooner it is at the lowest loss of a level that all
    seeds of the baseline reach.
    """
    sensitivity = kept("movielens-plots", encoder="lstm").sensitivity()
    head, columns = ["LSTM"], []
    for loss in ("sg", "mse", "log"):
        rows = [row for row in sensitivity if (row["loss"], row["measure"]) == (loss, "probe_loss")]
        level = min(row["level"] for row in rows if row["baseline_seeds_reached"] == 3)
        head.append(f"{find_loss(loss).title}: {level:.2f}")
        columns.append({row["sampler"]: row for row in rows if row["level"] == level})
    lines = [f"| {' | '.join(head)} |", "| --- | ---: | ---: | ---: |"]
    for sampler in (*PAPER[1:], "ns-all", "strat-all"):
        cells = [f"`{sampler}`"]
        for column in columns:
            row = column.get(sampler)
            if row is None:
                cells.append("-")
            elif row["total_speedup"] is None:
                cells.append(f"< {row['total_speedup_at_most']:.2f}")
            else:
                value, lower, upper = (
                    row[f"total_speedup{end}"] for end in ("", "_lower", "_upper")
                )
                cells.append(f"{value:.2f} ({lower:.2f} to {upper:.2f})")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def test_the_page_on_results_counts_these_claims() -> None:
    """How often each is reproduced, how often not judged, and between which values."""
    judged = [claims_by_loss(kept(name)) for name in TITLES]
    page = (REPOSITORY / "docs/results.md").read_text()
    for line in count_lines([own for found in judged for own in found.values()]):
        assert line in page


def count_lines(judged: Sequence[Mapping[str, Judged]]) -> list[str]:
    """A row for each claim: verdicts, and the smallest and the largest value."""
    lines = []
    for claim, words in CLAIMS_BY_LOSS.items():
        found = [own[claim] for own in judged if claim in own]
        values = [one.value for one in found if one.value is not None]
        verdicts = [one.verdict for one in found if one.value is not None]
        digits = 3 if claim == "kept-recall" else 2
        counts = [verdicts.count(each) for each in ("reproduced", "not reproduced", "undecided")]
        cells = [words, *map(str, counts), f"{min(values):.{digits}f} to {max(values):.{digits}f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def claims_by_loss(results: Results) -> dict[tuple[str, str], dict[str, Judged]]:
    """Verdicts by encoder and loss; times are those of a profile where there is one."""
    found: dict[tuple[str, str], dict[str, Judged]] = {}
    for one in sorted(results.claims, key=lambda one: "profile" in one.evidence):
        if one.claim in CLAIMS_BY_LOSS and "plain" not in one.settings:
            found.setdefault((one.encoder, one.loss), {})[one.claim] = one
    return found


def claim_lines(results: Results, title: str) -> list[str]:
    """The row of each encoder and loss of a folder."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for key, own in claims_by_loss(results).items():
        for claim, one in own.items():
            text = "not judged"
            if one.value is not None and one.lower is not None and one.upper is not None:
                digits = 3 if claim == "kept-recall" else 2
                text = f"{one.value:.{digits}f} ({one.lower:.{digits}f} to {one.upper:.{digits}f})"
                text += "" if one.verdict == "reproduced" else f", {one.verdict}"
            found.setdefault(key, {})[claim] = text
    return [
        f"| {title}, {find_encoder(encoder).title}, {find_loss(loss).title} |"
        f" {' | '.join(own.get(claim, 'not judged') for claim in CLAIMS_BY_LOSS)} |"
        for (encoder, loss), own in found.items()
    ]


def test_the_page_on_results_shows_times_to_a_recall() -> None:
    """Seconds to nine tenths of the best recall, by sampler and loss."""
    results = kept("citeulike-title-tags", encoder="cnn", negatives="10", **MAIN)
    (field,) = find_fields(results.answers)
    page = (REPOSITORY / "docs/results.md").read_text()
    assert f"recall@50 of {field.levels[1]:.3f}, nine tenths of the best" in page
    seconds = {
        (racer.contender.config.sampler, racer.answer.config.loss): racer.to_levels[1]
        for racer in field.racers
    }
    for sampler in PAPER:
        cells = [f"`{sampler}`"]
        for loss in ("sg", "mse", "log", "hinge"):
            found = seconds.get((sampler, loss))
            cells.append("never" if found is None else three_digits(found))
            if (sampler, loss) not in seconds:
                cells[-1] = "-"
        assert f"| {' | '.join(cells)} |" in page


def answer_lines(answer: Answer, title: str, recalls: Mapping[tuple[str, str], str]) -> list[str]:
    """The row of `strat-ns`; none where it has no ratio to the baseline."""
    own = [each for each in answer.standings if each.contender.config.sampler == "strat-ns"]
    base, total = answer.baseline, own[0].sooner and own[0].sooner.total
    if base is None or total is None:
        return []
    easier = dict(answer.easier_of(own[0]))
    ratios = (total, easier[0.5], easier[0.25])
    loss = answer.config.loss
    cells = [
        title,
        find_loss(loss).title,
        *(f"{each.value:.2f} ({each.lower:.2f} to {each.upper:.2f})" for each in ratios),
        f"{recalls[loss, 'strat-ns']}, {recalls[loss, base.contender.config.sampler]}",
    ]
    return [f"| {' | '.join(cells)} |"]


@pytest.mark.parametrize(
    ("name", "encoder", "computations"),
    [
        ("citeulike-title-tags", "cnn", ["", "convolution=plain"]),
        ("citeulike-title-tags", "lstm", [""]),
        ("movielens-plots", "cnn", ["", "convolution=plain"]),
    ],
)
def test_the_page_on_tables_shows_times_of_profiles(
    name: str, encoder: str, computations: list[str]
) -> None:
    """Milliseconds, iterations and totals by profiles of 7 rounds; then the paper's ratios."""
    printed_as = {"citeulike-title-tags": "citeulike", "movielens-plots": "news"}
    page = (REPOSITORY / "docs/tables.md").read_text()
    found = [
        each
        for each in kept(name).profiled
        if (each.comparison.config.encoder, each.comparison.config.loss) == (encoder, "sg")
        if each.rounds == 7
    ]
    assert [each.computation for each in found] == computations
    for computed in zip(*(each.speedups for each in found), strict=True):
        row = computed[0].speedup
        milliseconds, total = profiled_text(computed[0])
        cells = [f"`{row['sampler']}`", milliseconds, ratio(row, "iterations"), total]
        for other in computed[1:]:
            seconds, total = profiled_text(other)
            cells[1] += f"; {seconds}"
            cells.append(total)
        cells += [
            ", ".join(f"{float(each[key]):.2f}" for key in ("per_iteration", "iterations", "total"))
            for each in printed.table("speedup")
            if (each["dataset"], each["encoder"], each["sampler"])
            == (printed_as[name], encoder, row["sampler"])
        ]
        assert f"| {' | '.join(cells)} |" in page


@pytest.mark.parametrize(
    "folder", [each for each in FOLDERS if "rivals" in each.name], ids=lambda each: each.name
)
def test_the_page_on_rivals_shows_their_numbers(folder: Path) -> None:
    """Each arm's seconds to both levels and its best recall, in the order of the report."""
    (table,) = objective_tables(kept(folder.name).answers)
    page = (REPOSITORY / "docs/rivals.md").read_text()
    rows = [" | ".join(cell.text for cell in row[2:5]) for row in table.rows]
    found = [row for line in page.splitlines() for row in rows if line.endswith(f"| {row} |")]
    assert found == rows


def is_main(row: dict[str, Any]) -> bool:
    return (row["encoder"], row["loss"], row["variant"]) == ("cnn", "sg", "") and not row[
        "settings"
    ]


def ratio(row: dict[str, Any], name: str) -> str:
    value = row[f"{name}_speedup"]
    return f"< {row[f'{name}_speedup_at_most']:.2f}" if value is None else f"{value:.2f}"


def recall_text(row: dict[str, Any]) -> str:
    lower, upper = (row[f"test_recall_at_50_{end}"] for end in ("lower", "upper"))
    value = f"{row['test_recall_at_50']:.3f}"
    return value if lower is None else f"{value} ± {(upper - lower) / 2:.3f}"


def profiled_text(each: ProfiledSpeedup) -> tuple[str, str]:
    """Milliseconds and the total with its interval."""
    seconds, total = f"{1e3 * each.seconds:.1f}", each.total
    if total is None:
        return seconds, f"< {each.at_most:.2f}"
    if total.lower is None or total.lower == total.upper:
        return seconds, f"{total.value:.2f}"
    return seconds, f"{total.value:.2f} ({total.lower:.2f} to {total.upper:.2f})"


def test_a_profile_decides_where_runs_were_disturbed() -> None:
    found = [
        one
        for one in kept("movielens-plots").claims
        if (one.claim, one.encoder, one.loss) == ("soonest", "cnn", "sg")
    ]
    assert len(found) == 2, "the profiles of both convolutions"
    assert DISTURBED not in [one.evidence for one in found]


def test_runs_that_are_left_out_are_named(tmp_path: Path) -> None:
    """An interrupted one with its command, one of a sweep, and one that a newer one replaces."""
    older, newer = (write_run(tmp_path, "iid", [9, 5], 10, time=time) for time in ("1", "2"))
    alone = write_run(tmp_path, "ns", [9, 5], 10, status="interrupted", epochs=7, seed=2)
    turns = write_run(tmp_path, "strat", [9, 5], 10, status="interrupted", interleaved=["a"])
    found = collect(tmp_path, tmp_path, allow_mixed=False, locations={"--runs-dir": "here"})
    command = (
        "ncfbench run --dataset citeulike --sampler ns --encoder cnn --loss sg --epochs 7 --seed 2"
        " --runs-dir here --resume"
    )
    assert sorted(found.left_out) == sorted(
        [
            f"{older.name} is left out: a newer run has its settings, data and seed.",
            f"{alone.name} is interrupted at iteration 100, and left out. To continue it:"
            f" {command}",
            f"{turns.name} is interrupted at iteration 100, and left out. To continue it: the"
            " command of its sweep or race",
        ]
    )
    assert found.comparisons[0].arms
    assert newer.name not in " ".join(found.left_out)
