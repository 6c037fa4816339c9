"""Print what each choice is worth on six data sets, by the kept reference searches; trains nothing.

    python benchmarks/search_choices.py

Of the 100 trials of a search (search_reference.py): the best validation recall with a value of a
choice, as a share of the best of all, and the seconds of training, with those of features, of the
soonest trial that has the value to 0.9 of the best of all. The search tried more often what did
well, and ended trials that had less than 0.7 of the best after a fifth of their time: a plus sign
says that this happened to the best trial of a value, which may be worth more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from bench_search import curve_of
from search_reference import SEARCHES, Trial, best, read

from ncfbench.reporting.render.terminal import make_console, show
from ncfbench.reporting.table import Col, Table

NAMES = {
    "cite": "CiteULike",
    "plots": "plots",
    "anime": "anime",
    "yelp": "Yelp",
    "debian": "Debian",
    "ml-time": "ML by time",
}
CHOICES = {
    "loss": ("softmax", "log", "sg"),
    "sampler": ("strat-ns", "ns", "neg"),
    "encoder": ("bow", "cnn", "mlp", "mf"),
    "user_tower": ("history", "table"),
}
SHARE = 0.9


class Worth(NamedTuple):
    """The worth of a value of a choice: share of the best recall, seconds to 0.9 of it, how many
    trials have it, and whether the best of them was ended early, as hopeless.
    """

    share: float
    seconds: float
    trials: int
    is_cut: bool = False


def worth(search: Mapping[str, Any], choice: str, value: str) -> Worth | None:
    """Return what a value is worth in a search; None where no trial has it."""
    trials: Sequence[Trial] = [each for each in search["trials"] if each["validation"]]
    top = max(map(best, trials))
    own = [each for each in trials if each["config"].get(choice) == value]
    if not own:
        return None
    seconds = min(curve_of(each, search).time_to(SHARE * top) for each in own)
    first = max(own, key=best)
    return Worth(best(first) / top, seconds, len(own), first["status"] == "hopeless")


def choices_table() -> Table:
    """Return the table of docs/results.md: the soonest value of each choice first."""
    searches = {name: read(SEARCHES / f"{name}.json.gz") for name in NAMES}

    def cell(choice: str) -> Callable[[str], str]:
        def shown(name: str) -> str:
            worths = {value: worth(searches[name], choice, value) for value in CHOICES[choice]}
            tried = [(value, of) for value, of in worths.items() if of is not None]
            tried.sort(key=lambda row: (row[1].seconds, -row[1].share))
            return ", ".join(f"{value} {_shown(of)}" for value, of in tried)

        return shown

    cols = [Col("", NAMES.get), *(Col(each.replace("_", " "), cell(each)) for each in CHOICES)]
    return Table.of("Best recall, and seconds to 0.9 of the best of all", cols, list(NAMES))


def _shown(worth: Worth) -> str:
    seconds = f"{worth.seconds:.3g} s" if math.isfinite(worth.seconds) else "never"
    return f"{worth.share:.2f}{'+' if worth.is_cut else ''} ({seconds})"


if __name__ == "__main__":
    show(make_console(), choices_table())
