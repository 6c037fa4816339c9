"""Kept tables and printed figures beside a computation that shares nothing with the program."""

import itertools
import math
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import records
from records import RECALL, VALIDATION, rows_of

REPOSITORY = Path(__file__).parents[2]
RESULTS = REPOSITORY / "results"
FOLDERS = sorted(path.parent.name for path in RESULTS.glob("*/speedup.parquet"))
NAMES = {
    "CiteULike, `good`": ("cite", False),
    "CiteULike, [wider bag](docs/models.md#a-good-start)": ("cite", True),
    "MovieLens with plots": ("plots", False),
    "anime": ("anime", False),
    "Yelp": ("yelp", False),
    "Debian's packages": ("debian", False),
    "MovieLens 100K by time, `mf` and `ns`": ("ml-time", False),
}
"""Rows of README.md: the data set, and whether the bag is bare."""
TABLE_3 = [(encoder, loss) for encoder in ("cnn", "lstm") for loss in ("SG", "MSE", "Log", "Hinge")]


@cache
def runs_of(folder):
    return records.read_runs(RESULTS / folder)


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_number_of_the_kept_tables(folder):
    numbers, wrong = records.compare_tables(RESULTS / folder)
    assert numbers > 10
    assert wrong == []


def cells_of(page, begin):
    """The cells of a page's first line that begins so."""
    line = next(line for line in read(page).splitlines() if line.startswith(f"| {begin} |"))
    return line.strip("| ").split(" | ")


@cache
def read(page):
    return (REPOSITORY / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_the_answer_on_six_data_sets(name):
    """README's rows: floors, recalls, paired differences, seconds to the floors, and verdicts."""
    dataset, is_bare = NAMES[name]
    arm = [
        run
        for run in runs_of("good-start").values()
        if (run.config["dataset"], run.config.get("bare_bag", False)) == (dataset, is_bare)
    ]
    digest = arm[0].document["data_fingerprint"]
    kept = rows_of(RESULTS / "good-start/floors.parquet")
    floors = {row["floor"]: row for row in kept if row["data_fingerprint"] == digest}
    best = max(floors.values(), key=lambda row: row[VALIDATION])
    _, named, trained, both, above_by, worth = cells_of("README.md", name)
    if named != "the same":
        parts = ("content_seconds", "choice_seconds", "fit_seconds")
        seconds = sum(best[part] for part in parts)
        assert named.split()[0].lower() == best["floor"]
        assert named.split()[1] == f"{best[RECALL]:.3f},"
        assert float(named.split()[2]) == pytest.approx(seconds, rel=0.005)
        assert named.endswith(" s")
    recall = np.mean([run.chosen[RECALL] for run in arm])
    assert len(arm) == 5
    by, error = records.above(arm, best)
    passed = f", {records.seconds_above(arm, best, error):.1f} s" if by > 2 * error else ""
    assert trained == f"{recall:.3f} ± {records.error_of([run.chosen for run in arm]):.3f}{passed}"
    of_floors = {}
    for row in (row for run in arm for row in run.tables["blend"]):
        of_floors.setdefault(row["floor"], []).append(row)
    # One floor for all seeds, of those that all of them are blended with.
    whole = [rows for rows in of_floors.values() if len(rows) == len(arm)]
    assert len(whole) >= 2
    blends = max(whole, key=lambda rows: np.mean([row[VALIDATION] for row in rows]))
    for row in itertools.chain(*whole):
        # The weight is the best of eleven by validation links, of equal ones the nearest to a half.
        tried = dict(zip(row["weights"], row["heights"], strict=True))
        assert [*tried] == [step / 10 for step in range(11)]
        most = [weight for weight, height in tried.items() if height == max(tried.values())]
        assert row["weight"] == min(most, key=lambda weight: abs(weight - 0.5))
        assert row[VALIDATION] == max(tried.values())
        assert tried[0.0] == pytest.approx(floors[row["floor"]][VALIDATION], abs=1e-3)
        assert row[RECALL] == pytest.approx(np.mean(row["test_user_recalls"]), abs=1e-6)
    recall = np.mean([row[RECALL] for row in blends])
    assert both == f"{recall:.3f} ± {records.error_of(blends):.3f}"
    by, error = records.above([records.Blended(row) for row in blends], best)
    assert above_by == f"{by:.3f} ± {error:.3f}"
    assert worth == ("yes" if by > 2 * error else "not shown")


@pytest.mark.parametrize(("encoder", "loss"), TABLE_3)
def test_times_sooner_by_the_clock_of_a_profile(encoder, loss):
    """Table 3: iterations of the runs, by the length of an iteration in rounds that took turns."""
    folder = "citeulike-title-tags"
    name = f"CiteULike, {encoder.upper()} | {loss}"
    _, _, printed, *_ = cells_of("docs/paper.md", name)
    wanted = {"encoder": encoder, "loss": loss.lower(), "sampler": "strat-ns"}
    (row,) = (
        row
        for row in rows_of(RESULTS / folder / "speedup.parquet")
        if wanted.items() <= row.items() and not row["variant"]
    )
    (clock,) = (
        profiled
        for profiled in rows_of(RESULTS / folder / "costmodel.parquet")
        if wanted.items() <= profiled.items()
        and (profiled["rounds"], profiled["data_fingerprint"]) == (7, row["data_fingerprint"])
        and (profiled["unusual_settings"], profiled["stratum_size"]) == ("", 4)
    )
    runs = runs_of(folder)
    arm, bases = ([runs[name] for name in row[of]] for of in ("runs", "baseline_runs"))
    fewer = records.speedup_row(arm, bases)
    length = clock["measured_full_speedup"]
    total, ends = fewer["iterations_speedup"] * length, []
    for end, sign in (("lower", -1), ("upper", 1)):
        of_runs = math.log(fewer[f"iterations_speedup_{end}"] / fewer["iterations_speedup"])
        of_clock = math.log(clock[f"{end}_full_speedup"] / length)
        ends.append(total * math.exp(sign * math.hypot(of_runs, of_clock)))
    assert printed == f"{total:.2f} ({ends[0]:.2f} to {ends[1]:.2f})"
    if (encoder, loss) == ("cnn", "SG"):
        said = f"{total:.1f} times sooner (95 %: {ends[0]:.1f} to {ends[1]:.1f}), with a recall of"
        assert said in " ".join(read("README.md").split())


@pytest.mark.parametrize("sampler", ["iid", "neg", "strat", "ns", "strat-ns"])
@pytest.mark.parametrize("column", [1, 2])
def test_recall_at_the_chosen_epoch(sampler, column):
    """Table 4's first rows: the mean over seeds, and Student's interval."""
    loss = ("sg", "mse")[column - 1]
    folder, wanted = "citeulike-title-tags", {"encoder": "cnn", "loss": loss, "sampler": sampler}
    (row,) = (
        row
        for row in rows_of(RESULTS / folder / "recall.parquet")
        if wanted.items() <= row.items() and not row["variant"]
    )
    arm = [runs_of(folder)[name] for name in row["runs"]]
    below = read("docs/paper.md").split("| CiteULike, CNN | SG | MSE |", 1)[1]
    line = next(line for line in below.splitlines() if line.startswith(f"| `{sampler}` |"))
    printed = line.strip("| ").split(" | ")[column].replace("*", "")
    values = records.recall_row(arm)
    middle, *ends = (values[f"{RECALL}{end}"] for end in ("", "_lower", "_upper"))
    assert printed.startswith(f"{middle:.3f} [{ends[0]:.3f}, {ends[1]:.3f}]")
    before = {"strat-ns": "with a recall of", "iid": "instead of"}.get(sampler)
    if loss == "sg" and before:
        assert f"{before} {middle:.3f}" in " ".join(read("README.md").split())


def test_it_shares_nothing_with_the_program():
    name = "ncf" + "bench"
    for path in Path(__file__).parent.glob("*.py"):
        assert name not in path.read_text(encoding="utf-8")
