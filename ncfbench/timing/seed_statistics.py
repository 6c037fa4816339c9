"""Names of :mod:`ncfbench.timing.intervals` and :mod:`ncfbench.timing.speedups`."""

from ncfbench.timing.intervals import CONFIDENCE as CONFIDENCE
from ncfbench.timing.intervals import NORMAL_QUANTILE as NORMAL_QUANTILE
from ncfbench.timing.intervals import SEED_SPREAD as SEED_SPREAD
from ncfbench.timing.intervals import Estimate as Estimate
from ncfbench.timing.intervals import geometric as geometric
from ncfbench.timing.intervals import mean as mean
from ncfbench.timing.intervals import product as product
from ncfbench.timing.intervals import quotient as quotient
from ncfbench.timing.intervals import t_quantile as t_quantile
from ncfbench.timing.speedups import AtTarget as AtTarget
from ncfbench.timing.speedups import levels as levels
from ncfbench.timing.speedups import speedup_at as speedup_at
