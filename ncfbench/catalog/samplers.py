"""Records of the built-in samplers."""

from __future__ import annotations

from dataclasses import replace

from ncfbench.catalog.infos import FAMILIES, LossFamily, SamplerInfo

BASELINES: dict[LossFamily, str] = {"pointwise": "iid", "pairwise": "neg", "listwise": "neg"}
"""The sampler against which the speedups of a family's losses are measured."""
_RECORDS: dict[str, SamplerInfo] = {
    "iid": SamplerInfo(
        path="ncfbench.sampling.listed:IidSampler",
        in_paper=True,
        uses=("negatives", "mask"),
        families=("pointwise",),
        symbols=("bk", "b(1+k)", "b(1+k)", "b(1+k)", "vectors"),
        nominal=lambda n: (n.b * (1 + n.k), n.b * (1 + n.k), n.b * n.k),
    ),
    "neg": SamplerInfo(
        path="ncfbench.sampling.listed:NegativeSampler",
        in_paper=True,
        uses=("negatives", "mask"),
        families=FAMILIES,
        symbols=("bk", "b", "b(1+k)", "b(1+k)", "vectors"),
        nominal=lambda n: (n.b, n.b * (1 + n.k), n.b * n.k),
    ),
    "strat": SamplerInfo(
        path="ncfbench.sampling.listed:StratifiedSampler",
        in_paper=True,
        uses=("stratum_size", "strata", "negatives", "mask"),
        families=("pointwise",),
        symbols=("bk", "b(1+k)", "b/s", "b(1+k)", "vectors"),
        nominal=lambda n: (n.b * (1 + n.k), n.b // n.s, n.b * n.k),
        by_user={
            "families": FAMILIES,
            "symbols": ("bk", "b/s", "b(1+k)", "b(1+k)", "vectors"),
            "nominal": lambda n: (n.b // n.s, n.b * (1 + n.k), n.b * n.k),
        },
    ),
    "ns": SamplerInfo(
        path="ncfbench.sampling.shared:NegativeSharingSampler",
        in_paper=True,
        uses=("mask",),
        families=FAMILIES,
        shares_items=True,
        least_strata=2,
        symbols=("b(b-1)", "b", "b", "b^2", "matrix"),
        nominal=lambda n: (n.b, n.b, n.b * (n.b - 1)),
    ),
    "strat-ns": SamplerInfo(
        path="ncfbench.sampling.shared:StratifiedSharingSampler",
        in_paper=True,
        uses=("stratum_size", "strata", "mask"),
        families=FAMILIES,
        shares_items=True,
        least_strata=2,
        symbols=("b(b-s)/s", "b", "b/s", "b^2/s", "matrix"),
        nominal=lambda n: (n.b, n.b // n.s, n.b * (n.b - n.s) // n.s),
        by_user={
            "uses": ("stratum_size", "strata", "mask"),
            "symbols": ("b(b-s)", "b/s", "b", "b^2", "matrix"),
            "nominal": lambda n: (n.b // n.s, n.b, n.b * (n.b - n.s)),
        },
    ),
    "mixed-ns": SamplerInfo(
        path="ncfbench.sampling.shared:MixedSharingSampler",
        uses=("uniform_items", "mask"),
        families=FAMILIES,
        shares_items=True,
        symbols=("b(b-1+k')", "b", "b+k'", "b(b+k')", "matrix"),
        nominal=lambda n: (n.b, n.b + n.uniform, n.b * (n.b - 1 + n.uniform)),
    ),
}
SAMPLERS = {name: replace(info, title=name) for name, info in _RECORDS.items()}
"""Tables and figures have the names of flags."""
