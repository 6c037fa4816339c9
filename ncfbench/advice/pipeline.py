"""Advice from beginning to end: arms, calibration, the race, and the answer."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from ncfbench.advice import summary
from ncfbench.advice.answer import RaceAnswer, by_validation, make_answer
from ncfbench.advice.question import METRIC, Question
from ncfbench.advice.search import Search
from ncfbench.advice.space import Space
from ncfbench.catalog import ENCODERS
from ncfbench.config import Folder, Locations
from ncfbench.data import Dataset, open_dataset
from ncfbench.data.assets import merge_named
from ncfbench.errors import DataError, UsageError, first_line
from ncfbench.floors import kept
from ncfbench.floors.floor import fit_within
from ncfbench.racing.engine import Clock
from ncfbench.racing.pipeline import Outcome, first_free, session
from ncfbench.reporting.floors import floors_of, read_floors
from ncfbench.runs.progress import Progress
from ncfbench.runs.quality import (
    CERTAIN,
    can_rank,
    chance,
    n_ranked,
    require_validation_links,
)
from ncfbench.timing.compile_cache import keep_compiled
from ncfbench.training.blended import MOST_FLOORS, Scored, blend_run, failures

FOLDER = "advice"
"""Folder of the races, below the folder of the runs."""
FLOORS_SHARE = 0.1
"""Share of the budget that the floors of a race may take."""
RESERVE = (5.0, 0.02)
"""Kept for the answer: seconds, a share of the budget, or as long as the start took, whichever is
most: a busy machine takes longer for both.
"""
BLENDING = 2.0
"""Time that blending may take of a floor's content, fit and ranking."""


def advise(
    dataset: str,
    *,
    budget_seconds: float = 600.0,
    metric: str = METRIC,
    tried: Mapping[str, Sequence[Any]] | None = None,
    data_dir: Folder = None,
    runs_dir: Folder = None,
    progress: Progress | None = None,
    assignments: Sequence[str] = (),
    began: float | None = None,
    **shared: Any,
) -> Outcome[RaceAnswer]:
    """Race arms within a budget of time, and return what to train with, and why.

    Args:
        tried: values to try by setting, such as ``{"loss": ["softmax", "log"]}``; of other
            settings those that they declare.
        assignments: ``key=value`` strings of settings that all arms share.
        shared: such settings by name.
        progress: shows the race to its user; by default nothing is shown.
        began: when the budget began, by ``time.perf_counter()``; by default now.

    Raises:
        DataError: the data set is not prepared or has no validation links, or a folder cannot be
            written.
        NcfbenchError: every arm failed.
        UsageError: nothing can work, one arm only, or the budget is too small for one rung.
    """
    began = time.perf_counter() if began is None else began
    tried, progress = tried or {}, progress or Progress()
    flags, say = {"dataset": dataset, "data_dir": data_dir, "runs_dir": runs_dir}, progress.say
    fixed, locations = merge_named(
        say, flags | shared, assignments, chosen={"encoder": tried.get("encoder", ENCODERS)}
    )
    question = Question(fixed, metric, tried)
    reserve = max(RESERVE[0], RESERVE[1] * budget_seconds, time.perf_counter() - began)
    clock = Clock(budget_seconds, reserve, began=began)
    data = open_dataset(question.base.dataset, data_dir=locations.data_dir, say=say)
    require_recall(question, data)
    search = Search(Space.of(data, question.fixed, question.tried), question.tried)
    search.require_rivals()
    first = locations.runs_dir / FOLDER / question.name
    folder = first_free(first, lambda path: any(path.glob("[!.]*")))
    with session(folder, clock, progress) as held:
        unfitted = _fit_floors(data, locations, clock, progress)
        rows = kept.read(locations.data_dir / data.name, data.fingerprint)
        most = FLOORS_SHARE * budget_seconds / BLENDING
        best, quick = kept.ranked(rows), kept.ranked(rows, most)[:MOST_FLOORS]
        if sum(map(kept.seconds_again, quick)) > most:
            quick = quick[:1]
        clock.reserve_seconds += BLENDING * sum(map(kept.seconds_again, quick))
        if best and best[0] not in quick:
            say(f"No blend with {best[0]['floor']}: to fit it again takes more than its share.")
        keep_compiled(say)
        import jax

        from ncfbench.advice.arms import Runs
        from ncfbench.advice.race import Race
        from ncfbench.models.towers import DeviceContent

        content = jax.block_until_ready(DeviceContent.of(data, search.readers()))
        here = dataclasses.replace(locations, runs_dir=folder)
        runs = Runs(data, content, here, question.column, clock, progress, held.interrupted)
        race, is_complete = Race(clock, [], say, search=search, runs=runs), False
        with suppress(KeyboardInterrupt), runs.turns:
            race.run()
            is_complete = True
        for arm in race.arms:
            arm.measure()
        notes = held.notes()
        if chance(data, "validation") >= 1:
            notes.append(f"On validation links {CERTAIN}")
        answer = make_answer(
            question,
            race.arms,
            data,
            budget_seconds=budget_seconds,
            spent_seconds=clock.spent,
            is_over=is_complete,
            notes=notes,
        )
        progress.move(int(clock.spent), "blending")
        scored: Scored = {}
        for run in answer.best.shown.values() if answer.best else ():
            try:
                blend_run(run, data, quick, metric=question.measure, scored=scored, say=say)
            except failures() as error:
                notes.append(f"No blend: {first_line(error)}")
        floors, _ = read_floors([locations.data_dir / data.name], data.fingerprint)
        answer = dataclasses.replace(answer, floors=by_validation(floors), unfitted=unfitted)
        return Outcome.kept(answer, folder, summary.as_json(answer, folder, _flags(locations)))


def _flags(locations: Locations) -> dict[str, str]:
    """Return the flags of folders that are not the usual ones."""
    usual = vars(Locations.of())
    given = {name: path for name, path in vars(locations).items() if path != usual[name]}
    return {f"--{name.replace('_', '-')}": str(path) for name, path in given.items()}


def require_recall(question: Question, dataset: Dataset) -> None:
    """Refuse an encoder or a metric by a UsageError, or data by a DataError, that cannot be ranked
    by on validation links.
    """
    for name in question.tried.get("encoder", ()):
        if not can_rank(name, dataset):
            raise UsageError(
                f"advise ranks held-out items, and {name} has no vectors of them. Try another"
                " encoder."
            )
    require_validation_links(dataset, "advise")
    _, _, cutoff = question.metric.partition("@")
    most = int(n_ranked(dataset, "validation").max())
    if question.metric != METRIC and cutoff and int(cutoff) >= most:
        raise UsageError(
            f"--metric {question.metric}: {most} items are ranked for validation links, so it"
            " decides nothing. Use a smaller M."
        )


def _fit_floors(
    dataset: Dataset, locations: Locations, clock: Clock, progress: Progress
) -> list[str]:
    """Fit the floors that have time and are not kept; return why others were left out."""
    try:
        fitted = fit_within(
            dataset,
            FLOORS_SHARE * clock.budget_seconds,
            locations.data_dir,
            progress.say,
            lambda text: progress.move(int(clock.spent), f"floors, {text}"),
        )
    except (DataError, UsageError) as error:
        return [str(error)]
    if fitted is None:
        return []
    floors = by_validation(floors_of(fitted.rows))
    shown = ", ".join(result.label("validation") for result in floors)
    links = f"validation links (chance: {chance(dataset, 'validation'):.3f})"
    lines = [f"{clock.spent:.0f} s: recall@50 of {links} without training: {shown}."]
    progress.say(" ".join([*lines, *fitted.notes]))
    return fitted.notes
