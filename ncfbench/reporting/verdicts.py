"""Verdicts: our figures beside the paper's, one verdict for each cell that it printed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ncfbench.paper import printed
from ncfbench.paper.printed import MEASURES, Measure, PrintedCell
from ncfbench.reporting.comparison import Comparison

Row = Mapping[str, Any]

REPRODUCED, BETTER, WORSE, UNDECIDED = "reproduced", "better", "worse", "undecided"
NOT_COMPARABLE, MISSING = "not comparable", "missing"
BY_FIGURES = (REPRODUCED, BETTER, WORSE, UNDECIDED)
"""Verdicts that follow from two figures alone."""
VERDICTS = (*BY_FIGURES, NOT_COMPARABLE, MISSING)
RECALL = "test_recall_at_50"
RATIO_TOLERANCE = 0.25
"""Relative distance at which a ratio counts as reproduced: a choice, stated wherever it decides."""
RECALL_TOLERANCE = 0.02
"""The same for a recall. The paper's best sampler has 3 % more than IID."""
NEUTRAL = (
    "probe_every",
    "probe_links",
    "probe_negatives",
    "iterations_per_dispatch",
    "patience",
    "precision",
    "item_dropout",
    "user_l2",
)
"""Settings whose values the paper does not give, or that change no result."""
OTHER_MACHINE = "not comparable (other machine): its baseline ran in another environment"
CHOICE = "one without other settings before the others"
"""Rule that chooses among several comparisons of a cell."""
PAPER_TEXT, PAPER_WORDS = ["title", "abstract"], 300
"""CiteULike's text in the paper, and its longest text."""
PRINTED_DATASETS = frozenset(cell.dataset for cell in printed.values())
KEY = ("dataset", "data_fingerprint", "encoder", "loss", "sampler", "settings")
"""Columns of our tables that, with a measure, name a verdict."""
TITLES = {
    "per_iteration_speedup": "Speedup per iteration",
    "iterations_speedup": "Speedup in number of iterations",
    "total_speedup": "Speedup in total",
    RECALL: "Recall@50",
}


@dataclass(frozen=True)
class Verdict:
    """Verdict on one printed cell, with our figure.

    Attributes:
        dataset: our data set, whose name and text may differ from those of ``printed_dataset``.
        figures_alone: the verdict of the two figures if nothing else differed.
    """

    dataset: str
    printed_dataset: str
    data_fingerprint: str
    encoder: str
    loss: str
    sampler: str
    measure: Measure
    settings: str
    printed: float
    value: float | None
    lower: float | None
    upper: float | None
    seeds: int
    verdict: str
    figures_alone: str | None
    reason: str


def judge(
    row: Row | None, measure: Measure, printed_value: float, differences: Sequence[str]
) -> tuple[str, str | None, str]:
    """Return the verdict on a cell, the verdict of the figures alone, and the reason.

    The rules, in this order:

    *missing*: no run has the figure; a run that diverged has none. Where arm and baseline ran on
    different machines, so that their times are not divided, the cell is *not comparable* instead.

    *by the figures alone*: ``reproduced`` where ours is within :data:`RATIO_TOLERANCE` (ratios) or
    :data:`RECALL_TOLERANCE` (recall) of the printed value and, with several seeds, the printed
    value lies in our 95 % interval. ``undecided`` where it lies in the interval and ours is not
    near: a wide interval must not make a cell easier to reproduce. Else ``better`` or ``worse``; a
    larger figure is better. Where some seed never reached the target there is only an upper bound:
    ``worse`` if it is below the printed value, else ``undecided``.

    *not comparable*: the experiments differ in text, data or settings, or in hardware, on which
    every per-iteration and total ratio depends. The verdict of the figures alone is then kept
    beside it.

    Args:
        row: of the speedup or the recall table.
        differences: between the experiments, in words; empty if they are comparable.
    """
    if row is None or row["status"] == "missing":
        return MISSING, None, "no run"
    value, bound = row.get(measure), row.get(f"{measure}_at_most")
    if value is not None:
        interval = row.get(f"{measure}_lower"), row.get(f"{measure}_upper")
        alone, reason = _by_figures(value, *interval, measure, printed_value)
    elif bound is not None:
        alone = WORSE if bound < printed_value else UNDECIDED
        missed = f"{row['seeds'] - row['seeds_reached']} of {row['seeds']} seeds"
        reason = f"not reached by {missed}: at most {bound:.2f}"
    elif row["status"] == "different environment":
        return NOT_COMPARABLE, None, "; ".join([*differences, OTHER_MACHINE])
    else:
        cause = row.get("reason") if row["status"] != "diverged" else None
        return MISSING, None, str(cause or row["status"])
    if differences:
        return NOT_COMPARABLE, alone, "; ".join([*differences, reason])
    return alone, alone, reason


def _by_figures(
    value: float, lower: float | None, upper: float | None, measure: Measure, printed_value: float
) -> tuple[str, str]:
    tolerance = RECALL_TOLERANCE if measure == RECALL else RATIO_TOLERANCE
    near = abs(value / printed_value - 1) <= tolerance
    side = BETTER if value > printed_value else WORSE
    distance = f"{'within' if near else 'not within'} {100 * tolerance:.0f} %"
    if lower is None or upper is None:
        return REPRODUCED if near else side, f"one seed, {distance} of the printed value"
    if not lower <= printed_value <= upper:
        return side, "printed value outside our 95 % interval"
    if not near:
        reason = f"printed value in our 95 % interval, too wide to tell: ours is {distance}"
        return UNDECIDED, reason
    return REPRODUCED, f"printed value in our 95 % interval, ours {distance}"


def data_differences(comparison: Comparison, manifest: Mapping[str, Any] | None) -> list[str]:
    """Return how a comparison's data differ from the paper's, as far as the manifest tells.

    Args:
        manifest: of the comparison's data set, if it is known.
    """
    if manifest is None or manifest["fingerprint"] != comparison.data_fingerprint:
        return ["text not known: the data set is not prepared here"]
    options, found = manifest["options"], []
    text = options.get("text")
    if text != PAPER_TEXT:
        found.append(f"other text ({','.join(text) if text else 'none'})")
    elif options.get("max_length", 0) < PAPER_WORDS:
        found.append(f"other text (cut at {options.get('max_length')} words)")
    unpublished = [
        name for name, file in manifest.get("files", {}).items() if not file.get("verified")
    ]
    if unpublished:
        found.append(f"other data (not as published: {', '.join(sorted(unpublished))})")
    if options.get("test_fraction") != 0.2:
        found.append("other share of test items")
    return found


def setting_differences(comparison: Comparison) -> list[str]:
    """Return the comparison's settings that are not the paper's."""
    parts = [
        part
        for part in comparison.title().split(", ")
        if part and part.partition("=")[0] not in NEUTRAL
    ]
    return [f"other settings ({', '.join(parts)})"] if parts else []


def judge_all(
    comparisons: Sequence[Comparison],
    speedups: Sequence[Sequence[Row]],
    recalls: Sequence[Sequence[Row]],
    manifests: Mapping[str, Mapping[str, Any]],
) -> list[Verdict]:
    """Return a verdict on each printed cell of each comparison, then on each that none has.

    Args:
        manifests: of data sets, by fingerprint, which say what their text is.
    """
    found: list[Verdict] = []
    covered: set[PrintedCell] = set()
    unknown: dict[tuple[str, str], list[str]] = {}
    for comparison, speedup, recall in zip(comparisons, speedups, recalls, strict=True):
        config = comparison.config
        manifest = manifests.get(comparison.data_fingerprint)
        source = str(manifest.get("source", config.dataset)) if manifest else config.dataset
        if manifest is None and source not in PRINTED_DATASETS:
            unknown.setdefault((config.encoder, config.loss), []).append(source)
        differences = data_differences(comparison, manifest) + setting_differences(comparison)
        for cell, value in printed.values().items():
            if (cell.dataset, cell.encoder, cell.loss) != (source, config.encoder, config.loss):
                continue
            covered.add(cell)
            rows = recall if cell.measure == RECALL else speedup
            main = (row for row in rows if row["sampler"] == cell.sampler and not row["variant"])
            row = next(main, None)
            is_timed = cell.measure in ("per_iteration_speedup", "total_speedup")
            hardware = ["other hardware"] if is_timed else []
            judged = judge(row, cell.measure, value, [*differences, *hardware])
            found.append(_verdict(cell, value, comparison, row or {}, judged))
    for cell, value in printed.values().items():
        if cell not in covered:
            reason, names = "no run", unknown.get((cell.encoder, cell.loss))
            if names:
                reason += (
                    f", unless runs of {', '.join(dict.fromkeys(names))} are: the source of that"
                    " data set is unknown, since its manifest is not here"
                )
            found.append(_verdict(cell, value, None, {}, (MISSING, None, reason)))
    return found


def _verdict(
    cell: PrintedCell,
    value: float,
    comparison: Comparison | None,
    row: Row,
    judged: tuple[str, str | None, str],
) -> Verdict:
    """Return what :func:`judge` gave on a printed value, with our row."""
    word, alone, reason = judged
    return Verdict(
        dataset=comparison.config.dataset if comparison else cell.dataset,
        printed_dataset=cell.dataset,
        data_fingerprint=comparison.data_fingerprint if comparison else "",
        encoder=cell.encoder,
        loss=cell.loss,
        sampler=cell.sampler,
        measure=cell.measure,
        settings=comparison.title() if comparison else "",
        printed=value,
        value=row.get(cell.measure),
        lower=row.get(f"{cell.measure}_lower"),
        upper=row.get(f"{cell.measure}_upper"),
        seeds=int(row.get("seeds") or 0),
        verdict=word,
        figures_alone=alone,
        reason=reason,
    )


def as_rows(found: Sequence[Verdict]) -> list[dict[str, Any]]:
    """Return verdicts as plain rows."""
    return [asdict(verdict) for verdict in found]


def summary_lines(found: Sequence[Verdict]) -> list[str]:
    """Return how many printed cells have which verdict, a line for each measure.

    A cell counts once. Of several comparisons that have it, one counts: that with a figure before
    others, then a comparable one, then one without other settings, then the first.
    """
    lines = []
    for measure in MEASURES:
        by_cell: dict[tuple[str, ...], list[Verdict]] = {}
        for verdict in found:
            if verdict.measure == measure:
                cell = (verdict.printed_dataset, verdict.encoder, verdict.loss, verdict.sampler)
                by_cell.setdefault(cell, []).append(verdict)
        own = [min(several, key=_preference) for several in by_cell.values()]
        counts = Counter(verdict.verdict for verdict in own)
        parts = []
        for word in VERDICTS:
            if counts[word]:
                part = f"{counts[word]} {word}"
                alone = Counter(verdict.figures_alone for verdict in own if verdict.verdict == word)
                says = [f"{alone[what]} {what}" for what in BY_FIGURES if alone[what]]
                if word == NOT_COMPARABLE and says:
                    part += f" (by the figures alone {', '.join(says)})"
                parts.append(part)
        line = f"{TITLES[measure]}, {len(own)} printed cells: {', '.join(parts)}."
        if repeated := sum(len(several) > 1 for several in by_cell.values()):
            line += (
                f" {repeated} {'is' if repeated == 1 else 'are'} of several comparisons: one"
                f" counts, {CHOICE}."
            )
        lines.append(line)
    return lines


def _preference(verdict: Verdict) -> tuple[bool, ...]:
    return verdict.verdict == MISSING, verdict.verdict == NOT_COMPARABLE, verdict.settings != ""


def key_of(verdict: Verdict) -> tuple[str, ...]:
    """Return the columns that find a cell of our tables: :data:`KEY` and the measure."""
    return (
        verdict.dataset,
        verdict.data_fingerprint,
        verdict.encoder,
        verdict.loss,
        verdict.sampler,
        verdict.settings,
        verdict.measure,
    )
