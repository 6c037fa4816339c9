"""Read the record of a plug-in, a class that carries it as ``info``, and refuse a wrong one."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

from ncfbench.catalog.infos import FAMILIES, INFOS, UNSAID, Info, LossInfo, SamplerInfo
from ncfbench.catalog.models import BUILT_IN, own_settings
from ncfbench.catalog.shared import SETTINGS
from ncfbench.errors import UsageError, nearest
from ncfbench.settings import Kind


@functools.cache
def read_plugin(kind: Kind, path: str) -> Info:
    """Return the record of the class at an import path, with what the class itself says filled in.

    A class without a record has the default one, with which every setting counts. What a built-in
    base class reads counts in any case.

    Raises:
        UsageError: it cannot be imported, it is none of its kind, or its record is wrong.
    """
    loaded = INFOS[kind](path=path).load()
    for fault in _faults(kind, loaded):
        raise UsageError(f"Plug-in {path!r} {fault}.")
    record: Info = vars(loaded).get("info", INFOS[kind]())
    filled: dict[str, Any] = {"path": path, "title": record.title or loaded.__name__}
    if record.uses is not None:
        parents = {f"{parent.__module__}:{parent.__name__}" for parent in loaded.__mro__[1:]}
        bases = [info for info in BUILT_IN[kind].values() if info.path in parents]
        names = [*record.uses, *(name for base in bases for name in base.names)]
        filled["uses"] = tuple(dict.fromkeys(names))
    if isinstance(record, LossInfo):
        weight = 1.0 if loaded.family == "pointwise" else None
        filled |= {"family": loaded.family, "lambda_": record.lambda_ or weight}
    return dataclasses.replace(record, **filled)


def _faults(kind: Kind, loaded: Any) -> Iterator[str]:
    """Yield what is wrong with a class or its record, as the end of a sentence."""
    wanted, title = INFOS[kind], f"{'an' if kind == 'encoder' else 'a'} {kind}"
    need = f"; {title} is {wanted.base_words}"
    if not isinstance(loaded, type):
        yield f"is not a class{need}"
    package, base = wanted.base
    bases = [parent for parent in loaded.__mro__[1:] if parent.__module__.startswith(package)]
    is_kind = base in {parent.__name__ for parent in bases}
    if not is_kind or (kind == "loss" and not hasattr(loaded, "family")):
        yield f"is no {kind}{need}"
    if missing := sorted(getattr(loaded, "__abstractmethods__", ())):
        yield f"has no {missing[0]!r}{need}"
    record = vars(loaded).get("info", wanted())
    if not isinstance(record, wanted):
        yield f"has info = {type(record).__name__}(...), and {title} needs {wanted.__name__}"
    known = SETTINGS | own_settings() | record.own
    for name in record.names:
        if name not in known:
            yield f"declares uses of {name!r}, no setting's name{nearest(name, known)[:-1]}"
    if isinstance(record, SamplerInfo) and not {*FAMILIES}.intersection(record.families):
        yield "declares no families; add those that it serves: SamplerInfo(families=('pointwise',))"
    if isinstance(record, SamplerInfo) and not {*record.by_user} <= {"families", "symbols"}:
        yield "declares by_user of other fields than families and symbols"
    if isinstance(record, LossInfo) and record.family not in (UNSAID, loaded.family):
        base_class = f"its base class is {loaded.family}"
        yield f"declares family = {record.family!r}, and {base_class}: leave it out"
