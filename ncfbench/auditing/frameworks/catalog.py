"""The estimators that can be audited, by their names on the command line."""

from __future__ import annotations

from collections.abc import Sequence

from ncfbench.auditing.frameworks.estimator import Estimator
from ncfbench.auditing.frameworks.faults import (
    Collisions,
    DroppedGradients,
    MissingCorrection,
    WrongSign,
)
from ncfbench.auditing.frameworks.gradcache import GradCache
from ncfbench.auditing.frameworks.merlin import (
    Contrastive,
    CorrectedContrastive,
    RescaledContrastive,
)
from ncfbench.auditing.frameworks.paper_program import SharedLog
from ncfbench.auditing.frameworks.pyg import NegativeSampling
from ncfbench.auditing.frameworks.recbole import Bpr, PopularityBpr
from ncfbench.auditing.frameworks.reference import Reference
from ncfbench.auditing.frameworks.sentence_transformers import (
    MultipleNegativesRanking,
    WithoutDuplicates,
)
from ncfbench.auditing.frameworks.tfrs import (
    Retrieval,
    RetrievalWithoutHits,
    RetrievalWithProbability,
)
from ncfbench.auditing.frameworks.xbm import CrossBatchMemory
from ncfbench.errors import UsageError, nearest

ESTIMATORS: tuple[Estimator, ...] = (
    SharedLog(),
    Reference(),
    Retrieval(),
    RetrievalWithProbability(),
    RetrievalWithoutHits(),
    MultipleNegativesRanking(),
    WithoutDuplicates(),
    Contrastive(),
    CorrectedContrastive(),
    RescaledContrastive(),
    GradCache(),
    CrossBatchMemory(),
    Bpr(),
    PopularityBpr(),
    NegativeSampling(),
    WrongSign(),
    MissingCorrection(),
    DroppedGradients(),
    Collisions(),
)
BY_NAME = {estimator.name: estimator for estimator in ESTIMATORS}


def chosen(names: Sequence[str]) -> list[Estimator]:
    """Return the estimators with some names, in the table's order; all of them for ``all``.

    Raises:
        UsageError: a name is unknown; the message has the nearest one.
    """
    if "all" in names:
        return list(ESTIMATORS)
    for name in names:
        if name not in BY_NAME:
            valid = [*BY_NAME, "all"]
            raise UsageError(
                f"Unknown framework {name!r}{nearest(name, valid)} Valid: {', '.join(valid)}."
            )
    if not names:
        raise UsageError(f"No frameworks are named. Valid: {', '.join(BY_NAME)} or all.")
    return [estimator for estimator in ESTIMATORS if estimator.name in names]
