"""Names that a user can choose, and the import paths of their classes.

Everything else about a choice is declared on its class; see :mod:`ncfbench.declarations`. What is
not built in is a plug-in: a class named ``package.module:Class``, or by a name that an installed
package registers under one of the entry-point groups of :data:`GROUPS`.
"""

from __future__ import annotations

from collections.abc import Mapping

from ncfbench.declarations import (
    EncoderTraits,
    InteractionTraits,
    LossFamily,
    LossTraits,
    SamplerTraits,
    Traits,
    UserTowerTraits,
    read,
)
from ncfbench.errors import UsageError, nearest
from ncfbench.settings import Kind

SAMPLERS: Mapping[str, str] = {
    "iid": "ncfbench.sampling.listed:IidSampler",
    "neg": "ncfbench.sampling.listed:NegativeSampler",
    "strat": "ncfbench.sampling.listed:StratifiedSampler",
    "ns": "ncfbench.sampling.shared:NegativeSharingSampler",
    "strat-ns": "ncfbench.sampling.shared:StratifiedSharingSampler",
    "mixed-ns": "ncfbench.sampling.shared:MixedSharingSampler",
    "ns-distinct": "ncfbench.sampling.distinct:DistinctSharingSampler",
    "xbm": "ncfbench.sampling.memory:MemorySharingSampler",
    "ns-all": "ncfbench.sampling.all_users:NegativeSharingAllUsersSampler",
    "strat-all": "ncfbench.sampling.all_users:StratifiedAllUsersSampler",
}
LOSSES: Mapping[str, str] = {
    "sg": "ncfbench.models.losses:SkipGram",
    "mse": "ncfbench.models.losses:MeanSquaredError",
    "log": "ncfbench.models.losses:LogLoss",
    "hinge": "ncfbench.models.losses:Hinge",
    "softmax": "ncfbench.models.losses:SampledSoftmax",
    "softmax-logq": "ncfbench.models.losses:UsualSoftmax",
}
ENCODERS: Mapping[str, str] = {
    "mf": "ncfbench.models.encoders.mf:MatrixFactorization",
    "cnn": "ncfbench.models.encoders.cnn:Convolution",
    "lstm": "ncfbench.models.encoders.lstm:Lstm",
    "bow": "ncfbench.models.encoders.bow:BagOfWords",
    "gru": "ncfbench.models.encoders.gru:Gru",
    "transformer": "ncfbench.models.encoders.transformer:Transformer",
    "bert": "ncfbench.models.encoders.bert:Bert",
    "mlp": "ncfbench.models.encoders.mlp:FeatureMlp",
}
USER_TOWERS: Mapping[str, str] = {
    "table": "ncfbench.models.user_table:UserTable",
    "features": "ncfbench.models.user_features:UserFeatures",
    "table-features": "ncfbench.models.user_features:UserTableAndFeatures",
}
INTERACTIONS: Mapping[str, str] = {
    "dot": "ncfbench.models.interaction:DotProduct",
    "gmf": "ncfbench.models.interaction:WeightedProduct",
    "mlp": "ncfbench.models.interaction:Network",
}
BUILT_IN: Mapping[Kind, Mapping[str, str]] = {
    "sampler": SAMPLERS,
    "loss": LOSSES,
    "encoder": ENCODERS,
    "user_tower": USER_TOWERS,
    "interaction": INTERACTIONS,
}
GROUPS: Mapping[Kind, str] = {
    "sampler": "ncfbench.samplers",
    "loss": "ncfbench.losses",
    "encoder": "ncfbench.encoders",
    "user_tower": "ncfbench.user_towers",
    "interaction": "ncfbench.interactions",
}
"""Entry-point groups under which an installed package registers plug-ins."""


def find(kind: Kind, name: str) -> Traits:
    """Return what a choice declares, built in or a plug-in.

    Raises:
        UsageError: the name is unknown, or the plug-in is none; see :func:`import_path`.
    """
    return read(kind, import_path(kind, name))


def find_sampler(name: str) -> SamplerTraits:
    """Return what a sampler declares; see :func:`find`."""
    traits = find("sampler", name)
    assert isinstance(traits, SamplerTraits)
    return traits


def find_loss(name: str) -> LossTraits:
    """Return what a loss declares; see :func:`find`."""
    traits = find("loss", name)
    assert isinstance(traits, LossTraits)
    return traits


def find_encoder(name: str) -> EncoderTraits:
    """Return what an encoder declares; see :func:`find`."""
    traits = find("encoder", name)
    assert isinstance(traits, EncoderTraits)
    return traits


def find_user_tower(name: str) -> UserTowerTraits:
    """Return what a user tower declares; see :func:`find`."""
    traits = find("user_tower", name)
    assert isinstance(traits, UserTowerTraits)
    return traits


def find_interaction(name: str) -> InteractionTraits:
    """Return what an interaction declares; see :func:`find`."""
    traits = find("interaction", name)
    assert isinstance(traits, InteractionTraits)
    return traits


def baseline_sampler(loss: str) -> str:
    """Return the sampler against which the speedups of a loss are measured."""
    family = find_loss(loss).family
    return next(name for name in SAMPLERS if family in find_sampler(name).baseline_for)


def samplers_for(family: LossFamily) -> list[str]:
    """Return the built-in samplers that serve losses of a family."""
    return [name for name in SAMPLERS if family in find_sampler(name).families]


def losses_for(sampler: SamplerTraits, strata: str = "item") -> list[str]:
    """Return the built-in losses that a sampler serves, with strata by ``item`` or by ``user``."""
    return [name for name in LOSSES if serves(sampler, find_loss(name), strata)]


def serves(sampler: SamplerTraits, loss: LossTraits, strata: str = "item") -> bool:
    """Return whether a sampler's batches have what a loss needs."""
    has_positive = sampler.shares_items or not loss.includes_positive
    return has_positive and loss.family in sampler.families_with(strata)


def registered(kind: Kind) -> dict[str, str]:
    """Return names and import paths of the plug-ins that installed packages register."""
    from importlib.metadata import entry_points

    return {point.name: point.value for point in entry_points(group=GROUPS[kind])}


def import_path(kind: Kind, name: str) -> str:
    """Return the ``package.module:Class`` that a name stands for.

    Raises:
        UsageError: it is neither built in, nor such a path, nor registered; the message lists the
            valid names and the nearest.
    """
    built_in = BUILT_IN[kind]
    if name in built_in:
        return built_in[name]
    if ":" in name:
        return name
    points = registered(kind)
    if name in points:
        return points[name]
    valid = [*built_in, *points]
    raise UsageError(
        f"Unknown {kind.replace('_', ' ')} {name!r}{nearest(name, valid)} Valid:"
        f" {', '.join(valid)}, or a plug-in as package.module:Class."
    )
