"""Checks of answers: how soon each arm comes down to the baseline's smallest loss, and how the best
one stands to each floor.

Whether iterations are as long as a profile beside the runs measured is taken from the answer; which
runs are in which arm, and every number, is derived from the runs and the profile.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ncfbench.catalog import baseline_sampler, find_sampler
from ncfbench.config import default_values
from ncfbench.reporting.verify import standings
from ncfbench.reporting.verify.check import Check
from ncfbench.reporting.verify.rows import Values, newest, race, ratios
from ncfbench.reporting.verify.runs import Run
from ncfbench.reporting.verify.standings import Arm
from ncfbench.reporting.verify.statistics import is_worse, mean
from ncfbench.runs.arms import ARM_SETTINGS, COMPUTATION_SETTINGS

Row = Mapping[str, Any]
TRIED = ("batch_size", "learning_rate", "epochs", "patience", "probe_every", "item_block")
"""Settings in which the arms of an answer may differ, besides those of their samplers."""
TO_TARGET = (
    *("iterations_to_target", "seconds_to_target", "times_sooner_at_most"),
    *("times_sooner", "times_sooner_lower", "times_sooner_upper"),
)


def answer_checks(
    answers: Sequence[Row],
    runs: Sequence[Run],
    profiled: Sequence[Row],
    floors: Sequence[Row],
    found: list[Arm],
) -> Iterator[Check]:
    """Yield the check of each answer, as ``report --json`` prints it, and of its arms and floors.

    Args:
        profiled: rows of ``costmodel.parquet``.
        floors: kept rows of :data:`ncfbench.storage.schemas.FLOOR`.
        found: takes all arms, with the times that count.
    """
    groups: dict[str, list[Run]] = {}
    for run in newest(runs):
        groups.setdefault(run.compared_by(*TRIED), []).append(run)
    group_of = {run.name: key for key, own in groups.items() for run in own}
    for answer in answers:
        names = ("dataset", "encoder", "loss", "settings")
        cell = "/".join(filter(None, (answer[name] for name in names)))
        listed = {group_of.get(name) for arm in answer["arms"] for name in arm["runs"]}
        own = groups.pop(listed.pop() or "", None) if len(listed) == 1 else None
        if own is None:
            yield Check("answer", cell, answer, {}, ["the runs of its arms do not belong together"])
        else:
            digest = answer["data_fingerprint"]
            fitted = [row for row in floors if row["data_fingerprint"] == digest]
            yield from _checks(answer, cell, own, profiled, fitted, found)
    for own in groups.values():
        yield Check("answer", own[0].name, {}, {}, ["no answer has this run"])


def _checks(
    answer: Row,
    cell: str,
    runs: Sequence[Run],
    profiled: Sequence[Row],
    floors: Sequence[Row],
    found: list[Arm],
) -> Iterator[Check]:
    rounds = answer["profile_rounds"]
    profile = {_timed_as(row): row for row in profiled if row["rounds"] == rounds}
    arms = _arms(runs, None if rounds is None else profile)
    found += arms
    is_alone = len(arms) == 1 or any(run.record.is_simulated for run in runs)
    baseline = None if is_alone else _best_baseline(arms)
    results = [_against(arm, baseline, profile) for arm in arms]
    _rank(results)
    written = {frozenset(row["runs"]): row for row in answer["arms"]}
    expected: Values = {"target": math.nan, "best": None, "baseline": None}
    best: Arm = {}
    for arm, (values, _) in zip(arms, results, strict=True):
        row = written.pop(frozenset(run.name for run in arm.values()), None)
        if row is None:
            names = ", ".join(run.name for run in arm.values())
            yield Check("answer", cell, answer, {}, [f"no arm has just these runs: {names}"])
            continue
        if values["status"] == "best":
            expected["best"], best = row["arm"], arm
        if arm is baseline:
            target = mean(run.lowest for run in arm.values())
            expected |= {"baseline": row["arm"], "target": target}
        recall: Values = dict.fromkeys(("recall_at_50", "recall_at_50_error"))
        if quality := row["quality"]:
            recall = {name: quality["values"][name] for name in recall}
        notes = [f"its name lacks {word}" for word in _words(arm) if word not in row["arm"]]
        yield Check("answer", f"{cell}/{row['arm']}", {**row, **recall}, values, notes)
    for row in written.values():
        yield Check("answer", f"{cell}/{row['arm']}", row, {}, ["no arm has just its runs"])
    if seconds := max(mean(run.feature_seconds for run in arm.values()) for arm in arms):
        expected["feature_seconds"] = seconds
    yield Check("answer", cell, {"feature_seconds": None, **answer}, expected)
    yield from floor_checks(answer, cell, standings.shown(arms, best), floors)


def floor_checks(answer: Row, cell: str, arm: Arm, floors: Sequence[Row]) -> Iterator[Check]:
    """Yield the check of each floor, and of how an arm stands to it."""
    written = {row["floor"]: row for row in answer["floors"]}
    for floor in floors:
        name = f"{cell}/{floor['floor']}"
        row = written.pop(floor["floor"], None)
        if row is None:
            yield Check("answer", name, answer, {}, ["the answer lacks this floor"])
            continue
        level = standings.floor_level(floor)
        seconds = floor["content_seconds"] + floor["choice_seconds"] + floor["fit_seconds"]
        values: Values = {"recall_at_50": level.recall, "recall_at_50_error": level.error}
        values |= {"seconds": seconds, "ndcg_at_50": level.ndcg}
        values |= standings.beside(arm, level)
        yield Check("answer", name, row, values)
    for name, row in written.items():
        yield Check("answer", f"{cell}/{name}", row, {}, ["this floor is not kept"])


def _words(arm: Arm) -> tuple[str, str]:
    run = next(iter(arm.values()))
    return find_sampler(run.config.sampler).title, run.variant.note(run.config.encoder)


def _arms(runs: Sequence[Run], profile: Mapping[Any, Row] | None) -> list[Arm]:
    """Return the arms, with the times of a profile if there is one.

    Of a seed's runs the longest counts. Runs of other environments than the newest run's have no
    part, nor those that the profile lacks.
    """
    last = max(runs, key=lambda run: str(run.environment.get("time"))).environment["key"]
    arms: dict[Any, dict[int, Run]] = {}
    for run in runs:
        left_out = {*ARM_SETTINGS, *run.config.sampler_settings, "epochs"}
        common = {
            name: value for name, value in run.config.to_dict().items() if name not in left_out
        }
        row = None if profile is None else profile.get(_timed_by(run))
        if row or (profile is None and run.environment["key"] == last):
            own = arms.setdefault((run.variant, json.dumps(common)), {})
            if run.seed not in own or run.config.epochs > own[run.seed].config.epochs:
                own[run.seed] = run.timed(row)
    return [dict(sorted(own.items())) for own in arms.values()]


def _timed_by(run: Run) -> tuple[Any, ...]:
    """Return what a run and its row of a profile have in common."""
    config, usual = run.config, default_values(run.config)
    words = frozenset(
        f"{name}={value}"
        for name, value in config.to_dict().items()
        if name in COMPUTATION_SETTINGS and value != usual[name]
    )
    arm = (config.sampler, run.variant.stratum_size, run.variant.negatives, run.variant.strata)
    names = (config.encoder, config.loss, config.batch_size)
    return (run.record.data_fingerprint, *names, *arm, words)


def _timed_as(row: Row) -> tuple[Any, ...]:
    words = (row["unusual_settings"] or "").split(", ")
    computed = frozenset(word for word in words if word.split("=")[0] in COMPUTATION_SETTINGS)
    names = (
        "data_fingerprint",
        "encoder",
        "loss",
        "batch_size",
        "sampler",
        "stratum_size",
        "negatives",
    )
    strata = "user" if row["strata"] == "user" else None
    return (*(row[name] for name in names), strata, computed)


def _best_baseline(arms: Sequence[Arm]) -> Arm | None:
    """Return the baseline that is sooner than most of its others, each pair at the latest loss that
    both reach; None where none has trained.
    """
    able = [
        arm
        for arm in arms
        if all(
            run.config.sampler == baseline_sampler(run.config.loss)
            and run.has_trained
            and not (run.has_diverged or math.isnan(run.full))
            for run in arm.values()
        )
    ]

    def is_ahead(arm: Arm, other: Arm) -> bool:
        logs = [0.0]
        for seed in arm.keys() & other.keys():
            both = (arm[seed], other[seed])
            level = max(run.lowest for run in both)
            own, theirs = (run.iterations_to(level) * run.full for run in both)
            logs += [math.log(theirs / own)] if own and theirs else []
        return math.fsum(logs) > 0

    def rank(arm: Arm) -> tuple[int, float]:
        wins = sum(is_ahead(arm, other) for other in able if other is not arm)
        return wins, -mean(run.lowest for run in arm.values())

    return max(able, key=rank, default=None)


def _against(
    arm: Arm, baseline: Arm | None, profile: Mapping[Any, Row]
) -> tuple[Values, dict[int, float]]:
    """Return the values of an arm, and the logarithms of how many times sooner it is, by seed."""
    runs = list(arm.values())
    config, reported = runs[0].config, [run.chosen for run in runs]
    values: Values = {
        "sampler": config.sampler,
        "is_baseline": config.sampler == baseline_sampler(config.loss),
        "seeds": len(runs),
        "item_slots": mean(run.item_slots for run in runs),
        "full_iteration_seconds": mean(run.full for run in runs),
        "recall_at_50": mean(row.get("test_recall_at_50") for row in reported),
        "recall_at_50_error": standings.error_of(reported),
        "status": "no target",
        **dict.fromkeys(TO_TARGET, math.nan),
    }
    seeds = [seed for seed in arm if baseline and seed in baseline]
    if baseline is not None and any(run.has_diverged for run in runs):
        return values | {"status": "diverged"}, {}
    if baseline is None or not seeds or any(math.isnan(run.full) for run in runs):
        return values, {}
    iterations, _, totals = race([(arm[seed], baseline[seed]) for seed in seeds])
    if np.isnan(iterations).any():
        return values | ratios("times_sooner", totals, is_bound=True) | {"status": "never"}, {}
    values |= ratios("times_sooner", totals) | {
        "iterations_to_target": mean(iterations),
        "seconds_to_target": mean(iterations * [arm[seed].full for seed in seeds]),
    }
    if row := profile.get(_timed_by(runs[0])):
        # The interval of a profile's ratio of lengths adds to that of a total as errors do.
        length = row["measured_full_speedup"]
        for end, sign in (("lower", -1), ("upper", 1)):
            of_runs = math.log(values[f"times_sooner_{end}"] / values["times_sooner"])
            of_profile = math.log((row[f"{end}_full_speedup"] or length) / length)
            error = math.exp(sign * math.hypot(of_runs, of_profile))
            values[f"times_sooner_{end}"] = values["times_sooner"] * error
    return values, dict(zip(seeds, np.log(totals).tolist(), strict=True))


def _rank(results: Sequence[tuple[Values, Mapping[int, float]]]) -> None:
    able = [(values, logs) for values, logs in results if logs]
    if not able:
        return
    best, of_best = max(able, key=lambda each: mean(each[1].values()))
    for values, logs in able:
        apart = np.array([of_best[seed] - log for seed, log in logs.items() if seed in of_best])
        if not len(apart):
            apart = np.array([mean(of_best.values()) - mean(logs.values())])
        values["status"] = "slower" if is_worse(apart, max(len(able) - 1, 1)) else "tied"
    best["status"] = "best"
