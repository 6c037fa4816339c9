"""Wrong records of plug-ins: each is refused in one sentence that names the class."""

import pytest

from ncfbench.catalog import BUILT_IN, find
from ncfbench.config import complete
from ncfbench.errors import UsageError

MODULE = """
from flax import nnx
from ncfbench.catalog import *
from ncfbench.catalog import EncoderInfo, LossInfo, SamplerInfo
from ncfbench.models.losses import Loss, Pairwise, Pointwise
from ncfbench.sampling import Sampler
from ncfbench.sampling.listed import NegativeSampler
from ncfbench.settings import Setting

UNITS = Setting("units", 3, "Units", at_least=1)


class Bag(nnx.Module):
    info = EncoderInfo(uses=())

    def __call__(self, texts):
        return texts


class Hinge(Pairwise):
    def pair(self, positive, negative):
        return negative - positive
"""
WRONG = {
    ("encoder", "Bag"): (
        ("EncoderInfo(uses=('featurs',))", "did you mean 'features'"),
        ("SamplerInfo()", "an encoder needs EncoderInfo"),
        (
            "EncoderInfo(settings=(Setting('epochs', 3, 'Taken'),))",
            "a setting 'epochs', a name that is taken",
        ),
        (
            "EncoderInfo(settings=(Setting('rows', 0, 'Rows', at_least=1),))",
            "rows = 0: it must be at least 1",
        ),
        ("EncoderInfo(use=())", "unexpected keyword argument 'use'"),
    ),
    ("sampler", "NegativeSampler"): (
        ("SamplerInfo(uses=())", "declares no families"),
        ("SamplerInfo(families=('pairwises',))", "declares no families"),
        (
            "SamplerInfo(families=FAMILIES, by_user={'uses': ('mask',)})",
            "by_user of other fields than families and symbols",
        ),
    ),
    ("loss", "Hinge"): (("LossInfo(family='pointwise')", "its base class is pairwise"),),
    ("sampler", "Sampler"): (("SamplerInfo(families=FAMILIES)", "has no 'assemble'"),),
    ("loss", "Loss"): (("LossInfo()", "is no loss; a loss is a subclass of Pointwise"),),
    ("encoder", "object"): (("EncoderInfo()", "is no encoder; an encoder is a flax.nnx.Module"),),
}
"""By kind and base class: wrong records, and words of their refusals."""
CASES = [(*base, *case) for base, cases in WRONG.items() for case in cases]


@pytest.mark.parametrize(("kind", "base", "record", "words"), CASES)
def test_a_wrong_record_is_refused_by_name(kind, base, record, words, tmp_path, monkeypatch):
    module = f"wrong_{abs(hash(tmp_path)) % 10**9}"
    text = f"{MODULE}\n\nclass Mine({base}):\n    info = {record}\n"
    (tmp_path / f"{module}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError) as caught:
        complete({kind: f"{module}:Mine"})
    message = str(caught.value)
    assert words in message
    assert "Mine" in message
    assert message.endswith(".")


@pytest.mark.parametrize("kind", ["sampler", "loss", "encoder"])
def test_a_built_in_class_is_no_plug_in_of_another_kind(kind):
    for other, infos in BUILT_IN.items():
        for info in infos.values():
            if kind != other and (kind, other) != ("encoder", "user_tower"):
                with pytest.raises(UsageError, match=r"; an? .* is a"):
                    find(kind, info.path)


def test_user_towers_have_no_plug_ins():
    with pytest.raises(UsageError, match=r"Unknown user tower 'a:B'.* Valid: table, .*history\.$"):
        find("user_tower", "a:B")
