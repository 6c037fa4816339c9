"""Names of :mod:`ncfbench.timing.intervals` and :mod:`ncfbench.timing.speedups`."""

from ncfbench.timing.intervals import ratio_of_medians as ratio_of_medians
from ncfbench.timing.speedups import BUSY_SPREAD as BUSY_SPREAD
from ncfbench.timing.speedups import ROUNDS_OF_INTERVALS as ROUNDS_OF_INTERVALS
from ncfbench.timing.speedups import Arm as Arm
from ncfbench.timing.speedups import iterations_to as iterations_to
from ncfbench.timing.speedups import seconds_per_iteration as seconds_per_iteration
from ncfbench.timing.speedups import spread as spread
from ncfbench.timing.speedups import weighted_mean as weighted_mean
