"""The race to a recall: this program and one in PyTorch, each with its own batches and optimiser.

    make bench-peer-recall DATASET=citeulike
    python benchmarks/peer_recall.py --show --json benchmarks/results/peer-recall-citeulike-cpu.json

Both train a two-tower model of bags of words of one dimension, in processes of their own. First the
trials of each program, until recall@50 of validation items comes to the last of --validation. Then
a race for each seed, with the trial of each program that was soonest: the programs take turns, a
look at a time. Evaluations, by ncfbench for both, and compilation are on no clock. Times to a level
are linear between two looks.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from harness import FOLDER, TINY, Benchmark, Found, machine, read_result
from measuring import process, time_to

from ncfbench.config import complete
from ncfbench.data import Dataset, open_dataset
from ncfbench.errors import UsageError
from ncfbench.models.towers import DeviceContent
from ncfbench.reporting.formats import interval
from ncfbench.reporting.table import Col, Table, under
from ncfbench.storage.schemas import EVALUATED
from ncfbench.timing import allocator, intervals
from ncfbench.training.loop import timed_loops
from ncfbench.training.recall import RecallEvaluator, link_ranks

Points = Sequence[Sequence[float]]
"""Looks: links and seconds of training so far, and recall@50 of validation and of test items."""
LINKS, SECONDS, VALIDATION, TEST = range(4)
MODULES = {"ours": "peer_recall", "PyTorch": "peer_rival"}
"""By program, the module whose ``Program`` trains."""
OURS = {
    **{"encoder": "bow", "loss": "softmax", "sampler": "strat-ns", "features": "ignore"},
    **{"batch_size": 1024, "learning_rate": 0.01, "bare_bag": True},
}
COMMON: Sequence[Mapping[str, Any]] = [
    *({}, {"learning_rate": 0.005}, {"learning_rate": 0.02}, {"batch_size": 512}),
    *({"batch_size": 512, "learning_rate": 0.005}, {"batch_size": 2048, "learning_rate": 0.02}),
    *({"word_dropout": 0.3}, {"word_dropout": 0.7}),
]
TRIALS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "ours": [
        *COMMON,
        *({"stratum_size": 2}, {"stratum_size": 8}, {"batch_size": 512, "stratum_size": 2}),
        *({"gamma": 15.0}, {"bare_bag": False}, {"optimizer": "row-adam"}),
    ],
    "PyTorch": [
        *COMMON,
        *({"temperature": 0.07}, {"temperature": 0.15}, {"mask": "item"}),
        *({"layer": True}, {"tables": "sparse"}, {"compiled": True}),
    ],
}
"""Settings of each program's trials, beside its defaults."""


class RaceToRecall(Benchmark):
    """A cell for each trial, and one for each seed of the race."""

    name = "peer-recall"
    options: ClassVar = {
        "dataset": ("citeulike", "a prepared data set"),
        "dimension": (300, "of words, users and items, in both programs"),
        "validation": ("0.65,0.7,0.71", "levels of recall@50, rising; a trial ends at the last"),
        "test": ("0.5,0.54,0.55", "levels of recall@50"),
        "seconds": (40.0, "of training: of each program in a race, at most of a trial"),
        "look": (0.25, "epochs from one look to the next"),
        "seeds": (3, "of the race"),
    }
    places = ("seeds",)
    own_files = (FOLDER / "peer_recall.py", FOLDER / "peer_rival.py")

    def cells(self, options: argparse.Namespace) -> Mapping[str, tuple[str, Any]]:
        trials = TRIALS
        if options.quick:
            options.dataset, options.dimension, options.look = TINY, 8, 1.0
            options.validation, options.test, options.seconds, options.seeds = "2", "0.7", 0.1, 1
            trials = {program: [{"batch_size": 32}] for program in MODULES}
        return {
            f"{program} {number}": (program, settings)
            for program, several in trials.items()
            for number, settings in enumerate(several)
        } | {f"race {seed}": ("race", seed) for seed in range(options.seeds)}

    def measure(self, name: str, cell: tuple[str, Any], options: argparse.Namespace) -> Found:
        dataset, (kind, value) = open_dataset(options.dataset, data_dir=options.data_dir), cell
        if kind in MODULES:
            level = levels(options.validation)[-1]
            return train(dataset, {kind: value}, 0, options, level)[kind]
        settings = {key: getattr(options, key) for key in self.options if key not in self.places}
        kept = read_result(options.json, self.name)["cells"]
        kept = [trial for trial in kept if trial["settings"] == settings]
        chosen = {program: best_trial(kept, program)["trial"] for program in MODULES}
        return {"programs": train(dataset, chosen, value, options)}

    def tables(
        self, cells: Sequence[Found], environments: Mapping[str, Any]
    ) -> Iterator[Table | str]:
        for program in MODULES:
            if trials := [cell for cell in cells if cell.get("program") == program]:
                yield trial_table(trials)
        if races := [cell["programs"] for cell in cells if "programs" in cell]:
            yield race_table(races, cells[-1]["settings"])
        where, when = environments[cells[-1]["environment_key"]], cells[-1]["time"]
        torch = {cell["torch"] for cell in cells if "torch" in cell}
        yield f"{machine(where, 'jax')}, torch {', '.join(sorted(torch))}, {when}"


# --- training

_programs: dict[str, Any] = {}
"""The program of this process, by its name."""


def start(name: str, dataset: Dataset, settings: Mapping[str, Any], seed: int) -> None:
    """Make a program."""
    _programs[name] = importlib.import_module(MODULES[name]).Program(dataset, settings, seed)


def advance(name: str, links: int, items: Any) -> tuple[Any, ...]:
    """Train on about so many links; return how many they were, the seconds, the vectors of all
    users and of some items, and other facts.
    """
    program = _programs[name]
    trained = program.advance(links) if links else (0, 0.0)
    return *trained, *program.vectors(items), program.facts


class Program:
    """Our training: the loop of ``ncfbench run``."""

    def __init__(self, dataset: Dataset, settings: Mapping[str, Any], seed: int) -> None:
        width = {"word_dimension": settings["dimension"], "seed": seed}
        config = complete({"dataset": dataset.name, **OURS, **width, **settings})
        content, self.stack = DeviceContent.of(dataset, [config]), ExitStack()
        loops = self.stack.enter_context(timed_loops(dataset, content, {"": config}))
        self.loop, self.batch_size = loops[""], config.batch_size
        self.embedder = self.loop.trainer.embedder(content)
        self.facts = {"compile_seconds": 0.0}

    def advance(self, links: int) -> tuple[int, float]:
        count = max(round(links / self.batch_size), 1)
        self.loop.full_block(count)
        seconds = {sample.kind: sample.seconds for sample in self.loop.take_samples()}
        self.facts["compile_seconds"] += seconds.get("compile", 0.0)
        return count * self.batch_size, seconds["full"]

    def vectors(self, items: Any) -> tuple[Any, Any]:
        self.loop.settle()
        parameters = self.loop.state.parameters
        users = self.embedder.users(parameters).scored
        return np.asarray(users), np.asarray(self.embedder.cold_items(parameters, items))


def train(
    dataset: Dataset,
    programs: Mapping[str, Mapping[str, Any]],
    seed: int,
    options: argparse.Namespace,
    level: float = np.inf,
) -> dict[str, Found]:
    """Train programs in turn, each for some seconds or to a level of validation recall; return the
    points and facts of each.
    """
    recall, look = Recall(dataset), int(options.look * len(dataset.links("train")[0]))
    found: dict[str, Found] = {}
    with ExitStack() as stack:
        asks = {program: stack.enter_context(process()) for program in programs}
        for program, settings in programs.items():
            given = {"dimension": options.dimension, **settings}
            asks[program](start, program, dataset, given, seed)
            found[program] = {"program": program, "trial": settings, "points": []}
        links, turn, running = 0, seed, list(programs)
        while running:
            for program in running if turn % 2 == 0 else running[::-1]:
                trained, seconds, *vectors, facts = asks[program](
                    advance, program, links, recall.items
                )
                points = found[program]["points"]
                before = points[-1] if points else (0, 0.0)
                point = (before[0] + trained, before[1] + seconds, *recall(*vectors))
                points.append(point)
                found[program] |= facts
                if point[SECONDS] >= options.seconds or point[VALIDATION] >= level:
                    running = [name for name in running if name != program]
            links, turn = look, turn + 1
    return found


class Recall:
    """Recall@50 of validation and of test items, by vectors of users and of ``items``."""

    def __init__(self, dataset: Dataset) -> None:
        given: Any = None  # no embedder
        self.evaluators = [RecallEvaluator(dataset, split, given) for split in EVALUATED]
        self.items = np.concatenate([evaluator.items for evaluator in self.evaluators])

    def __call__(self, users_UxD: Any, items_VxD: Any) -> Iterator[float]:
        first = 0
        for one in self.evaluators:
            own = items_VxD[first : (first := first + len(one.items))]
            ranks = link_ranks(users_UxD, own, one.users, one.index)
            yield float(one.ranking(ranks).figures["recall_at_50"] or 0)


# --- figures


def levels(text: str) -> list[float]:
    return [float(level) for level in text.split(",")]


def reached(points: Points, recall: int, level: float, unit: int = SECONDS) -> float:
    """Return the seconds or links to a level of a recall; infinity if it is not reached."""
    return time_to(level, [(point[unit], point[recall]) for point in points])


def trial_figures(trial: Found) -> dict[str, Any]:
    """Return links and seconds to the last level, at the pace of the quickest look: other programs
    may have run beside the others.
    """
    points = trial["points"]
    pace = min((b[SECONDS] - a[SECONDS]) / (b[LINKS] - a[LINKS]) for a, b in pairwise(points))
    links = reached(points, VALIDATION, levels(trial["settings"]["validation"])[-1], LINKS)
    named = " ".join(f"{name}={value}" for name, value in trial["trial"].items())
    highest = max(point[VALIDATION] for point in points)
    figures = {"named": named, "pace": pace, "links": links, "seconds": links * pace}
    return figures | {"highest": highest}


def best_trial(cells: Sequence[Found], program: str) -> Found:
    """Return the trial of a program that was soonest; where none came there, the highest.

    Raises:
        UsageError: there is none.
    """

    def merit(trial: Found) -> tuple[float, float]:
        figures = trial_figures(trial)
        return figures["seconds"], -figures["highest"]

    trials = [cell for cell in cells if cell.get("program") == program]
    if not trials:
        raise UsageError(f"no trial of {program} is kept: run --cells '{program} *' with --json.")
    return min(trials, key=merit)


def finite(spec: str) -> Callable[[float], str]:
    """Return a format that shows infinity as a dash."""
    return lambda value: f"{value:{spec}}" if value < np.inf else "-"


def trial_table(trials: Sequence[Found]) -> Table:
    """Return a row for each trial of a program; the one of the race has a star."""
    best = best_trial(trials, trials[0]["program"])
    columns = [
        Col("settings", "named"),
        Col("us a link", "pace", ".1f", 1e6),
        Col("1,000 links", "links", finite(",.0f"), 1e-3),
        Col("s", "seconds", finite(".1f")),
        Col("highest", "highest", ".3f"),
        Col("race", "race"),
    ]
    rows = [trial_figures(trial) | {"race": "*" if trial is best else ""} for trial in trials]
    level = levels(best["settings"]["validation"])[-1]
    return Table.of(f"Trials of {best['program']}: validation recall of {level}", columns, rows, [])


def race_table(races: Sequence[Mapping[str, Found]], settings: Mapping[str, Any]) -> Table:
    """Return a row for each level: means over seeds, and the ratio of seconds within a seed."""
    units = {"1,000 links": (LINKS, ",.0f", 1e-3), "seconds": (SECONDS, ".1f", 1.0)}
    columns = [Col("recall@50 of", "split"), Col("level", "level")]
    for title, (unit, spec, scale) in units.items():
        own = [Col(name, f"{name} {unit}", finite(spec), scale) for name in MODULES]
        columns += under(title, *own)
    columns.append(Col("PyTorch / ours", "value", ".2f"))
    columns.append(Col("interval", ("lower", "upper"), interval(".2f")))
    rows = []
    for recall, split in enumerate(EVALUATED, VALIDATION):
        for level in levels(settings[split]):
            at = {
                f"{name} {unit}": [
                    reached(race[name]["points"], recall, level, unit) for race in races
                ]
                for name in MODULES
                for unit in (LINKS, SECONDS)
            }
            pair = np.array([at[f"PyTorch {SECONDS}"], at[f"ours {SECONDS}"]])
            ratio = vars(intervals.geometric(pair[0] / pair[1])) if np.isfinite(pair).all() else {}
            means = {name: np.mean(own) for name, own in at.items()}
            absent = dict.fromkeys(("value", "lower", "upper"))
            rows.append({"split": split, "level": level, **means, **absent, **ratio})
    highest = [
        f"{name} {np.mean([max(p[TEST] for p in race[name]['points']) for race in races]):.3f}"
        for name in MODULES
    ]
    compiled = [
        f"{name} {np.mean([race[name]['compile_seconds'] for race in races]):.1f} s"
        for name in MODULES
    ]
    notes = [
        f"Highest recall of test items in {settings['seconds']:g} s: {', '.join(highest)}.",
        f"Compilation and first batches, on no clock: {', '.join(compiled)}.",
    ]
    return Table.of(f"The race of {len(races)} seeds", columns, rows, notes)


if __name__ == "__main__":
    allocator.restart()
    RaceToRecall().main()
