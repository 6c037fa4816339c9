"""Numbers of kept results, from raw samples, curves and lists of recalls.

A second computation: Arrow reads the files, NumPy and SciPy compute, and nothing else is imported.
NaN stands for what is missing.
"""

import json
import math
from functools import cached_property

import numpy as np
import pyarrow.parquet as pq
from scipy.stats import t as student

RECALL, VALIDATION = "test_recall_at_50", "validation_recall_at_50"
ARM = ("sampler", "stratum_size", "strata", "negatives", "uniform_items")
"""Settings in which an arm and its baseline may differ."""


def rows_of(path):
    return pq.read_table(path).to_pylist() if path.exists() else []


def falls_to(level, at, values):
    """Where the line through some points first falls to a level."""
    below = np.flatnonzero(np.asarray(values) <= level)
    if not len(below):
        return math.nan
    index = below[0]
    if index == 0 or values[index - 1] == values[index]:
        return float(at[index])
    share = (level - values[index - 1]) / (values[index] - values[index - 1])
    return float(at[index - 1] + share * (at[index] - at[index - 1]))


class Run:
    """A run, from its records; of its summary only how it ended, and where it was timed.

    Args:
        tables: the rows of its curve and its raw samples, and those that not every run has.
    """

    def __init__(self, name, document, environment, summary, tables):
        self.name, self.document, self.summary = name, document, summary
        self.config, self.environment, self.tables = document["config"], environment, tables
        self.curve, self.timing = tables["curve"], tables["timing"]
        self.has_diverged = self.summary["status"] == "diverged"
        self.is_over = self.has_diverged or self.summary["status"] == "finished"
        self.full, self.spread = self._times("full")
        self.step, _ = self._times("step")
        self.losses = [row["probe_loss"] for row in self.curve]
        self.at = [row["iteration"] for row in self.curve]
        self.lowest = min(self.losses, default=math.nan)
        full = [row for row in self.timing if row["kind"] == "full" and row["item_slots"]]
        lengths = [row["iterations"] for row in full]
        slots = [row["item_slots"] for row in full]
        self.item_slots = np.average(slots, weights=lengths) if full else math.nan

    @property
    def sampler(self):
        return self.config["sampler"]

    def compared(self, *left_out):
        """What it shares with the runs that it is compared with."""
        of = {name: value for name, value in self.config.items() if name not in {*ARM, *left_out}}
        return of | {"data": self.document["data_fingerprint"]}

    def _times(self, kind):
        """The median seconds of an iteration, and the quartiles' distance as a share of it."""
        key = (kind, self.summary["environment_key"])
        blocks = [row for row in self.timing if (row["kind"], row["environment_key"]) == key]
        blocks = [row for row in blocks if not row["resumed"]] or blocks
        half = max((row["iterations"] for row in blocks), default=0) / 2
        times = [row["seconds"] / row["iterations"] for row in blocks if row["iterations"] >= half]
        if not times:
            return math.nan, 0.0
        low, middle, high = np.quantile(times, (0.25, 0.5, 0.75))
        return middle, (high - low) / middle

    def iterations_to(self, level):
        return falls_to(level, self.at, self.losses)

    @cached_property
    def chosen(self):
        """The row of the largest validation recall, the first of equal ones, up to the evaluation
        that lies ``patience`` behind it; without validation the last evaluated row.
        """
        tested = [row for row in self.curve if row[RECALL] is not None]
        rows = [
            row
            for row in self.curve
            if row[VALIDATION] is not None and row[f"{VALIDATION}_chance"] != 1
        ]
        if not rows:
            return tested[-1] if tested else {}
        recalls = [row[VALIDATION] for row in rows]
        for end in range(len(rows)):
            best = recalls.index(max(recalls[: end + 1]))
            if end - best >= self.config["patience"]:
                break
        return rows[best]

    @cached_property
    def lists(self):
        """Recalls of users and shares of items at the chosen row; None where they are not kept."""
        for row in self.tables["evaluation"]:
            if (row["iteration"], row["split"]) == (self.chosen["iteration"], "test"):
                return np.array(row["user_recalls"]), np.array(row["item_shares"])
        return None

    @property
    def has_trained(self):
        """Clearly above chance at the end, lower than before training, and about at rest."""
        tested = [row for row in self.curve if row[RECALL] is not None]
        if tested and tested[-1][f"{RECALL}_error"] is not None:
            last, ends = tested[-1], ("_chance", "_error", "_item_error")
            chance, *errors = (last[f"{RECALL}{end}"] or 0.0 for end in ends)
            if chance < 1 and last[RECALL] - chance <= 2 * math.hypot(*errors):
                return False
        if self.at[0] == 0 and self.losses[0] == self.lowest:
            return False
        if len(self.losses) < 5:
            return True
        quarter = zip(self.at, self.losses, strict=True)
        early = min(loss for at, loss in quarter if 4 * at <= 3 * self.at[-1])
        is_at_rest = early - self.lowest < 0.1 * (self.losses[1] - self.lowest)
        return self.lowest not in self.losses[:3] and is_at_rest


class Blended:
    """A kept blend, with what :func:`above` reads of a run."""

    def __init__(self, row):
        self.chosen = row
        self.lists = tuple(np.array(row[f"test_{of}"]) for of in ("user_recalls", "item_shares"))


def read_runs(folder):
    """The runs of a folder by name: in tables of all, or in a folder each."""
    kinds, runs = ("curve", "timing", "evaluation", "blend"), []
    by_run = {kind: {} for kind in kinds}
    for kind, rows in by_run.items():
        for row in rows_of(folder / f"{kind}s.parquet"):
            rows.setdefault(row["run"], []).append(row)
    for row in rows_of(folder / "runs.parquet"):
        document = json.loads(row["document"])
        tables = {kind: by_run[kind].get(row["run"], []) for kind in kinds}
        runs.append(Run(row["run"], document, document["environment"], row, tables))
    for path in (config.parent for config in folder.glob("*/config.json")):
        document, environment = (
            json.loads((path / f"{of}.json").read_text()) for of in ("config", "environment")
        )
        (summary,) = rows_of(path / "summary.parquet")
        tables = {kind: rows_of(path / f"{kind}.parquet") for kind in kinds}
        runs.append(Run(path.name, document, environment, summary, tables))
    return {run.name: run for run in runs}


def ratio_of_seeds(ratios):
    """The geometric mean of a ratio, and Student's 95 % interval of its logarithm."""
    return tuple(np.exp(mean_interval(np.log(ratios))))


def mean_interval(values):
    """The mean and Student's 95 % interval."""
    values, n = np.asarray(values, float), len(values)
    half = student.ppf(0.975, n - 1) * values.std(ddof=1) / math.sqrt(n) if n > 1 else math.nan
    return values.mean(), values.mean() - half, values.mean() + half


def speedup_row(arm, bases):
    """Columns of a row of the speedup table, of arms and baselines of the same seeds."""
    values, pairs = {}, list(zip(arm, bases, strict=bool(bases)))
    columns = ("full_iteration_seconds", "full"), ("step_iteration_seconds", "step")
    for column, name in (*columns, ("item_slots", "item_slots")):
        values[column] = np.mean([getattr(run, name) for run in arm])
    is_timed = not np.isnan([run.full for run in (*arm, *bases)]).any()
    keys = {(run.environment["key"], base.environment["key"]) for run, base in pairs}
    is_divided = is_timed and all(one == other for one, other in keys)
    if pairs and is_timed:
        values["full_iteration_spread"] = max(run.spread for run in (*arm, *bases))
    if pairs and is_divided:
        for column, name in (("", "full"), ("step_", "step")):
            ratios = [getattr(base, name) / getattr(run, name) for run, base in pairs]
            _put(values, f"{column}per_iteration_speedup", ratio_of_seeds(ratios))
    runs = (*arm, *bases)
    if not pairs or not is_timed or any(run.has_diverged for run in runs):
        return values
    if not all(base.has_trained for base in bases):
        return values
    arrivals = np.array([run.iterations_to(base.lowest) for run, base in pairs])
    missed = np.isnan(arrivals)
    theirs = np.array([base.iterations_to(base.lowest) for base in bases])
    needed = np.where(missed, [run.at[-1] for run in arm], arrivals)
    with np.errstate(divide="ignore", invalid="ignore"):
        fewer = np.where((theirs > 0) & (needed > 0), theirs / needed, math.nan)
    sooner = fewer * [base.full / run.full for run, base in pairs]
    values |= {
        "seeds_reached": len(arm) - missed.sum(),
        "reference_loss": np.mean([base.lowest for base in bases]),
        "iterations_to_reference": arrivals.mean(),
        "seconds_to_reference": np.mean(arrivals * [run.full for run in arm]),
    }
    known = [("iterations_speedup", fewer)] + [("total_speedup", sooner)] * is_divided
    for column, ratios in known:
        if missed.any():
            values[f"{column}_at_most"] = ratio_of_seeds(ratios)[0]
        else:
            _put(values, column, ratio_of_seeds(ratios))
    return values


def recall_row(arm):
    """Columns of a row of the recall table."""
    if any(run.has_diverged for run in arm):
        return {}
    values = {"reported_epoch": np.mean([run.chosen.get("epoch", math.nan) for run in arm])}
    for cutoff in (10, 20, 50, 100):
        column = f"test_recall_at_{cutoff}"
        recalls = np.array([run.chosen.get(column) for run in arm], float)
        _put(values, column, mean_interval(recalls))
    return values


def _put(values, column, estimate):
    values |= dict(zip((column, f"{column}_lower", f"{column}_upper"), estimate, strict=True))


def error_of(rows):
    """The standard error of a mean recall: within users, items and, where there are some, seeds."""
    names = (f"{RECALL}_error", f"{RECALL}_item_error")
    squares = [row[name] ** 2 for row in rows for name in names]
    of_seeds = np.var([row[RECALL] for row in rows], ddof=1) if len(rows) > 1 else 0.0
    return math.sqrt((sum(squares) + of_seeds) / len(rows))


def above(arm, floor):
    """How far the mean recall of runs is above a floor's, and the error of that, paired."""
    recalls = [run.chosen[RECALL] for run in arm]
    lists = [np.mean(of, axis=0) for of in zip(*(run.lists for run in arm), strict=True)]
    theirs = (np.array(floor[f"test_{of}"]) for of in ("user_recalls", "item_shares"))
    users, items = (ours - other for ours, other in zip(lists, theirs, strict=True))
    variance = users.var(ddof=1) / len(users) + len(items) / (len(items) - 1) * (items @ items)
    if len(arm) > 1:
        variance += np.var(recalls, ddof=1) / len(arm)
    return np.mean(recalls) - floor[RECALL], math.sqrt(variance)


def seconds_above(arm, floor, error):
    """The seconds of training at the first evaluation of all seeds that is clearly above a floor,
    features counted.
    """
    curves = [{row["iteration"]: row[RECALL] for row in run.curve} for run in arm]
    for at in sorted(set.intersection(*map(set, curves))):
        recalls = [curve[at] for curve in curves]
        if None not in recalls and np.mean(recalls) - floor[RECALL] > 2 * error:
            features = [run.document.get("feature_seconds", 0.0) for run in arm]
            return np.mean([at * run.full for run in arm]) + np.mean(features)
    return math.nan


def soonest(arms):
    """The level, 0.95 of the best mean validation recall, and for each arm that recall, the
    iterations and the seconds of the mean curve to the level.

    Args:
        arms: runs of the same seeds, evaluated at the same iterations.
    """
    curves = []
    for runs in arms:
        rows = [[row for row in run.curve if row[VALIDATION] is not None] for run in runs]
        # Before training recall is that of chance.
        points = [[of[0][f"{VALIDATION}_chance"], *(row[VALIDATION] for row in of)] for of in rows]
        at = np.array([0, *(row["iteration"] for row in rows[0])], float)
        full = np.mean([run.full for run in runs])
        curves.append((at, np.mean(points, axis=0), full))
    level = 0.95 * max(recalls.max() for _, recalls, _ in curves)
    arrivals = [falls_to(-level, at, -recalls) for at, recalls, _ in curves]
    pairs = zip(curves, arrivals, strict=True)
    return level, [(recalls.max(), first, first * full) for (_, recalls, full), first in pairs]


def compare_tables(folder):
    """How many numbers of the kept tables were computed again, and what of the tables is wrong."""
    runs, wrong, numbers = read_runs(folder), [], 0
    for row in rows_of(folder / "speedup.parquet"):
        arm, bases = ([runs[name] for name in row[of] or ()] for of in ("runs", "baseline_runs"))
        values = speedup_row(arm, bases)
        wrong += [(row["sampler"], column) for column in _unequal(row, values)]
        for run, base in zip(arm, bases, strict=bool(bases)):
            is_pair = run.compared() == base.compared() and base.sampler == row["baseline"]
            wrong += [] if is_pair else [(row["sampler"], f"{run.name} beside {base.name}")]
        numbers += len(values)
    listed = []
    for row in rows_of(folder / "recall.parquet"):
        arm = [runs[name] for name in row["runs"]]
        values = recall_row(arm)
        wrong += [(row["sampler"], column) for column in _unequal(row, values)]
        alike = [run.compared("seed") | {"sampler": run.sampler} for run in arm]
        if any(one != alike[0] | {"sampler": row["sampler"]} for one in alike):
            wrong.append((row["sampler"], "runs that differ"))
        numbers, listed = numbers + len(values), listed + row["runs"]
    missing = {name for name, run in runs.items() if run.is_over} - {*listed}
    return numbers, wrong + [("missing or twice", name) for name in missing or _twice(listed)]


def _unequal(row, values):
    """Yield the columns whose number is another, or is not there in one of both."""
    for column in {*values, *(name for name, value in row.items() if isinstance(value, float))}:
        kept, value = (of.get(column) for of in (row, values))
        kept, value = (math.nan if of is None else of for of in (kept, value))
        both_missing = math.isnan(kept) and math.isnan(value)
        if not (both_missing or math.isclose(kept, value, rel_tol=1e-9, abs_tol=1e-12)):
            yield column


def _twice(names):
    return {name for name in names if names.count(name) > 1}
