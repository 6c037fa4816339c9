"""Wrong records of plug-ins: each is refused in one sentence that names the class."""

from __future__ import annotations

from pathlib import Path

import pytest

from ncfbench.catalog import BUILT_IN, find
from ncfbench.config import complete
from ncfbench.errors import UsageError

MODULE = """
from flax import nnx
from ncfbench.catalog import *
from ncfbench.catalog import SAMPLERS, EncoderInfo, LossInfo, SamplerInfo, UserTowerInfo
from ncfbench.models.interaction import Interaction
from ncfbench.models.losses import Loss, Pairwise, Pointwise
from ncfbench.sampling import Sampler
from ncfbench.sampling.listed import NegativeSampler
from ncfbench.settings import Setting

NEG = SAMPLERS["neg"].names
UNITS = Setting("units", 3, "Units", at_least=1)


class Bag(nnx.Module):
    info = EncoderInfo(uses=())

    def __call__(self, texts):
        return texts


class Tower(nnx.Module):
    def __call__(self, users):
        return users


class Hinge(Pairwise):
    def pair(self, positive, negative):
        return negative - positive
"""
WRONG = {
    "half a pair by uses": ("Bag", "EncoderInfo(uses=('width',))", "'width' without 'heads'"),
    "half a pair of mining": (
        "NegativeSampler",
        "SamplerInfo(families=FAMILIES, uses=('negatives', 'mask', 'unique_items', 'mine_every'))",
        "'mine_every' without 'mined'",
    ),
    "the other half of it": (
        "NegativeSampler",
        "SamplerInfo(families=FAMILIES, uses=('negatives', 'mask', 'unique_items', 'mined'))",
        "'mined' without 'mine_every'",
    ),
    "half a pair of its own": (
        "Bag",
        "EncoderInfo(uses=(), settings=(Setting('rows', 4, 'Rows', multiple_of='units'),))",
        "'rows' without 'units'",
    ),
    "only with nothing": (
        "Bag",
        "EncoderInfo(uses=(), settings=(Setting('rows', 4, 'Rows', only_with=('form', 'a')),))",
        "'rows' without 'form'",
    ),
    "a removed setting": (
        "NegativeSampler",
        "SamplerInfo(families=FAMILIES, uses=(*NEG, 'refresh_every'))",
        "'refresh_every', which no setting is called",
    ),
    "a misspelt setting": ("Bag", "EncoderInfo(uses=('featurs',))", "did you mean 'features'"),
    "what its base reads": (
        "NegativeSampler",
        "SamplerInfo(families=FAMILIES, uses=('negatives', *NEG[3:]))",
        "uses without mask and unique_items, which its base class NegativeSampler reads",
    ),
    "no families": ("NegativeSampler", "SamplerInfo(uses=NEG)", "declares no families"),
    "a family that is none": (
        "NegativeSampler",
        "SamplerInfo(families=('sideways',))",
        "families = ('sideways',), which must be a tuple of 'pointwise'",
    ),
    "families in a list": ("NegativeSampler", "SamplerInfo(families=['pairwise'])", "a tuple of"),
    "families of lists": ("NegativeSampler", "SamplerInfo(families=([],))", "a tuple of"),
    "a row too short": (
        "NegativeSampler",
        "SamplerInfo(families=FAMILIES, uses=NEG, symbols=('b',))",
        "symbols, of which there must be 5",
    ),
    "info of another kind": ("Bag", "SamplerInfo()", "an encoder needs EncoderInfo"),
    "info that is none": ("Bag", "{'uses': ()}", "has info = dict(...)"),
    "a class as info": ("Bag", "EncoderInfo", "has info = type(...)"),
    "uses in a list": ("Bag", "EncoderInfo(uses=['features'])", "must be a tuple of texts"),
    "uses in a text": ("Bag", "EncoderInfo(uses='features')", "must be a tuple of texts"),
    "a title of numbers": ("Bag", "EncoderInfo(title=3)", "title = 3, which must be a text"),
    "cost in words": ("Bag", "EncoderInfo(is_costly='yes')", "must be True or False"),
    "negatives in words": ("Bag", "EncoderInfo(negatives='5')", "a whole number above 0"),
    "no negatives": ("Bag", "EncoderInfo(negatives=0)", "a whole number above 0"),
    "settings by name": ("Bag", "EncoderInfo(settings=('units',))", "a tuple of ncfbench.settings"),
    "one setting alone": ("Bag", "EncoderInfo(settings=UNITS)", "a tuple of ncfbench.settings"),
    "a setting twice": ("Bag", "EncoderInfo(settings=(UNITS, UNITS))", "two settings of one name"),
    "a name of every run": (
        "Bag",
        "EncoderInfo(settings=(Setting('epochs', 3, 'Taken'),))",
        "a setting 'epochs', a name that is taken",
    ),
    "a name of the program": (
        "Bag",
        "EncoderInfo(settings=(Setting('placement', 3, 'Taken'),))",
        "'placement', a name that is taken",
    ),
    "a default of others": (
        "Bag",
        "EncoderInfo(settings=(Setting('rows', 4, 'Rows', default_from='encoder'),))",
        "'rows' with the default of the encoder",
    ),
    "a multiple of a name": (
        "Bag",
        "EncoderInfo(settings=(Setting('rows', 4, 'Rows', multiple_of='noise'),))",
        "a multiple of 'noise', which is no whole number",
    ),
    "a default out of range": (
        "Bag",
        "EncoderInfo(settings=(Setting('rows', 0, 'Rows', at_least=1),))",
        "rows = 0: it must be at least 1",
    ),
    "a default of a wrong type": (
        "Bag",
        "EncoderInfo(settings=(Setting('rows', 'x', 'Rows', type='int'),))",
        "rows = 'x' is not a whole number",
    ),
    "an unknown field": ("Bag", "EncoderInfo(use=())", "unexpected keyword argument 'use'"),
    "content that is none": ("Bag", "EncoderInfo(content=('images',))", "'text' and 'features'"),
    "parts without a rate": (
        "Bag",
        "EncoderInfo(uses=(), pretrained_parts=('core',))",
        "add 'pretrained_learning_rate' to uses",
    ),
    "a weight of a pairwise loss": ("Hinge", "LossInfo(lambda_=2.0)", "pointwise losses alone"),
    "a family not its own": ("Hinge", "LossInfo(family='pointwise')", "its base class is pairwise"),
    "a family in a list": ("Hinge", "LossInfo(family=['pairwise'])", "must be one of 'pointwise'"),
    "a rate of zero": ("Hinge", "LossInfo(learning_rate=0)", "a number above 0"),
    "a rate that is none": ("Hinge", "LossInfo(learning_rate=float('nan'))", "a number above 0"),
    "tables in a text": ("Tower", "UserTowerInfo(user_tables='vectors')", "a tuple of texts"),
    "no method of a sampler": ("Sampler", "SamplerInfo(families=FAMILIES)", "has no 'assemble'"),
    "no method of a loss": ("Pointwise", "LossInfo()", "has no 'negative'"),
    "no family of losses": ("Loss", "LossInfo()", "is no loss; a loss is a subclass of Pointwise"),
    "no method of r": ("Interaction", "InteractionInfo()", "has no 'pairs'"),
    "no call": ("nnx.Module", "EncoderInfo()", "has no '__call__'"),
    "no module": ("object", "EncoderInfo()", "is no encoder; an encoder is a flax.nnx.Module"),
    "no record, a base's": ("Bag", "", "its base class Bag has one; write info = Bag.info"),
    "outside the record": ("Tower", "!uses = ()", "has uses outside its record; write info ="),
}
KINDS = {
    "Tower": "user_tower",
    "Hinge": "loss",
    "Loss": "loss",
    "Pointwise": "loss",
    "NegativeSampler": "sampler",
    "Sampler": "sampler",
    "Interaction": "interaction",
}


@pytest.mark.parametrize(("base", "record", "words"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_record_is_refused_by_name(
    base: str, record: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"wrong_{abs(hash(tmp_path)) % 10**9}"
    line = record[1:] if record.startswith("!") else f"info = {record}" if record else "pass"
    text = f"{MODULE}\n\nclass Mine({base}):\n    {line}\n"
    (tmp_path / f"{module}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    kind = KINDS.get(base, "encoder")
    with pytest.raises(UsageError) as caught:
        complete({kind: f"{module}:Mine"})
    message = str(caught.value)
    assert words in message
    assert "Mine" in message
    assert message.endswith(".")


@pytest.mark.parametrize("kind", BUILT_IN)
def test_a_built_in_class_is_no_plug_in_of_another_kind(kind: str) -> None:
    for other, infos in BUILT_IN.items():
        for info in infos.values():
            if {kind, other} not in ({kind}, {"encoder", "user_tower"}):
                with pytest.raises(UsageError, match=r"; an? .* is a"):
                    find(kind, info.path)
