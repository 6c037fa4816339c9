"""Pages show the numbers of the results that are kept in the repository."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from kept import FOLDERS, REPOSITORY, kept

from ncfbench.catalog import find_encoder, find_loss
from ncfbench.paper import printed
from ncfbench.paper.claims import ClaimVerdict
from ncfbench.reporting.answers import Answer
from ncfbench.reporting.formats import three_digits
from ncfbench.reporting.overall import worth
from ncfbench.reporting.profiles import by_profile
from ncfbench.reporting.results import Results
from ncfbench.reporting.views.overall import objective_tables
from ncfbench.timing.speedups import ROUNDS_OF_INTERVALS

CLAIMS_BY_LOSS = {
    "fewer-iterations": "sharing needs fewer iterations: times fewer than the baseline",
    "soonest": "`strat-ns` is soonest of the five: times sooner than `ns`",
    "kept-recall": "recall is kept: share of `strat-ns` above the baseline's",
}
PAGE = (REPOSITORY / "docs/paper.md").read_text()
LINES = PAGE.splitlines()
MAIN = {"stratum_size": "4", "coupling": "direct"}
TITLES = {"citeulike-title-tags": "CiteULike", "movielens-plots": "MovieLens"}
DIGITS = {"kept-recall": 3}
ENDS = "", "_lower", "_upper"
PAPER = "iid", "neg", "strat", "ns", "strat-ns"
LOSSES = "sg", "mse", "log", "hinge"
ALL_USERS = "ns-all", "strat-all"


@pytest.mark.parametrize("encoder", ["cnn", "lstm"])
@pytest.mark.parametrize("name", TITLES)
def test_the_papers_page_shows_recalls(name: str, encoder: str) -> None:
    """Each sampler has a row with the recalls of all losses that it can train, in their order."""
    rows = [
        row
        for row in kept(name).recall
        if row["encoder"] == encoder and not row["variant"] and row.get("test_recall_at_50")
        if "coupling" not in (row["settings"] or "")
    ]
    for sampler in (*PAPER, *(ALL_USERS if encoder == "lstm" else ())):
        own = {row["loss"]: row for row in rows if row["sampler"] == sampler}
        texts = [recall_text(own[loss]) for loss in LOSSES if loss in own]
        assert texts
        pattern = ".*".join(map(re.escape, texts))
        title = f"| `{sampler}` |"
        assert [line for line in LINES if line.startswith(title) and re.search(pattern, line)]


@pytest.mark.long
def test_the_papers_page_begins_with_the_answers() -> None:
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
    rows = [
        line for line in LINES if re.match(r"\| (CiteULike|MovieLens), (CNN|LSTM) \| [A-Z]", line)
    ]
    assert sorted(row for row in rows if row.count("|") == 7) == sorted(expected)


def test_the_papers_page_shows_three_claims_of_every_loss() -> None:
    """A row for each data set, encoder and loss; verdicts but `reproduced` are written out."""
    rows = [line for line in LINES if re.match(r"\| (CiteULike|MovieLens), [A-Z]+, [A-Z]", line)]
    expected = []
    for name, title in TITLES.items():
        expected += claim_lines(kept(name), title)
    assert sorted(rows) == sorted(expected)


@pytest.mark.long
def test_the_papers_page_compares_at_a_common_loss_where_the_baseline_still_falls() -> None:
    """The head, and each sampler with how much sooner it is at the lowest loss of a level that all
    seeds of the baseline reach.
    """
    sensitivity = kept("movielens-plots", encoder="lstm").sensitivity()
    head, columns = ["LSTM"], []
    for loss in ("mse", "log"):
        rows = [row for row in sensitivity if (row["loss"], row["measure"]) == (loss, "probe_loss")]
        level = min(row["level"] for row in rows if row["baseline_seeds_reached"] == 3)
        head.append(f"{find_loss(loss).title}: {level:.2f}")
        columns.append({row["sampler"]: row for row in rows if row["level"] == level})
    lines = [f"| {' | '.join(head)} |", "| --- | ---: | ---: |"]
    for sampler in PAPER[1:]:
        cells = [f"`{sampler}`"]
        for column in columns:
            row = column.get(sampler)
            if row is None:
                cells.append("-")
            elif row["total_speedup"] is None:
                cells.append(f"< {row['total_speedup_at_most']:.2f}")
            else:
                cells.append(interval(*(row[f"total_speedup{end}"] for end in ENDS)))
        lines.append(f"| {' | '.join(cells)} |")
    assert "\n".join(lines) in PAGE


def test_the_papers_page_counts_these_claims() -> None:
    """How often each is reproduced, how often not judged, and between which values."""
    judged = [own for name in TITLES for own in claims_by_loss(kept(name)).values()]
    for claim, words in CLAIMS_BY_LOSS.items():
        found = [own[claim] for own in judged if claim in own]
        values = [one.value for one in found if one.value is not None]
        verdicts = [one.verdict for one in found if one.value is not None]
        digits = DIGITS.get(claim, 2)
        counts = [verdicts.count(each) for each in ("reproduced", "not reproduced", "undecided")]
        cells = [words, *map(str, counts), f"{min(values):.{digits}f} to {max(values):.{digits}f}"]
        assert f"| {' | '.join(cells)} |" in PAGE


def claims_by_loss(results: Results) -> dict[tuple[str, str], dict[str, ClaimVerdict]]:
    """Verdicts by encoder and loss; times are those of a profile where there is one."""
    found: dict[tuple[str, str], dict[str, ClaimVerdict]] = {}
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
                digits = DIGITS.get(claim, 2)
                text = interval(one.value, one.lower, one.upper, digits)
                text += "" if one.verdict == "reproduced" else f", {one.verdict}"
            found.setdefault(key, {})[claim] = text
    return [
        f"| {title}, {find_encoder(encoder).title}, {find_loss(loss).title} |"
        f" {' | '.join(own.get(claim, 'not judged') for claim in CLAIMS_BY_LOSS)} |"
        for (encoder, loss), own in found.items()
    ]


def test_the_papers_page_shows_times_to_a_recall() -> None:
    """Seconds to nine tenths of the best recall, by sampler and loss."""
    results = kept("citeulike-title-tags", encoder="cnn", negatives="10", **MAIN)
    (table,) = objective_tables(results.overall)
    level = table.header[2].heading.removeprefix("s to ")
    assert f"recall@50 of {level}, nine tenths of the best" in PAGE
    seconds = {}
    for row in table.rows:
        _, loss, sampler = row[0].text.split()
        seconds[sampler, loss] = row[2].text
    for sampler in PAPER:
        cells = [f"`{sampler}`"]
        for loss in LOSSES:
            cells.append(seconds.get((sampler, loss), "-"))
        assert f"| {' | '.join(cells)} |" in PAGE


def test_the_papers_page_says_what_to_train_with() -> None:
    """Over the losses of CiteULike with the CNN: the report's first answer."""
    (found,) = kept("citeulike-title-tags", encoder="cnn").overall
    later = {(row.choice, row.value): f"{row.arm.expected:.2g}" for row in worth(found)}
    ties = {tuple(arm.name.split()[1:]) for arm in found.ties}
    assert ties == {("hinge", "strat-ns"), ("log", "strat-ns"), ("mse", "ns")}
    assert {len(arm.runs) for arm in found.ties} == {3}
    assert later["sampler", "iid"] == later["sampler", "neg"]
    assert later["loss", "sg"] == "inf"
    loss = find_loss(found.best.config.loss).title
    lines = (
        f"the CNN it is `{found.best.config.sampler}` with {loss}:"
        f" a recall@50 of {abs(found.target or 0):.3f} on validation links after"
        f" {three_digits(found.best.total_seconds or 0)} s. `ns` takes"
        f" {later['sampler', 'ns']} times as long, `iid`",
        f"and `neg` {later['sampler', 'iid']} times; over three seeds log, hinge and `ns` with"
        " MSE [cannot be told](measuring.md#how-much-seeds-differ) from it",
        f"which has {found.floors[0].recall:.3f} on test links without training.",
    )
    assert all(line in PAGE for line in lines)


def answer_lines(answer: Answer, title: str, recalls: Mapping[tuple[str, str], str]) -> list[str]:
    """The row of `strat-ns`; none where it has no ratio to the baseline."""
    own = [arm for arm in answer.arms if arm.config.sampler == "strat-ns"]
    base, total = answer.baseline, own[0].sooner and own[0].sooner.total
    if base is None or total is None:
        return []
    easier = dict(answer.easier(own[0]))
    ratios = (total, easier[0.5], easier[0.25])
    loss = answer.config.loss
    cells = [
        title,
        find_loss(loss).title,
        *(interval(each.value, each.lower, each.upper) for each in ratios),
        f"{recalls[loss, 'strat-ns']}, {recalls[loss, base.config.sampler]}",
    ]
    return [f"| {' | '.join(cells)} |"]


@pytest.mark.long_cases("(citeulike-title-tags|movielens-plots)-cnn")
@pytest.mark.parametrize(
    ("name", "encoder", "computations"),
    [
        ("citeulike-title-tags", "cnn", ["", "convolution=plain"]),
        ("citeulike-title-tags", "lstm", [""]),
        ("movielens-plots", "cnn", ["", "convolution=plain"]),
        ("movielens-plots", "lstm", [""]),
    ],
)
def test_the_papers_page_shows_times_of_profiles(
    name: str, encoder: str, computations: list[str]
) -> None:
    """Milliseconds, iterations and totals by profiles of 7 rounds; then the paper's ratios."""
    printed_as = {"citeulike-title-tags": "citeulike", "movielens-plots": "news"}
    found = [
        each
        for each in kept(name).profiled
        for config in [each.runs[0].config]
        if (config.encoder, config.loss) == (encoder, "sg")
        if each.rounds == 7
    ]
    assert [each.computation for each in found] == computations
    for computed in zip(*(each.rows for each in found), strict=True):
        row = computed[0]
        milliseconds, total = profiled_text(row)
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
        assert f"| {' | '.join(cells)} |" in PAGE


SEVEN = dict.fromkeys(("mf", "bow", "cnn", "transformer"), 7)


@pytest.mark.parametrize(
    ("folder", "rounds"),
    [
        ("citeulike-title-tags-encoders", SEVEN | {"lstm": 7, "gru": 7, "bert": 3}),
        ("anime-encoders", SEVEN | {"bert": 2}),
    ],
)
def test_the_page_on_costly_items_shows_profiles_of_one_machine(
    folder: str, rounds: Mapping[str, int]
) -> None:
    """In order of the time of the items over that of everything else: milliseconds of an iteration
    of `iid`, that ratio, and how many times shorter three samplers are.
    """
    profiles = by_profile(kept(folder).beside["costmodel"])
    assert len({own["iid"]["environment_key"] for own in profiles}) == 1
    assert {own["iid"]["encoder"]: own["iid"]["rounds"] for own in profiles} == rounds
    lines = []
    for own in sorted(profiles, key=items_over_rest):
        base = own["iid"]
        title = find_encoder(base["encoder"]).title
        title = title.replace("BERT", "MiniLM" + ", 10 word pieces" * ("citeulike" in folder))
        title += ", plain convolution" if "plain" in (base["unusual_settings"] or "") else ""
        milliseconds = 1e3 * base["measured_full_iteration_seconds"]
        cells = [title, three_digits(milliseconds), three_digits(items_over_rest(own))]
        for sampler in ("ns", "strat-ns", "strat-all"):
            value, lower, upper = (
                own[sampler][f"{end}_full_speedup"] for end in ("measured", "lower", "upper")
            )
            has_interval = base["rounds"] >= ROUNDS_OF_INTERVALS
            cells.append(interval(value, lower, upper) if has_interval else f"{value:.2f}")
        lines.append(f"| {' | '.join(cells)} |")
    assert len(lines) == len(rounds) + 1, "two CNNs"
    assert "\n".join(lines) in (REPOSITORY / "docs/costly-items.md").read_text()


def items_over_rest(profile: Mapping[str, Mapping[str, Any]]) -> float:
    """Time of iid's items over that of everything else in its iteration, by the cost model."""
    items: float = profile["iid"]["predicted_items_seconds"]
    return items / (profile["iid"]["predicted_full_iteration_seconds"] - items)


@pytest.mark.parametrize(
    "folder", [each for each in FOLDERS if "rivals" in each.name], ids=lambda each: each.name
)
def test_the_page_on_rivals_shows_their_numbers(folder: Path) -> None:
    """Each arm's seconds to both levels and its best recall, in the order of the report."""
    (table,) = objective_tables(kept(folder.name).overall)
    page = (REPOSITORY / "docs/rivals.md").read_text()
    rows = [" | ".join(cell.text for cell in row[1:4]) for row in table.rows]
    found = [row for line in page.splitlines() for row in rows if line.endswith(f"| {row} |")]
    assert found == rows


def ratio(row: dict[str, Any], name: str) -> str:
    value = row[f"{name}_speedup"]
    return f"< {row[f'{name}_speedup_at_most']:.2f}" if value is None else f"{value:.2f}"


def recall_text(row: dict[str, Any]) -> str:
    lower, upper = (row[f"test_recall_at_50_{end}"] for end in ("lower", "upper"))
    value = f"{row['test_recall_at_50']:.3f}"
    return value if lower is None else f"{value} [{lower:.3f}, {upper:.3f}]"


def profiled_text(row: Mapping[str, Any]) -> tuple[str, str]:
    """Milliseconds and the total with its interval."""
    seconds, total = f"{1e3 * row['seconds']:.1f}", row["total"]
    if total is None:
        return seconds, f"< {row['at_most']:.2f}"
    if total.lower is None or total.lower == total.upper:
        return seconds, f"{total.value:.2f}"
    return seconds, interval(total.value, total.lower, total.upper)


def interval(value: float, lower: float | None, upper: float | None, digits: int = 2) -> str:
    """A value with its interval."""
    return f"{value:.{digits}f} ({lower:.{digits}f} to {upper:.{digits}f})"
