"""The built-in samplers, whose classes carry their records as those of plug-ins do."""

from __future__ import annotations

from collections import UserDict
from collections.abc import MutableMapping
from dataclasses import replace
from typing import Any, cast

from ncfbench.catalog.infos import LossFamily, SamplerInfo

BASELINES: dict[LossFamily, str] = {"pointwise": "iid", "pairwise": "neg", "listwise": "neg"}
"""The sampler against which the speedups of a family's losses are measured."""


class SamplerRecords(UserDict[str, Any]):
    """Records by name, given as import paths: a class is imported when its record is first read.

    Their titles are their names: tables and figures have those of ``--sampler``.
    """

    def __getitem__(self, name: str) -> SamplerInfo:
        """Return the record of a sampler."""
        record = self.data[name]
        if isinstance(record, str):
            info = SamplerInfo(path=record).load().info
            record = self.data[name] = replace(info, path=record, title=name)
        return cast(SamplerInfo, record)


SAMPLERS: MutableMapping[str, SamplerInfo] = SamplerRecords(
    {
        "iid": "ncfbench.sampling.listed:IidSampler",
        "neg": "ncfbench.sampling.listed:NegativeSampler",
        "strat": "ncfbench.sampling.listed:StratifiedSampler",
        "ns": "ncfbench.sampling.shared:NegativeSharingSampler",
        "strat-ns": "ncfbench.sampling.shared:StratifiedSharingSampler",
        "mixed-ns": "ncfbench.sampling.shared:MixedSharingSampler",
    }
)
