"""Records of the built-in samplers."""

from __future__ import annotations

from dataclasses import replace

from ncfbench.catalog.infos import FAMILIES, LossFamily, SamplerInfo
from ncfbench.settings import Setting

HARDEST = Setting(
    "hardest",
    0,
    "Shared negatives of a positive link that count, those of the highest scores",
    at_least=0,
    symbol="K",
    zero_word="all",
    changes_objective=True,
)
POSITIVE_MARGIN = Setting(
    "positive_margin",
    0.0,
    "Hard negatives (--hardest, --mined) count only if their score is below the positive link's by"
    " this, since items of higher scores may be missing links",
    at_least=0,
    symbol="margin",
    zero_word="off",
    changes_objective=True,
)
WARM_START = Setting(
    "warm_start",
    0,
    "Iterations without hard negatives (--hardest, --mined) and without a memory, before these"
    " begin to count",
    at_least=0,
    symbol="warm",
    zero_word="off",
    changes_objective=True,
)
HARD = (HARDEST, POSITIVE_MARGIN, WARM_START)
EXPLICIT_NEGATIVES = Setting(
    "explicit_negatives",
    False,
    "Draw the negatives of a user who has explicit ones from these, uniformly, and not from P_n",
    symbol="explicit",
    changes_objective=True,
)
BASELINES: dict[LossFamily, str] = {"pointwise": "iid", "pairwise": "neg", "listwise": "neg"}
"""The sampler against which the speedups of a family's losses are measured."""
_RECORDS: dict[str, SamplerInfo] = {
    "iid": SamplerInfo(
        path="ncfbench.sampling.listed:IidSampler",
        in_paper=True,
        uses=("negatives", "mask"),
        settings=(EXPLICIT_NEGATIVES,),
        families=("pointwise",),
        symbols=("bk", "b(1+k)", "b(1+k)", "b(1+k)", "vectors"),
    ),
    "neg": SamplerInfo(
        path="ncfbench.sampling.listed:NegativeSampler",
        in_paper=True,
        uses=("negatives", "mask"),
        settings=(
            EXPLICIT_NEGATIVES,
            Setting(
                "mined",
                0,
                "Draw negatives from a user's items of the highest scores that have no link: this"
                " many",
                at_least=0,
                needs=("mine_every", "mine_skip"),
                symbol="M",
                zero_word="off",
                changes_objective=True,
            ),
            Setting(
                "mine_every",
                100,
                "Iterations after which the items of the highest scores are found again",
                at_least=1,
                needs=("mined",),
                symbol="mine",
                changes_objective=True,
            ),
            Setting(
                "mine_skip",
                0,
                "Items of the highest scores that are passed over before --mined counts",
                at_least=0,
                needs=("mined",),
                symbol="skip",
                changes_objective=True,
            ),
            POSITIVE_MARGIN,
            WARM_START,
        ),
        families=FAMILIES,
        symbols=("bk", "b", "b(1+k)", "b(1+k)", "vectors"),
    ),
    "strat": SamplerInfo(
        path="ncfbench.sampling.listed:StratifiedSampler",
        in_paper=True,
        uses=("stratum_size", "strata", "negatives", "mask"),
        families=("pointwise",),
        symbols=("bk", "b(1+k)", "b/s", "b(1+k)", "vectors"),
        by_user={
            "families": FAMILIES,
            "uses": (
                *("stratum_size", "strata", "negatives", "mask"),
                "explicit_negatives",
            ),
            "symbols": ("bk", "b/s", "b(1+k)", "b(1+k)", "vectors"),
        },
    ),
    "ns": SamplerInfo(
        path="ncfbench.sampling.shared:NegativeSharingSampler",
        in_paper=True,
        uses=("mask",),
        settings=HARD,
        families=FAMILIES,
        shares_items=True,
        least_strata=2,
        symbols=("b(b-1)", "b", "b", "b^2", "matrix"),
    ),
    "strat-ns": SamplerInfo(
        path="ncfbench.sampling.shared:StratifiedSharingSampler",
        in_paper=True,
        uses=("stratum_size", "strata", "mask"),
        settings=HARD,
        families=FAMILIES,
        shares_items=True,
        least_strata=2,
        symbols=("b(b-s)/s", "b", "b/s", "b^2/s", "matrix"),
        by_user={
            "uses": ("stratum_size", "strata", "mask"),
            "symbols": ("b(b-s)", "b/s", "b", "b^2", "matrix"),
        },
    ),
    "mixed-ns": SamplerInfo(
        path="ncfbench.sampling.shared:MixedSharingSampler",
        uses=("uniform_items", "mask"),
        settings=HARD,
        families=FAMILIES,
        shares_items=True,
        symbols=("b(b-1+k')", "b", "b+k'", "b(b+k')", "matrix"),
    ),
    "xbm": SamplerInfo(
        path="ncfbench.sampling.shared:MemorySharingSampler",
        uses=("mask",),
        settings=(
            *HARD,
            Setting(
                "memory",
                2048,
                "Positive links whose item vectors are remembered as further negatives",
                at_least=1,
                symbol="M",
            ),
        ),
        families=FAMILIES,
        keeps_vectors=True,
        least_strata=2,
        symbols=("b(b-1+M)", "b", "b", "b(b+M)", "matrix"),
    ),
}
SAMPLERS = {name: replace(info, title=name) for name, info in _RECORDS.items()}
"""Tables and figures have the names of flags."""
