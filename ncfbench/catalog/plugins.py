"""Read the record of a plug-in, a class that carries it as ``info``, and refuse a wrong one."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
from collections.abc import Iterator
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from ncfbench.catalog.infos import (
    FAMILIES,
    INFOS,
    NO_SYMBOLS,
    UNSAID,
    EncoderInfo,
    Info,
    LossInfo,
    SamplerInfo,
)
from ncfbench.catalog.models import BUILT_IN, own_settings
from ncfbench.catalog.shared import SETTINGS
from ncfbench.errors import UsageError, nearest
from ncfbench.settings import Kind

CONTENT = ("text", "features")
OUTSIDE = {"uses", "settings", "families", "content", "item_tables", "word_tables"}
"""Fields of records that a class must not have beside its record."""


@functools.cache
def read_plugin(kind: Kind, path: str) -> Info:
    """Return the record of the class at an import path, with what the class itself says filled in.

    A class without a record has the default one, with which every setting counts.

    Raises:
        UsageError: it cannot be imported, it is none of its kind, or its record is wrong.
    """
    loaded = INFOS[kind](path=path).load()
    for fault in _faults(kind, loaded):
        raise UsageError(f"Plug-in {path!r} {fault}.")
    record: Info = vars(loaded).get("info", INFOS[kind]())
    filled: dict[str, Any] = {"path": path, "title": record.title or loaded.__name__}
    if isinstance(record, LossInfo):
        weight = 1.0 if loaded.family == "pointwise" else None
        filled |= {"family": loaded.family, "lambda_": record.lambda_ or weight}
    return dataclasses.replace(record, **filled)


def _faults(kind: Kind, loaded: Any) -> Iterator[str]:
    """Yield what is wrong with a class or its record, as the end of a sentence."""
    yield from _class_faults(kind, loaded)
    record, wanted = vars(loaded).get("info", INFOS[kind]()), INFOS[kind]
    if not isinstance(record, wanted):
        yield f"has info = {type(record).__name__}(...), and {_a(kind)} needs {wanted.__name__}"
    for strata in ("item", "user"):
        for fault in _record_faults(record.with_strata(strata), loaded):
            yield f"declares {fault}"


def _class_faults(kind: Kind, loaded: Any) -> Iterator[str]:
    package, base = INFOS[kind].base
    need = f"; {_a(kind)} is {INFOS[kind].base_words}"
    if not inspect.isclass(loaded):
        yield f"is not a class{need}"
    ancestors = loaded.__mro__
    is_kind = any(a.__name__ == base and a.__module__.startswith(package) for a in ancestors)
    if not is_kind or (kind == "loss" and getattr(loaded, "family", None) not in FAMILIES):
        yield f"is no {kind.replace('_', ' ')}{need}"
    for name in dir(loaded):
        if getattr(getattr(loaded, name, None), "__isabstractmethod__", False):
            yield f"has no {name!r}{need}"
    if base == "Module" and not any("__call__" in vars(ancestor) for ancestor in ancestors):
        yield f"has no '__call__'{need}"
    if "info" in vars(loaded):
        return
    record = INFOS[kind].__name__
    for name in sorted(OUTSIDE & vars(loaded).keys()):
        yield f"has {name} outside its record; write info = {record}({name}=..., ...)"
    for ancestor in ancestors[1:]:
        if "info" in vars(ancestor) and not ancestor.__module__.startswith("ncfbench."):
            yield (
                f"has no record, and its base class {ancestor.__name__} has one; write info ="
                f" {ancestor.__name__}.info if it reads no other settings, or else {record}(...)"
            )


def _record_faults(record: Info, loaded: Any) -> Iterator[str]:
    hints = get_type_hints(type(record))
    for field in dataclasses.fields(record):
        value, hint = getattr(record, field.name), hints[field.name]
        if value != field.default and not _has_type(value, hint):
            words = inspect.formatannotation(hint).replace("typing.", "")
            words += " above 0" if words.startswith(("int", "float")) else ""
            yield f"{field.name} = {value!r}, which must be {words}"
    yield from _setting_faults(record)
    ancestors = {f"{ancestor.__module__}:{ancestor.__name__}" for ancestor in loaded.__mro__}
    for base in (info for infos in BUILT_IN.values() for info in infos.values()):
        unread = [name for name in base.names if not record.reads(name)]
        if base.path in ancestors and unread:
            name = base.path.partition(":")[2]
            yield (
                f"uses without {' and '.join(unread)}, which its base class {name} reads: add it to"
                " uses"
            )
    if isinstance(record, SamplerInfo):
        if not record.by_user.keys() <= {"families", "uses", "symbols"}:
            yield f"by_user = {record.by_user}, which may have families, uses and symbols"
        if not record.families:
            yield "no families; add those that it serves: SamplerInfo(families=('pointwise',))"
        if len(record.symbols) != len(NO_SYMBOLS):
            yield f"symbols, of which there must be {len(NO_SYMBOLS)}"
    if isinstance(record, LossInfo):
        if record.family not in (UNSAID, loaded.family):
            yield f"family = {record.family!r}, and its base class is {loaded.family}: leave it out"
        if record.lambda_ and loaded.family != "pointwise":
            yield "lambda_, which pointwise losses alone have"
    if isinstance(record, EncoderInfo):
        if {*record.content} - {*CONTENT}:
            known = " and ".join(map(repr, CONTENT))
            yield f"content = {record.content!r}, of which only {known} are known"
        if record.pretrained_parts and not record.reads("pretrained_learning_rate"):
            yield "pretrained_parts without their rate: add 'pretrained_learning_rate' to uses"


def _has_type(value: Any, hint: Any) -> bool:
    """Return whether a field of a record has its type, with numbers above 0."""
    arguments = get_args(hint)
    if get_origin(hint) is UnionType:
        return any(_has_type(value, argument) for argument in arguments)
    if get_origin(hint) is Literal:
        return value in arguments
    if get_origin(hint) is tuple:
        return isinstance(value, tuple) and all(_has_type(item, arguments[0]) for item in value)
    if hint in (int, float):
        return type(value) in (int, hint) and 0 < value < math.inf
    return isinstance(value, get_origin(hint) or hint)


def _setting_faults(record: Info) -> Iterator[str]:
    """Yield what is wrong with the settings that a record names, and with its own."""
    known = SETTINGS | own_settings() | record.own
    if len(record.own) < len(record.settings):
        yield "two settings of one name"
    for name in record.names:
        if name not in known:
            yield f"uses of {name!r}, which no setting is called{nearest(name, known)[:-1]}"
            continue
        setting = known[name]
        related = {setting.multiple_of, *setting.only_with[:1]}
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
