"""Refuse settings that cannot work, alone or together, with what to use instead."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ncfbench.catalog import ENCODERS, LOSSES, SAMPLERS, LossInfo, SamplerInfo, losses_for, serves
from ncfbench.errors import UsageError, either, nearest
from ncfbench.settings import Kind, Setting

NAMED_EXPONENTS = {"unigram": 1.0, "uniform": 0.0}
MOST_DECAY = 0.05
Values = Mapping[str, Any]


def check(values: Values, settings: Mapping[str, Setting], infos: Mapping[Kind, Any]) -> None:
    """Refuse values of a run's settings that cannot work with each other or with its choices.

    Raises:
        UsageError: a value is out of range, or a combination cannot work.
    """
    for name, setting in settings.items():
        if values[name] is not None:
            setting.check(values[name])
    noise_exponent(values["noise"])
    for fault in _faults(values, infos):
        raise UsageError(fault)


def is_digest(text: str) -> bool:
    """Return whether a text has the form of the digest that names a file kept with the data."""
    return re.fullmatch(r"[0-9a-f]{12}", text) is not None


def noise_exponent(noise: str) -> float:
    """Return the exponent of the item degree that a noise distribution's name stands for.

    Raises:
        UsageError: it is no such name.
    """
    try:
        exponent = NAMED_EXPONENTS[noise] if noise in NAMED_EXPONENTS else float(noise)
    except ValueError:
        raise UsageError(
            f"Unknown noise {noise!r}{nearest(noise, NAMED_EXPONENTS)} Valid: unigram, uniform, or"
            " an exponent such as 0.75."
        ) from None
    if not math.isfinite(exponent) or abs(exponent) > 8:
        raise UsageError(f"noise = {noise}: the exponent must be a finite number between -8 and 8.")
    return exponent


def canonical_noise(noise: str) -> str:
    """Return the one spelling of a distribution: ``1.0`` is unigram, ``0`` uniform."""
    exponent = noise_exponent(noise)
    names = {value: name for name, value in NAMED_EXPONENTS.items()}
    return names.get(exponent, repr(exponent).removesuffix(".0"))


def batch_unit(values: Values, sampler: SamplerInfo) -> tuple[int, int]:
    """Return the number that a batch's links must be a multiple of, and the fewest of them."""
    s = _stratum_size(values, sampler)
    unit = math.lcm(s, values["devices"])
    return unit, -(-sampler.least_strata * s // unit) * unit


def _stratum_size(values: Values, sampler: SamplerInfo) -> int:
    return int(values["stratum_size"]) if sampler.reads("stratum_size") else 1


def _faults(values: Values, infos: Mapping[Kind, Any]) -> Iterator[str]:
    """Yield what cannot work together, each as a sentence."""
    dataset, decay, rate = (values[name] for name in ("dataset", "weight_decay", "learning_rate"))
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", dataset):
        yield (
            f"dataset = {dataset[:80]!r} is not a data set's name: at most 64 letters, digits, dots"
            " and hyphens."
        )
    if values["coupling"] != "direct" and not infos["encoder"].scores_cold_items:
        able = either(name for name, info in ENCODERS.items() if info.scores_cold_items)
        yield (
            f"coupling = {values['coupling']} pulls free item vectors towards g, and the vectors of"
            f" --encoder {values['encoder']} are free themselves. Use --encoder {able}, or"
            " --set coupling=direct."
        )
    if decay * rate > MOST_DECAY:
        yield (
            f"weight_decay = {decay:g} times learning_rate = {rate:g} takes more than"
            f" {MOST_DECAY:.0%} of all weights away in each iteration. Use a weight_decay"
            f" of {0.01 / rate:.2g} or less."
        )
    yield from _loss_faults(values, infos["sampler"], infos["loss"])
    yield from _batch_faults(values, infos["sampler"])
    yield from filter(None, (info.fault(values) for info in infos.values() if info.fault))


def _loss_faults(values: Values, sampler: SamplerInfo, loss: LossInfo) -> Iterator[str]:
    able = either(name for name, info in SAMPLERS.items() if serves(info, loss))
    if loss.family not in sampler.families:
        reason = f"it serves {' and '.join(sampler.families)} losses only"
        if loss.family != "pointwise":
            reason = (
                f"a {loss.family} loss compares items of one user, and {values['sampler']} draws"
                " its negative links for other users"
            )
        has_other_strata = loss.family in sampler.with_strata("user").families
        by_user = " (or --set strata=user)" if has_other_strata else ""
        yield (
            f"--sampler {values['sampler']} cannot train --loss {values['loss']}: {reason}. Use"
            f" --sampler {able}{by_user}, or --loss {either(losses_for(sampler))}."
        )
    if loss.includes_positive and not sampler.shares_items:
        yield (
            f"--loss {values['loss']} weighs a positive link's item among those that the batch"
            f" shares, and {values['sampler']} shares none. Use --sampler {able}, or --loss"
            " softmax."
        )
    for name in ("gamma", "lambda"):
        if values[name] is not None and not loss.reads(name):
            users = either(user for user, info in LOSSES.items() if info.reads(name))
            yield f"{name} belongs to --loss {users}; {values['loss']} has none."


def _batch_faults(values: Values, sampler: SamplerInfo) -> Iterator[str]:
    b, n, s = values["batch_size"], values["devices"], _stratum_size(values, sampler)
    unit, least = batch_unit(values, sampler)
    use = f"Use for example --batch-size {max(-(-b // unit) * unit, least)}."
    if b % s:
        yield f"batch_size = {b} is not a multiple of stratum_size = {s}. {use}"
    if b < sampler.least_strata * s:
        yield (
            f"batch_size = {b}: the negatives of {values['sampler']} are the batch's other items,"
            f" and there are none. {use}"
        )
    if b % n:
        yield f"batch_size = {b} is not a multiple of devices = {n}. {use}"
