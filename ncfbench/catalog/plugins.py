"""Read the record of a plug-in, a class that carries it as ``info``, and refuse a wrong one."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ncfbench.catalog.infos import (
    FAMILIES,
    NO_SYMBOLS,
    UNSAID,
    EncoderInfo,
    Info,
    InteractionInfo,
    LossInfo,
    SamplerInfo,
    UserTowerInfo,
    load,
)
from ncfbench.catalog.models import BUILT_IN, own_settings
from ncfbench.catalog.shared import SETTINGS
from ncfbench.errors import UsageError, nearest
from ncfbench.settings import Kind, Setting

INFOS: Mapping[Kind, type[Info]] = {
    info.kind: info for info in (SamplerInfo, LossInfo, EncoderInfo, UserTowerInfo, InteractionInfo)
}
BASES: Mapping[Kind, tuple[str, str, str]] = {
    "sampler": ("ncfbench", "Sampler", "a subclass of ncfbench.sampling.Sampler"),
    "loss": (
        "ncfbench",
        "Loss",
        "a subclass of Pointwise, Pairwise or Listwise of ncfbench.models.losses",
    ),
    "encoder": ("flax", "Module", "a flax.nnx.Module with a __call__ method"),
    "user_tower": ("flax", "Module", "a flax.nnx.Module with a __call__ method"),
    "interaction": (
        "ncfbench",
        "Interaction",
        "a subclass of ncfbench.models.interaction.Interaction",
    ),
}
"""Package and name of the base class of each kind, and both in words."""
CONTENT = {"text", "features"}
TABLES = {"item_tables", "user_tables", "pretrained_parts"}
OUTSIDE = {"uses", "settings", "families", "content"} | TABLES
"""Fields of records that a class must not have beside its record."""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_tuple_of(kind: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, tuple) and all(isinstance(each, kind) for each in value)


TYPES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "str": (lambda value: isinstance(value, str), "a text"),
    "bool": (lambda value: isinstance(value, bool), "True or False"),
    "int": (lambda value: type(value) is int and value > 0, "a whole number above 0"),
    "float": (lambda value: _is_number(value) and value > 0, "a number above 0"),
    "tuple[str, ...]": (_is_tuple_of(str), "a tuple of texts"),
    "tuple[Setting, ...]": (_is_tuple_of(Setting), "a tuple of ncfbench.settings.Setting"),
    "LossFamily": (
        lambda value: value in (UNSAID, *FAMILIES),
        f"one of {', '.join(map(repr, FAMILIES))}",
    ),
    "tuple[LossFamily, ...]": (
        lambda value: isinstance(value, tuple) and all(each in FAMILIES for each in value),
        f"a tuple of {', '.join(map(repr, FAMILIES))}",
    ),
}
"""A check of a record's field, and what it must be in words, by the field's annotation."""


@functools.cache
def read_plugin(kind: Kind, path: str) -> Info:
    """Return the record of the class at an import path, with what the class itself says filled in.

    A class without a record has the default one, with which every setting counts.

    Raises:
        UsageError: it cannot be imported, it is none of its kind, or its record is wrong.
    """
    found, wanted = load(path), INFOS[kind]
    fault = _class_fault(kind, found)
    record: Any = None if fault else vars(found).get("info", wanted())
    if not fault and not isinstance(record, wanted):
        fault = f"has info = {type(record).__name__}(...), and {_a(kind)} needs {wanted.__name__}"
    if fault := fault or next((f"declares {each}" for each in _faults(record, found)), ""):
        raise UsageError(f"Plug-in {path!r} {fault}.")
    filled: dict[str, Any] = {
        "path": path,
        "title": record.title or found.__name__,
        "summary": record.summary or (inspect.getdoc(found) or "").partition("\n")[0],
    }
    if isinstance(record, LossInfo):
        weight = 1.0 if found.family == "pointwise" else None
        filled |= {"family": found.family, "lambda_": record.lambda_ or weight}
    filled_record: Info = dataclasses.replace(record, **filled)
    return filled_record


def _class_fault(kind: Kind, found: Any) -> str:
    """Return what is wrong with a class, but for its record; empty if nothing is."""
    package, base, words = BASES[kind]
    need = f"; {_a(kind)} is {words}"
    if not inspect.isclass(found):
        return f"is not a class{need}"
    bases = found.__mro__
    is_kind = any(each.__name__ == base and each.__module__.startswith(package) for each in bases)
    if not is_kind or (kind == "loss" and getattr(found, "family", None) not in FAMILIES):
        return f"is no {kind.replace('_', ' ')}{need}"
    methods = {name: getattr(found, name, None) for name in dir(found)}
    missing = [name for name in methods if getattr(methods[name], "__isabstractmethod__", False)]
    if base == "Module" and not any("__call__" in vars(each) for each in bases):
        missing = ["__call__"]
    if missing:
        return f"has no {missing[0]!r}{need}"
    record = INFOS[kind].__name__
    if "info" in vars(found):
        return ""
    if old := OUTSIDE & vars(found).keys():
        return f"has {min(old)} outside its record; write info = {record}({min(old)}=..., ...)"
    for each in bases[1:]:
        if "info" in vars(each) and not each.__module__.startswith("ncfbench."):
            return (
                f"has no record, and its base class {each.__name__} has one; write info ="
                f" {each.__name__}.info if it reads no other settings, or else {record}(...)"
            )
    return ""


def _faults(record: Info, found: Any) -> Iterator[str]:
    """Yield what a record says wrongly, as the end of a sentence."""
    for field in dataclasses.fields(record):
        value, annotation = getattr(record, field.name), str(field.type)
        is_right, words = TYPES[annotation.removesuffix(" | None")]
        if not (is_right(value) or (value is None and annotation.endswith("None"))):
            yield f"{field.name} = {value!r}, which must be {words}"
    yield from _setting_faults(record)
    ancestors = {f"{each.__module__}:{each.__name__}" for each in found.__mro__}
    for base in (info for infos in BUILT_IN.values() for info in infos.values()):
        if base.path in ancestors:
            missing = [name for name in base.names if not record.reads(name, "user")]
            if missing:
                yield (
                    f"uses without {' and '.join(missing)}, which its base class"
                    f" {base.path.partition(':')[2]} reads: add it to uses"
                )
    if isinstance(record, SamplerInfo):
        if not record.families:
            yield "no families; add those that it serves: SamplerInfo(families=('pointwise',))"
        if {len(record.symbols), len(record.symbols_by_user)} != {len(NO_SYMBOLS)}:
            yield f"symbols, of which there must be {len(NO_SYMBOLS)}"
    if isinstance(record, LossInfo) and record.family not in (UNSAID, found.family):
        yield f"family = {record.family!r}, and its base class is {found.family}: leave it out"
    if isinstance(record, LossInfo) and record.lambda_ and found.family != "pointwise":
        yield "lambda_, which pointwise losses alone have"
    if isinstance(record, EncoderInfo | UserTowerInfo) and set(record.content) - CONTENT:
        yield f"content = {record.content!r}, of which only 'text' and 'features' are known"
    parts = isinstance(record, EncoderInfo) and record.pretrained_parts
    if parts and not record.reads("pretrained_learning_rate"):
        yield "pretrained_parts without their rate: add 'pretrained_learning_rate' to uses"


def _setting_faults(record: Info) -> Iterator[str]:
    """Yield what is wrong with the settings that a record names, and with its own."""
    known = SETTINGS | own_settings() | record.own
    if len(record.own) < len(record.settings):
        yield "two settings of one name"
    for name in record.own.keys() & SETTINGS.keys():
        yield f"a setting {name!r}, a name that is taken: rename it"
    by_user = record.uses_by_user if isinstance(record, SamplerInfo) else ()
    for name in (*record.names, *by_user):
        if name not in known:
            yield f"uses of {name!r}, which no setting is called{nearest(name, known)[:-1]}"
            continue
        setting = known[name]
        related = {*setting.needs, setting.multiple_of, *setting.only_with[:1]}
        if name in record.own:
            related.add(setting.default_from)
            if setting.default_from in BUILT_IN:
                yield f"{name!r} with the default of the {setting.default_from}, which has none"
            if setting.multiple_of in known and known[setting.multiple_of].type != "int":
                yield f"{name!r} as a multiple of {setting.multiple_of!r}, which is no whole number"
        for other in sorted(related - {"", *SETTINGS}):
            if not record.reads(other):
                yield f"uses of {name!r} without {other!r}, which it goes with: add it to uses"


def _a(kind: Kind) -> str:
    return f"{'an' if kind[0] in 'ei' else 'a'} {kind.replace('_', ' ')}"
