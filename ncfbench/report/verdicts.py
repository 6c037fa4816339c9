"""Our figures beside the paper's: a verdict for each cell that the paper printed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ncfbench.paper import printed
from ncfbench.paper.printed import MEASURES, Measure
from ncfbench.report.comparison import Comparison

Row = Mapping[str, Any]

REPRODUCED, BETTER, WORSE, UNDECIDED = "reproduced", "better", "worse", "undecided"
NOT_COMPARABLE, MISSING = "not comparable", "missing"
BY_FIGURES = (REPRODUCED, BETTER, WORSE, UNDECIDED)
"""What two figures can say by themselves."""
VERDICTS = (*BY_FIGURES, NOT_COMPARABLE, MISSING)
RATIO_TOLERANCE = 0.25
"""How far a ratio may be from the printed one, as a share of it: a choice, stated wherever it
decides.
"""
RECALL_TOLERANCE = 0.02
"""The same of a recall. Between IID and the best sampler the paper prints 3 %."""
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
"""Which of several comparisons of a cell is counted."""
PAPER_TEXT, PAPER_WORDS = ["title", "abstract"], 300
"""CiteULike's text in the paper, and the longest it kept."""
PRINTED_DATASETS = frozenset(place.dataset for place in printed.values())
"""Data sets that the paper has figures of."""
KEY = ("dataset", "data_fingerprint", "encoder", "loss", "sampler", "settings")
"""Columns of our tables."""


@dataclass(frozen=True)
class Verdict:
    """One printed cell, ours beside it."""

    dataset: str
    """Ours; its text may be another's, and it may have another name."""
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
    """What the two figures would say if nothing else differed."""
    reason: str


def judge(
    row: Row | None, measure: Measure, printed_value: float, differences: Sequence[str]
) -> tuple[str, str | None, str]:
    """The verdict on a cell, what the figures alone say, and the reason.

    The rule, in this order:

    *missing*: there is no run for the cell, or none with this figure; a run that diverged has none.
    Where arm and baseline ran on different machines, so that their times are not divided, it is
    *not comparable* instead.

    *by the figures alone*: ``reproduced`` where ours is within :data:`RATIO_TOLERANCE` (ratios) or
    :data:`RECALL_TOLERANCE` (recall) of the printed value and, with several seeds, that lies within
    our 95 % interval. ``undecided`` where it lies in the interval and ours is not near: then the
    interval is too wide to tell, and a wide one must not make it easier to reproduce. Else
    ``better`` or ``worse`` by the side on which ours lies: more recall, more speedup is better. A
    target that some seed never reached gives only an upper bound: ``worse`` where that is below the
    printed value, else ``undecided``.

    *not comparable*: the experiments differ in what the figure depends on: other text or data than
    the paper's, settings other than the paper's, or other hardware, which every per-iteration and
    total ratio depends on. What the figures alone say is then kept beside the verdict, and is no
    reproduction.

    Otherwise the verdict is what the figures alone say.

    Args:
        row: of the speedup or the recall table.
        differences: between the experiments, in words; none if they are comparable.
    """
    value = None if row is None else row.get(measure)
    if row is None or row["status"] == "missing":
        return MISSING, None, "no run"
    if value is None:
        bound = row.get(f"{measure}_at_most")
        if bound is None and row["status"] == "different environment":
            return NOT_COMPARABLE, None, "; ".join([*differences, OTHER_MACHINE])
        if bound is None:
            return (
                MISSING,
                None,
                str((row["status"] != "diverged" and row.get("reason")) or row["status"]),
            )
        alone = WORSE if bound < printed_value else UNDECIDED
        reason = (
            f"not reached by {row['seeds'] - row['seeds_reached']} of {row['seeds']} seeds: at most"
            f" {bound:.2f}"
        )
    else:
        alone, reason = _by_figures(
            value, row.get(f"{measure}_lower"), row.get(f"{measure}_upper"), measure, printed_value
        )
    if differences:
        return NOT_COMPARABLE, alone, "; ".join([*differences, reason])
    return alone, alone, reason


def _by_figures(
    value: float, lower: float | None, upper: float | None, measure: Measure, printed_value: float
) -> tuple[str, str]:
    tolerance = RECALL_TOLERANCE if measure == "test_recall_at_50" else RATIO_TOLERANCE
    near = abs(value / printed_value - 1) <= tolerance
    side = BETTER if value > printed_value else WORSE
    distance = f"{'within' if near else 'not within'} {100 * tolerance:.0f} %"
    if lower is None or upper is None:
        return REPRODUCED if near else side, f"one seed, {distance} of the printed value"
    if not lower <= printed_value <= upper:
        return side, "printed value outside our 95 % interval"
    if not near:
        return (
            UNDECIDED,
            f"printed value in our 95 % interval, too wide to tell: ours is {distance}",
        )
    return REPRODUCED, f"printed value in our 95 % interval, ours {distance}"


def data_differences(comparison: Comparison, manifest: Mapping[str, Any] | None) -> list[str]:
    """How a comparison's data differ from the paper's, as far as the prepared data set can tell.

    Args:
        manifest: of the comparison's data set, where it is known.
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
    """The comparison's settings that are not the paper's."""
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
    """A verdict for each printed cell of each comparison, then one for each printed cell that no
    comparison has.

    Args:
        manifests: of data sets, by fingerprint: what their text is.
    """
    found: list[Verdict] = []
    covered: set[printed.Place] = set()
    strangers: dict[tuple[str, str], list[str]] = {}
    for comparison, speedup, recall in zip(comparisons, speedups, recalls, strict=True):
        config = comparison.config
        manifest = manifests.get(comparison.data_fingerprint)
        source = str(manifest.get("source", config.dataset)) if manifest else config.dataset
        if manifest is None and source not in PRINTED_DATASETS:
            strangers.setdefault((config.encoder, config.loss), []).append(source)
        differences = data_differences(comparison, manifest) + setting_differences(comparison)
        for place, value in printed.values().items():
            if (place.dataset, place.encoder, place.loss) != (source, config.encoder, config.loss):
                continue
            covered.add(place)
            rows = recall if place.measure == "test_recall_at_50" else speedup
            row = next(
                (row for row in rows if row["sampler"] == place.sampler and not row["variant"]),
                None,
            )
            hardware = (
                ["other hardware"]
                if place.measure in ("per_iteration_speedup", "total_speedup")
                else []
            )
            said = judge(row, place.measure, value, [*differences, *hardware])
            found.append(_verdict(place, value, comparison, row or {}, said))
    for place, value in printed.values().items():
        if place not in covered:
            reason, unknown = "no run", strangers.get((place.encoder, place.loss))
            if unknown:
                names = ", ".join(dict.fromkeys(unknown))
                reason += (
                    f", unless those of {names} are: its manifest is not here, so its source is not"
                    " known"
                )
            found.append(_verdict(place, value, None, {}, (MISSING, None, reason)))
    return found


def _verdict(
    place: printed.Place,
    value: float,
    comparison: Comparison | None,
    row: Row,
    said: tuple[str, str | None, str],
) -> Verdict:
    """The verdict that :func:`judge` gave on a printed value, beside ours."""
    word, alone, reason = said
    return Verdict(
        dataset=comparison.config.dataset if comparison else place.dataset,
        printed_dataset=place.dataset,
        data_fingerprint=comparison.data_fingerprint if comparison else "",
        encoder=place.encoder,
        loss=place.loss,
        sampler=place.sampler,
        measure=place.measure,
        settings=comparison.title() if comparison else "",
        printed=value,
        value=row.get(place.measure),
        lower=row.get(f"{place.measure}_lower"),
        upper=row.get(f"{place.measure}_upper"),
        seeds=int(row.get("seeds") or 0),
        verdict=word,
        figures_alone=alone,
        reason=reason,
    )


def as_rows(found: Sequence[Verdict]) -> list[dict[str, Any]]:
    """Verdicts as plain rows."""
    return [asdict(verdict) for verdict in found]


def summary_lines(found: Sequence[Verdict]) -> list[str]:
    """How many printed cells have which verdict; and among those that cannot be compared, what the
    figures say.

    A cell counts once. Of several comparisons that have it, the one counts that has a figure, is
    comparable and has no other settings, in this order; of equals the first.
    """
    lines = []
    titles = {
        "per_iteration_speedup": "Speedup per iteration",
        "iterations_speedup": "Speedup in number of iterations",
        "total_speedup": "Speedup in total",
        "test_recall_at_50": "Recall@50",
    }
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
        line = f"{titles[measure]}, {len(own)} printed cells: {', '.join(parts)}."
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
    """What a cell of our tables is found by: :data:`KEY` and the measure."""
    return (
        verdict.dataset,
        verdict.data_fingerprint,
        verdict.encoder,
        verdict.loss,
        verdict.sampler,
        verdict.settings,
        verdict.measure,
    )
