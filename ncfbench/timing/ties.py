"""Names of :mod:`ncfbench.timing.intervals` and :mod:`ncfbench.timing.ranking`."""

from collections.abc import Mapping

from ncfbench.timing import ranking
from ncfbench.timing.intervals import Difference as Difference
from ncfbench.timing.intervals import paired as paired
from ncfbench.timing.ranking import ONE_SEED_FACTOR as ONE_SEED_FACTOR
from ncfbench.timing.ranking import Name
from ncfbench.timing.ranking import most_wins as most_wins
from ncfbench.timing.ranking import rank as rank


def tied_ratios(logs: Mapping[Name, Mapping[int, float]]) -> tuple[Name, set[Name], bool]:
    """Return the best arm, those tied with it, and whether all ties are known."""
    best, tied, unknown = ranking.tied_ratios(logs)
    return best, tied, not unknown
