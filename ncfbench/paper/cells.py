"""Verdicts on the cells that the paper printed: our figures beside its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ncfbench.paper import printed
from ncfbench.paper.printed import MEASURES, RECALL, Measure, PrintedCell

Row = Mapping[str, Any]

REPRODUCED, BETTER, WORSE, UNDECIDED = "reproduced", "better", "worse", "undecided"
NOT_COMPARABLE, MISSING = "not comparable", "missing"
BY_FIGURES = (REPRODUCED, BETTER, WORSE, UNDECIDED)
"""Verdicts that follow from two figures alone."""
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
PAPER_TEXT, PAPER_WORDS = ["title", "abstract"], 300
"""CiteULike's text in the paper, and its longest text."""
KEY = ("dataset", "data_fingerprint", "encoder", "loss", "sampler", "settings")
"""Columns of our tables that, with a measure, name a verdict."""


@dataclass(frozen=True)
class CellVerdict:
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

    @property
    def key(self) -> tuple[str, ...]:
        """Values of :data:`KEY`, and the measure: a cell of our tables."""
        return (*(getattr(self, name) for name in KEY), self.measure)


def judge_cells(
    comparisons: Iterable[tuple[Sequence[Row], Sequence[Row]]],
    manifests: Mapping[str, Mapping[str, Any]],
) -> list[CellVerdict]:
    """Return a verdict on each printed cell of each comparison, then on each that none has.

    Args:
        comparisons: rows of the speedup and of the recall table of each.
        manifests: of data sets, by fingerprint, which say what their text is.
    """
    found: list[CellVerdict] = []
    covered: set[PrintedCell] = set()
    unknown: dict[tuple[str, str], list[str]] = {}
    printed_datasets = {cell.dataset for cell in printed.values()}
    for speedup, recall in comparisons:
        ours = {name: speedup[0][name] for name in KEY if name != "sampler"}
        manifest = manifests.get(ours["data_fingerprint"])
        source = str(manifest.get("source", ours["dataset"])) if manifest else ours["dataset"]
        if manifest is None and source not in printed_datasets:
            unknown.setdefault((ours["encoder"], ours["loss"]), []).append(source)
        differences = [
            *data_differences(ours["data_fingerprint"], manifest),
            *setting_differences(ours["settings"]),
        ]
        for cell, value in printed.values().items():
            if (cell.dataset, cell.encoder, cell.loss) != (source, ours["encoder"], ours["loss"]):
                continue
            covered.add(cell)
            rows = recall if cell.measure == RECALL else speedup
            main = (row for row in rows if row["sampler"] == cell.sampler and not row["variant"])
            row = next(main, None)
            is_timed = cell.measure in ("per_iteration_speedup", "total_speedup")
            hardware = ["other hardware"] if is_timed else []
            judged = judge(row, cell.measure, value, [*differences, *hardware])
            found.append(_verdict(cell, value, {**ours, **(row or {})}, judged))
    for cell, value in printed.values().items():
        if cell not in covered:
            reason, names = "no run", unknown.get((cell.encoder, cell.loss))
            if names:
                reason += (
                    f", unless runs of {', '.join(dict.fromkeys(names))} are: the source of that"
                    " data set is unknown, since its manifest is not here"
                )
            found.append(_verdict(cell, value, {}, (MISSING, None, reason)))
    return found


def judge(
    row: Row | None, measure: Measure, printed_value: float, differences: Sequence[str]
) -> tuple[str, str | None, str]:
    """Return the verdict on a cell, the verdict of the figures alone, and the reason.

    A cell is missing where no run has the figure; a run that diverged has none. By the figures
    alone it is reproduced where ours is within the tolerance of the printed value and, with several
    seeds, the printed value lies in our 95 % interval. It is undecided where that holds but ours is
    not near: a wide interval must not make a cell easier to reproduce. A bound decides where it is
    below the printed value. The cell is not comparable where the experiments differ.

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


def data_differences(fingerprint: str, manifest: Mapping[str, Any] | None) -> list[str]:
    """Return how data differ from the paper's, as far as their manifest tells.

    Args:
        manifest: of the data set with the fingerprint, if it is known.
    """
    if manifest is None or manifest["fingerprint"] != fingerprint:
        return ["text not known: the data set is not prepared here"]
    options, found = manifest["options"], []
    text = options.get("text")
    if text != PAPER_TEXT:
        found.append(f"other text ({','.join(text) if text else 'none'})")
    elif options.get("max_length", 0) < PAPER_WORDS:
        found.append(f"other text (cut at {options.get('max_length')} words)")
    files = manifest.get("files", {}).items()
    if unpublished := [name for name, file in files if not file.get("verified")]:
        found.append(f"other data (not as published: {', '.join(sorted(unpublished))})")
    if held_out := options.get("hold_out"):
        found.append(f"other items or links held out ({held_out})")
    if options.get("test_fraction") != 0.2:
        found.append("other share of test items")
    return found


def setting_differences(settings: str) -> list[str]:
    """Return those of a comparison's unusual settings that are not the paper's."""
    parts = [
        part for part in settings.split(", ") if part and part.partition("=")[0] not in NEUTRAL
    ]
    return [f"other settings ({', '.join(parts)})"] if parts else []


def _verdict(
    cell: PrintedCell, value: float, row: Row, judged: tuple[str, str | None, str]
) -> CellVerdict:
    """Return what :func:`judge` gave on a printed value, with our row, which is empty without a
    run.
    """
    word, alone, reason = judged
    return CellVerdict(
        dataset=row.get("dataset", cell.dataset),
        printed_dataset=cell.dataset,
        data_fingerprint=row.get("data_fingerprint", ""),
        encoder=cell.encoder,
        loss=cell.loss,
        sampler=cell.sampler,
        measure=cell.measure,
        settings=row.get("settings", ""),
        printed=value,
        value=row.get(cell.measure),
        lower=row.get(f"{cell.measure}_lower"),
        upper=row.get(f"{cell.measure}_upper"),
        seeds=int(row.get("seeds") or 0),
        verdict=word,
        figures_alone=alone,
        reason=reason,
    )


def summary_lines(verdicts: Sequence[CellVerdict]) -> list[str]:
    """Return how many printed cells have which verdict, a line for each measure.

    A cell counts once. Of several comparisons that have it, one counts: that with a figure before
    others, then a comparable one, then one without other settings, then the first.
    """
    lines = []
    for measure, title in MEASURES.items():
        by_cell: dict[tuple[str, ...], list[CellVerdict]] = {}
        for one in verdicts:
            if one.measure == measure:
                cell = (one.printed_dataset, one.encoder, one.loss, one.sampler)
                by_cell.setdefault(cell, []).append(one)
        counted = [min(several, key=_preference) for several in by_cell.values()]
        words = Counter(one.verdict for one in counted)
        parts = [f"{words[word]} {word}" for word in (*BY_FIGURES, NOT_COMPARABLE, MISSING)]
        alone = Counter(one.figures_alone for one in counted if one.verdict == NOT_COMPARABLE)
        if says := [f"{alone[word]} {word}" for word in BY_FIGURES if alone[word]]:
            parts[-2] += f" (by the figures alone {', '.join(says)})"
        known = ", ".join(part for part in parts if not part.startswith("0 "))
        line = f"{title}, {len(counted)} printed cells: {known}."
        if repeated := sum(len(several) > 1 for several in by_cell.values()):
            line += (
                f" {repeated} {'is' if repeated == 1 else 'are'} of several comparisons: one"
                " counts, one without other settings before the others."
            )
        lines.append(line)
    return lines


def _preference(one: CellVerdict) -> tuple[bool, ...]:
    return one.verdict == MISSING, one.verdict == NOT_COMPARABLE, one.settings != ""
