"""The paper's tables in the paper's shape, as plain text in cells: what the terminal, Markdown,
LaTeX and HTML show alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ncfbench.config import RunConfig
from ncfbench.registry import ENCODERS, LOSSES, SAMPLERS, find_encoder, find_loss, find_sampler
from ncfbench.report.comparison import Comparison
from ncfbench.report.marks import marks
from ncfbench.report.verdicts import KEY, NOT_COMPARABLE, Verdict, key_of
from ncfbench.runs.arms import Variant
from ncfbench.runs.trials import Budget

Row = Mapping[str, Any]
Member = tuple[Comparison, Sequence[Row]]

STATUS_MARKS = {
    "missing": "-",
    "not reached": "not reached",
    "no baseline": "no baseline",
    "no baseline of this seed": "no baseline",
    "no times": "no times",
    "different environment": "other machine",
    "diverged": "diverged",
}
INTERVAL_NOTE = (
    "[..]: 95 % interval over seeds, arm and baseline paired by seed; n: seeds. With one seed there"
    " is no interval."
)
CENSORED_NOTE = (
    "not reached: some seed never came down to the reference loss; < the most that the ratio can"
    " be; (seeds that did)."
)
RECALL_NOTE = (
    "±: half of the 95 % interval over the seeds in brackets. With one seed there is no interval."
)
RECALL = "test_recall_at_50"
SPEEDUPS = (
    ("per it.", "per_iteration_speedup", True),
    ("# of it.", "iterations_speedup", False),
    ("total", "total_speedup", True),
)
"""The paper's three columns: heading, measure, and whether it rests on times."""
VERDICT_NOTE = (
    "In brackets the printed value and the verdict; n/c: not comparable, then what the two figures"
    " alone would say. Every per-iteration and total ratio depends on hardware, which is not the"
    " paper's."
)


@dataclass(frozen=True)
class Cell:
    """What stands in a cell, and whether it is the best of its kind or says only why there is no
    value.
    """

    text: str
    best: bool = False
    muted: bool = False


Render = Callable[[Row, bool], Cell]
Mark = Callable[[Row], str]
NOTHING = Cell("-", muted=True)


@dataclass(frozen=True)
class Column:
    """What stands below a heading, for each data set."""

    loss: str
    """Whose rows it shows."""
    render: Render
    measure: str | None = None
    """The largest value of which is the best; None where none is."""


@dataclass(frozen=True)
class Line:
    """A row of a sheet."""

    encoder: str
    sampler: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Sheet:
    """A table: rows encoder x sampler, columns by data set, as the paper has them."""

    title: str
    groups: tuple[str, ...]
    """Data sets; each has all the columns."""
    columns: tuple[str, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()


def speedup_sheets(comparisons: Sequence[Comparison], rows: Sequence[Sequence[Row]]) -> list[Sheet]:
    """The speedup tables: one for each loss and choice of settings; behind each what its ratios are
    made of, by data set.
    """
    sheets = []
    for (loss, settings), members in _by_table(comparisons, rows).items():
        baseline = find_sampler(members[0][0].baseline_sampler).title
        flat = [row for _, member in members for row in member]
        notes = [_reference_note(members), INTERVAL_NOTE]
        if any(row["status"] == "not reached" for row in flat):
            notes.append(CENSORED_NOTE)
        times, mark = marks(flat)
        notes += times
        notes += [_tuned_note(comparison) for comparison, _ in members if comparison.config.tuned]
        if any(row.get("same_environment") is False for row in flat):
            notes.append("Some times are of different machines.")
        columns: dict[str, Column] = {
            **{
                heading: Column(
                    loss, partial(_speedup, measure, mark if timed else _no_mark), measure
                )
                for heading, measure, timed in SPEEDUPS
            },
            "n": Column(loss, _seeds),
        }
        sheets.append(
            _sheet(
                f"Speedup over {baseline}, {find_loss(loss).title} loss{settings}",
                members,
                columns,
                notes,
            )
        )
        for data in dict.fromkeys(_data(comparison) for comparison, _ in members):
            own = [
                (comparison, member) for comparison, member in members if _data(comparison) == data
            ]
            details: dict[str, Column] = {
                "items": Column(loss, _detail("item_slots", 0)),
                "full ms": Column(loss, _detail("full_iteration_seconds", 2, 1e3)),
                "step ms": Column(loss, _detail("step_iteration_seconds", 2, 1e3)),
                "step x": Column(loss, _detail("step_per_iteration_speedup", 2)),
                "it. to ref.": Column(loss, _detail("iterations_to_reference", 0)),
                "s to ref.": Column(loss, _detail("seconds_to_reference", 1)),
            }
            sheets.append(
                _sheet(
                    "What the ratios are made of (full account; step beside it)", own, details, ()
                )
            )
    return sheets


def recall_sheets(comparisons: Sequence[Comparison], rows: Sequence[Sequence[Row]]) -> list[Sheet]:
    """The recall table: encoder x sampler by data set and loss; one for each choice of other
    settings.
    """
    by_settings: dict[str, list[Member]] = {}
    for (_, settings), members in _by_table(comparisons, rows).items():
        by_settings.setdefault(settings, []).extend(members)
    sheets = []
    for settings, members in by_settings.items():
        columns: dict[str, Column] = {
            find_loss(name).title: Column(name, _recall, RECALL) for name in _losses(members)
        }
        reasons = sorted(
            {str(row["reason"]) for _, member in members for row in member if row.get("reason")}
        )
        notes = [RECALL_NOTE, *(f"No recall: {reason}." for reason in reasons)]
        notes += [_tuned_note(comparison) for comparison, _ in members if comparison.config.tuned]
        sheets.append(_sheet(f"Recall@50 on cold test items{settings}", members, columns, notes))
    return sheets


def verdict_sheets(
    comparisons: Sequence[Comparison],
    speedups: Sequence[Sequence[Row]],
    recalls: Sequence[Sequence[Row]],
    verdicts: Sequence[Verdict],
) -> list[Sheet]:
    """Both tables once more, each cell beside the printed one; only what the paper printed
    something for.
    """
    by_key = {key_of(verdict): verdict for verdict in verdicts}

    def printed(rows: Sequence[Sequence[Row]]) -> tuple[list[Comparison], list[list[Row]]]:
        """Comparisons of which the paper printed a cell, and their rows without variants."""
        found = [
            (comparison, [row for row in member if not row["variant"]])
            for comparison, member in zip(comparisons, rows, strict=True)
            if any(
                key[:4] == (*_data(comparison), comparison.config.encoder, comparison.config.loss)
                for key in by_key
            )
        ]
        return [comparison for comparison, _ in found], [member for _, member in found]

    sheets = []
    for (loss, settings), members in _by_table(*printed(speedups)).items():
        times, mark = marks([row for _, member in members for row in member])
        columns: dict[str, Column] = {
            heading: Column(
                loss, partial(_beside, by_key, measure, mark if timed else _no_mark), measure
            )
            for heading, measure, timed in SPEEDUPS
        }
        if any(
            verdict.measure == "iterations_speedup" and verdict.loss == loss for verdict in verdicts
        ):
            title = f"Speedup beside the paper's, {find_loss(loss).title} loss{settings}"
            sheets.append(_sheet(title, members, columns, [VERDICT_NOTE, *times]))
    by_settings: dict[str, list[Member]] = {}
    for (_, settings), members in _by_table(*printed(recalls)).items():
        by_settings.setdefault(settings, []).extend(members)
    for settings, members in by_settings.items():
        columns = {
            find_loss(name).title: Column(name, partial(_beside, by_key, RECALL, _no_mark), RECALL)
            for name in _losses(members)
        }
        sheets.append(
            _sheet(
                f"Recall@50 beside the paper's{settings}",
                members,
                columns,
                [VERDICT_NOTE.split(". ")[0] + "."],
            )
        )
    return sheets


def _reference_note(members: Sequence[Member]) -> str:
    """The reference losses by data set and encoder, and by k where the baseline ran with
    several.
    """
    names = _names([_data(comparison) for comparison, _ in members])
    parts = []
    for comparison, member in members:
        own = [row for row in member if row["status"] == "baseline"]
        usual = find_encoder(comparison.config.encoder).negatives
        for row in own:
            which = f" {row['variant'] or f'k={usual}'}" if len(own) > 1 else ""
            parts.append(
                f"{names[_data(comparison)]} {row['encoder']}{which}: {row['reference_loss']:.4f}"
            )
    known = "; ".join(parts) or "none: no baseline has run"
    return f"Reference loss (smallest probe of the baseline, mean over seeds): {known}."


def _tuned_note(comparison: Comparison) -> str:
    """What a sweep chose for each arm, and the budget that each had."""
    config = comparison.config
    budget = Budget.of(config.tuned)
    values = "; ".join(
        " ".join((_with_note(variant, config), chosen))
        for variant in comparison.arms
        if (chosen := comparison.tuned(variant))
    )
    what = (
        f"{find_encoder(config.encoder).title}: {' and '.join(budget.settings)} tuned on validation"
        " recall"
    )
    return f"{what}, {budget.trials} trials of {budget.epochs} epochs: {values}."


def _data(comparison: Comparison) -> tuple[str, str]:
    return comparison.config.dataset, comparison.data_fingerprint


def _losses(members: Sequence[Member]) -> list[str]:
    """The losses of some comparisons in the registry's order; plug-ins behind."""
    present = {comparison.config.loss for comparison, _ in members}
    return sorted(
        present,
        key=lambda name: (list(LOSSES).index(name) if name in LOSSES else len(LOSSES), name),
    )


def _by_table(
    comparisons: Sequence[Comparison], rows: Sequence[Sequence[Row]]
) -> dict[tuple[str, str], list[Member]]:
    """Comparisons that share a table: of one loss and the same unusual settings."""
    tables: dict[tuple[str, str], list[Member]] = {}
    for comparison, member in zip(comparisons, rows, strict=True):
        title = comparison.title()
        tables.setdefault((comparison.config.loss, f" ({title})" if title else ""), []).append(
            (comparison, member)
        )
    return tables


def _names(data: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Names of data sets, with digits of the fingerprint where two have the same; in the given
    order.
    """
    unique = list(dict.fromkeys(data))
    names = [name for name, _ in unique]
    return {
        (name, digits): name if names.count(name) == 1 else f"{name} {digits[:6]}"
        for name, digits in unique
    }


def _sheet(
    title: str, members: Sequence[Member], columns: Mapping[str, Column], notes: Sequence[str]
) -> Sheet:
    """Rows: encoder x sampler x variant. Columns: for each data set the given headings."""
    data = _names([_data(comparison) for comparison, _ in members])
    cells: dict[tuple[str, str, str], dict[tuple[str, str, str], Row]] = {}
    for comparison, member in members:
        for row in member:
            place_of = (*_data(comparison), comparison.config.loss)
            cells.setdefault((row["encoder"], row["sampler"], row["variant"]), {})[place_of] = row
    order = {name: place for place, name in enumerate([*ENCODERS, *SAMPLERS])}
    lines, last = [], ""
    # Plug-ins stand behind what is built in.
    for key in sorted(
        cells,
        key=lambda key: (
            order.get(key[0], 99),
            key[0],
            order.get(key[1], 99),
            key[1],
            _natural(key[2]),
        ),
    ):
        encoder, sampler, variant = key
        shown = []
        for name, fingerprint in data:
            for column in columns.values():
                here = (name, fingerprint, column.loss)
                rivals = [
                    own[here]
                    for (other, _, _), own in cells.items()
                    if other == encoder and here in own
                ]
                found = cells[key].get(here)
                best = (
                    found is not None
                    and column.measure is not None
                    and _is_best(found, rivals, column.measure)
                )
                shown.append(NOTHING if found is None else column.render(found, best))
        label = find_sampler(sampler).title + (f" ({variant})" if variant else "")
        lines.append(
            Line(find_encoder(encoder).title if encoder != last else "", label, tuple(shown))
        )
        last = encoder
    labels = {
        data[_data(comparison)]: comparison.data_label
        for comparison, _ in members
        if comparison.data_label
    }
    notes = [*(f"{name}: {label}." for name, label in labels.items()), *notes]
    return Sheet(title, tuple(data.values()), tuple(columns), tuple(lines), tuple(notes))


def _natural(variant: str) -> list[tuple[str, int]]:
    """To sort by: ``s=2`` before ``s=16``."""
    return [(text, int(digits or 0)) for text, digits in re.findall(r"([^0-9]+)([0-9]*)", variant)]


def _is_best(row: Row, rivals: Sequence[Row], measure: str) -> bool:
    """Whether a row has the largest value of a measure of its encoder, data and loss.

    Ratios over different baselines (of another k) do not compete: each is best among its own.
    """
    against = _baseline_of(row, rivals)
    known = [
        other[measure]
        for other in rivals
        if other.get(measure) is not None and _baseline_of(other, rivals) == against
    ]
    return bool(known) and row.get(measure) == max(known)


def _baseline_of(row: Row, rows: Sequence[Row]) -> str | None:
    """The variant of the baseline that a row's ratios are over; None for recalls, and where it is
    not among the rows.
    """
    runs = set(row.get("baseline_runs") or ())
    found = (
        other["variant"]
        for other in rows
        if other["status"] == "baseline" and runs & set(other["runs"])
    )
    return next(found, None)


def _no_mark(row: Row) -> str:
    return ""


def _speedup(column: str, mark: Mark, row: Row, best: bool) -> Cell:
    value, at_most = row.get(column), row.get(f"{column}_at_most")
    if value is None:
        if at_most is None:
            return _without_value(row)
        bound = (
            f"{STATUS_MARKS['not reached']} < {at_most:.2f} ({row['seeds_reached']}/{row['seeds']})"
        )
        return Cell(bound + mark(row), muted=True)
    text, lower, upper = f"{value:.2f}", row.get(f"{column}_lower"), row.get(f"{column}_upper")
    if lower is not None and upper is not None and row["status"] != "baseline":
        text += f" [{lower:.2f}, {upper:.2f}]"
    text += "" if row.get("same_environment", True) else " mixed"
    return Cell(text + mark(row), best)


def _without_value(row: Row) -> Cell:
    """Why there is no value, in a word."""
    return Cell(STATUS_MARKS.get(row["status"], "-"), muted=True)


def _seeds(row: Row, best: bool) -> Cell:
    return Cell(str(row["seeds"])) if row.get("seeds") else NOTHING


def _recall(row: Row, best: bool) -> Cell:
    value, upper = row.get("test_recall_at_50"), row.get("test_recall_at_50_upper")
    if value is None:
        return _without_value(row)
    return Cell(
        f"{value:.4f}" + ("" if upper is None else f" ± {upper - value:.4f} ({row['seeds']})"), best
    )


def _detail(column: str, digits: int, scale: float = 1) -> Render:
    """A cell that shows a column as a number."""

    def render(row: Row, best: bool) -> Cell:
        value = row.get(column)
        return Cell("-" if value is None else f"{value * scale:,.{digits}f}")

    return render


def _beside(
    by_key: Mapping[tuple[str, ...], Verdict], measure: str, mark: Mark, row: Row, best: bool
) -> Cell:
    """Our value, the printed one, the verdict."""
    verdict = by_key.get((*(row[name] for name in KEY), measure))
    value, digits = row.get(measure), 4 if measure == "test_recall_at_50" else 2
    end = "" if value is None and row.get(f"{measure}_at_most") is None else mark(row)
    if verdict is None:
        return _without_value(row) if value is None else Cell(f"{value:.{digits}f}{end}", best)
    word = verdict.verdict
    if word == NOT_COMPARABLE:
        word = "n/c" + (f": {verdict.figures_alone}" if verdict.figures_alone else "")
    bound = row.get(f"{measure}_at_most")
    if value is None:
        ours = _without_value(row).text if bound is None else f"< {bound:.{digits}f}"
    else:
        ours = f"{value:.{digits}f}"
    text = f"{ours} ({verdict.printed:.{digits}f}, {word}){end}"
    return Cell(text, best, muted=value is None and bound is None)


def _with_note(variant: Variant, config: RunConfig) -> str:
    """An arm's title, with its note in brackets where it has one."""
    note = variant.note(config.encoder)
    return find_sampler(variant.sampler).title + (f" ({note})" if note else "")
