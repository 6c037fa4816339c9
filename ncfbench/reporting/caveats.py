"""Caveats of an answer: what it rests on, and what speaks against it."""

from __future__ import annotations

from ncfbench.reporting.answers import FALLING, Answer, Caveat, reads
from ncfbench.reporting.arms import Arm
from ncfbench.reporting.formats import three_digits
from ncfbench.runs.folder import are_interleaved
from ncfbench.runs.labels import seeds_label
from ncfbench.statistics.intervals import QUALITY_SPREAD
from ncfbench.statistics.speedups import BUSY_SPREAD

NUMBERS = ("learning_rate", "batch_size", "stratum_size")
"""Settings of which an answer says that its value is the largest or the smallest that was tried."""


def caveats(answer: Answer) -> list[Caveat]:
    """Return what an answer about finished runs rests on, and what speaks against it."""
    best, found = answer.best, list(answer.reasons)
    if best is None:
        return found + floor_caveats(answer)
    if {*best.deciding} != {seed for arm in answer.arms for seed in arm.runs}:
        text = f"Decided by {seeds_label(best.deciding)}: not all arms have the others."
        found.append(Caveat("few_seeds", text))
    if len(answer.arms) == 1:
        found.append(Caveat("few_arms", "No other arm was tried."))
    if answer.split == "test":
        text = "Test links decided: some runs have no recall of validation links."
        found.append(Caveat("decided_by_test", text))
    found += best_caveats(answer, best)
    if not all(are_interleaved(best.first, arm.first) for arm in answer.main if arm is not best):
        text = "Some runs did not take turns, so a change of the machine's speed counts."
        found.append(Caveat("not_interleaved", text))
    return found + floor_caveats(answer) + busy_caveats(answer.spread)


def best_caveats(answer: Answer, best: Arm) -> list[Caveat]:
    """Return whether the best arm still learns or has one seed, and which of its numbers are at an
    end of those that were tried.
    """
    found = []
    if answer.fall > FALLING:
        epochs, seconds = best.first.summary["epochs"], three_digits(best.curve.clock)
        text = f"The best trained {seconds} s ({epochs:.3g} epochs), and its recall rose by"
        text += f" {answer.fall:.0%} in the latter half: longer training may change the order."
        found = [Caveat("undertrained", text)]
    if len(best.deciding) == 1:
        text = "One seed: errors are of users and items alone, and intervals of times assume that"
        found.append(Caveat("few_seeds", f"{text} {QUALITY_SPREAD.text}."))
    return found + _edges(answer, best)


def floor_caveats(answer: Answer) -> list[Caveat]:
    """Return a warning if floors are known to be of another machine than the runs."""
    # Some kept runs do not say which machine theirs was.
    runs = [run for arm in answer.arms for run in arm.runs.values()]
    hosts = {run.environment.get("host_key") for run in runs} - {None}
    fitted = {floor.row["environment_key"] for floor in answer.floors}
    if not hosts or not fitted or len(hosts | fitted) == 1:
        return []
    text = "The floors were fitted on another machine than the runs, or in another environment:"
    again = f"their seconds do not compare. There ncfbench floor {answer.config.dataset} fits them."
    return [Caveat("other_machine", f"{text} {again}")]


def busy_caveats(spread: float) -> list[Caveat]:
    """Return a warning if times spread so widely that something else was at work."""
    if spread <= BUSY_SPREAD:
        return []
    text = f"The machine was busy: times of blocks of iterations spread by {spread:.0%}."
    return [Caveat("busy", text)]


def _edges(answer: Answer, best: Arm) -> list[Caveat]:
    """Return a caveat on each number of the best arm that is at an end of those that were tried
    with its loss and sampler.
    """
    config, found = best.config, []
    alike = [arm.config for arm in answer.arms if arm.has_run]
    alike = [own for own in alike if (own.loss, own.sampler) == (config.loss, config.sampler)]
    for name in NUMBERS:
        value, tried = getattr(config, name), {getattr(other, name) for other in alike}
        if reads(best, name) and len(tried) > 1 and value in (min(tried), max(tried)):
            end = "largest" if value == max(tried) else "smallest"
            text = f"Its {name} is the {end} that was tried: a {end[:-3]}er one may be better."
            found.append(Caveat("edge", text))
    return found
