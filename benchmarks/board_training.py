"""Training of a board: the ways to build batches, and eight trials of each around the best ones of
a search; see board.py.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import search_reference as reference
from search_reference import Trial

from ncfbench.advice.space import Space
from ncfbench.config import Locations, RunConfig, complete
from ncfbench.data import open_dataset
from ncfbench.errors import UsageError
from ncfbench.rng import Streams
from ncfbench.runs.signals import deferred_signals
from ncfbench.sampling import make_sampler
from ncfbench.timing.compile_cache import keep_compiled

POINTWISE, RANKING = ("sg", "mse"), ("softmax", "log")
CONTESTANTS: Mapping[str, tuple[Mapping[str, Any], Sequence[str]]] = {
    "iid": ({"sampler": "iid"}, POINTWISE),
    "neg, pointwise": ({"sampler": "neg"}, POINTWISE),
    "strat": ({"sampler": "strat"}, POINTWISE),
    "ns, pointwise": ({"sampler": "ns"}, POINTWISE),
    "strat-ns, pointwise": ({"sampler": "strat-ns"}, POINTWISE),
    "neg": ({"sampler": "neg"}, RANKING),
    "ns": ({"sampler": "ns"}, RANKING),
    "strat-ns": ({"sampler": "strat-ns"}, RANKING),
    "mixed-ns": ({"sampler": "mixed-ns"}, RANKING),
    "ns, usual logQ": ({"sampler": "ns"}, ["softmax-logq"]),
}
"""Settings, and losses that they can train; the better one counts."""
HOPELESS = (0.5, 0.5)
"""Of the longest training, and of the best recall by then. A slow start is given its time."""
SMALL = (128, 64)
"""Further batch sizes, where others do not fit."""
TUNED, LEAST = 8, 6
"""Trials of each contestant, and of one that fewer batch sizes fit."""


def trials_of(
    space: Space, contestant: str, searched: Sequence[Trial], fits: Callable[[RunConfig], bool]
) -> list[RunConfig]:
    """Return the settings of a contestant's trials, :data:`TUNED` at most.

    They begin at the best trial of the search that has one of its losses and the encoder of the
    best of all. Others differ in learning rate and loss, then in batch size and learning rate.

    Args:
        fits: whether batches of these settings can be made of the data.
    """
    changes, losses = CONTESTANTS[contestant]
    family = space.fixed.get("encoder")
    if family is None:
        family = space.config(max(searched, key=reference.best)["config"]).encoder
    known = {"softmax"} if losses == ["softmax-logq"] else set(losses)
    alike = [
        each
        for each in searched
        if each["config"].get("encoder", family) == family and each["config"]["loss"] in known
    ]
    start = max(alike or searched, key=reference.best)["config"]
    best = space.config({name: value for name, value in start.items() if name not in space.fixed})

    def make(loss: str, rate: float, size: int) -> RunConfig:
        # Other losses and samplers have a scale and a shape of their own.
        other = {"gamma"} if loss != best.loss else set()
        other |= {"stratum_size", "negatives"} if changes["sampler"] != best.sampler else set()
        kept = {name: value for name, value in space.point(best).items() if name not in other}
        own = {"loss": loss, "learning_rate": rate, "batch_size": size}
        return space.config(kept | dict(changes) | own)

    def tried(name: str) -> list[Any]:
        values, own = list(space.tried[name]), getattr(best, name)
        return sorted(values, key=lambda value: abs(values.index(value) - values.index(own)))

    losses = sorted(losses, key=lambda loss: loss != best.loss)
    rates, sizes = tried("learning_rate")[:3], tried("batch_size")
    sizes = [size for size in [*sizes, *SMALL] if fits(make(losses[0], rates[0], size))][:3]
    grid = itertools.chain(
        itertools.product(losses, rates, sizes[:1]), itertools.product(losses[:1], rates, sizes[1:])
    )
    return list(dict.fromkeys(make(*each) for each in grid))[:TUNED]


def varied(
    trials: Sequence[Trial], contestant: str, setting: str, values: Sequence[float]
) -> list[RunConfig]:
    """Return the settings of a contestant's best trial, with other values of one of them."""
    own = [each for each in trials if each["contestant"] == contestant]
    best = max(own, key=reference.best)["config"]
    return [complete({**best, setting: value}) for value in values]


def train(
    name: str,
    seconds: float,
    data_dir: Path | None,
    searches: Path,
    path: Path,
    fixed: Mapping[str, str],
    contestants: Sequence[str],
    vary: tuple[str, Sequence[float]] | None = None,
    like: str | None = None,
    of: str = "",
) -> None:
    """Train what is missing of a data set's board.

    Args:
        path: of its file.
        fixed: settings that all trials have, as texts.
        vary: a setting, and the values that trials have in place of those of :func:`trials_of`.
        like: a contestant, at whose best trial all others begin.
        of: the board whose trials `vary` and `like` begin at; by default the data set's usual one.
    """
    keep_compiled(print)
    locations = Locations.of(data_dir)
    dataset = open_dataset(name, data_dir=locations.data_dir)
    space = Space.of(dataset, {"dataset": name, **reference.ENDLESS, **fixed}, {})
    searched = reference.read(searches / f"{name}.json.gz")["trials"]
    own_board = path.with_name(f"{name}.json.gz")
    usual = reference.read(own_board)["trials"] if own_board.exists() else []
    beside = [] if fixed else usual
    others = reference.read(path.with_name(f"{of}.json.gz"))["trials"] if of else usual
    start = searched if like is None else [each for each in others if each["contestant"] == like]

    def fits(config: RunConfig) -> bool:
        with suppress(UsageError):
            make_sampler(dataset.graph, config, Streams(config.seed))
            return True
        return False

    def configs(contestant: str) -> list[RunConfig]:
        if vary is None:
            return trials_of(space, contestant, start, fits)
        return varied(others, contestant, *vary)

    trials = reference.read(path)["trials"] if path.exists() else []
    done = {(each["contestant"], each["number"]) for each in trials}
    asked = [
        (number, contestant, config)
        for contestant in contestants
        for number, config in enumerate(configs(contestant))
        if (contestant, number) not in done
    ]
    with suppress(KeyboardInterrupt), deferred_signals(print, "Stopping.") as interrupted:
        trainer = reference.TrialTrainer(
            dataset, locations, seconds, interrupted, HOPELESS, HOPELESS[0] * seconds
        )
        for number, contestant, config in sorted(asked, key=lambda each: each[0]):
            own = {"contestant": contestant, "number": number, "config": config.to_dict()}
            trials.append(own | trainer.train(config, [*searched, *beside, *trials]))
            reference.write(path, dataset, trials)
            print(
                f"{time.strftime('%H:%M')} {path.name} {contestant} {number}:"
                f" {reference.best(trials[-1]):.4f} {trials[-1]['status']}",
                flush=True,
            )
