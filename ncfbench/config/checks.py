"""Refuse settings that cannot work, alone or together, with what to use instead."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from ncfbench.catalog import (
    ENCODERS,
    LOSSES,
    SAMPLERS,
    EncoderInfo,
    Info,
    LossInfo,
    SamplerInfo,
    losses_for,
    serves,
    settings_for,
)
from ncfbench.errors import UsageError, either, nearest
from ncfbench.settings import Setting

NAMED_EXPONENTS = {"unigram": 1.0, "uniform": 0.0}
Values = Mapping[str, Any]


def check(values: Values, infos: Mapping[str, Info]) -> None:
    """Refuse impossible settings.

    Args:
        values: of all settings that the run has.
        infos: the records of its sampler, loss, encoder and so on, by kind.

    Raises:
        UsageError: a value is out of range, or a combination cannot work.
    """
    sampler, loss, encoder = infos["sampler"], infos["loss"], infos["encoder"]
    assert isinstance(sampler, SamplerInfo)
    assert isinstance(loss, LossInfo)
    assert isinstance(encoder, EncoderInfo)
    settings = settings_for({info.kind: values[info.kind] for info in infos.values()})
    for name, setting in settings.items():
        if values[name] is not None:
            setting.check(values[name])
        _check_related(setting, settings, values)
    _check_texts(values, settings)
    _check_coupling(values, encoder)
    _check_devices(values, sampler)
    _check_loss(values, sampler, loss)
    _check_batch(values, sampler)


def is_digest(text: str) -> bool:
    """Return whether a text has the form of the digest that names a file kept with the data."""
    return re.fullmatch(r"[0-9a-f]{12}", text) is not None


def noise_exponent(noise: str) -> float:
    """Return the exponent of the item degree that a noise distribution's name stands for.

    Raises:
        UsageError: it is no such name.
    """
    if noise in NAMED_EXPONENTS:
        return NAMED_EXPONENTS[noise]
    try:
        exponent = float(noise)
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
    return names.get(exponent, f"{exponent:g}")


def _check_related(setting: Setting, settings: Mapping[str, Setting], values: Values) -> None:
    name, value = setting.name, values[setting.name]
    if setting.multiple_of and (rest := value % (of := values[setting.multiple_of])):
        raise UsageError(
            f"{name} = {value} is not a multiple of {setting.multiple_of} = {of}. Use for"
            f" example {setting.flag} {value - rest + of}."
        )
    for other in map(settings.__getitem__, setting.needs):
        if other.zero_word == "off" and not values[other.name] and value != setting.default:
            raise UsageError(
                f"{setting.flag} {value} needs {other.flag}, which is off. Use {setting.flag}"
                f" {setting.default}."
            )


def _check_texts(values: Values, settings: Mapping[str, Setting]) -> None:
    noise_exponent(values["noise"])
    dataset, tuned = values["dataset"], values["tuned"]
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", dataset):
        raise UsageError(
            f"dataset = {dataset[:80]!r} is not a data set's name: at most 64 letters, digits, dots"
            " and hyphens."
        )
    for name, what, given in (
        ("word_vectors", "word vectors", "their file to ncfbench run --word-vectors FILE"),
        ("checkpoint", "a checkpoint", "its folder to ncfbench run --checkpoint FOLDER"),
    ):
        value = values.get(name)
        if value and not is_digest(value):
            raise UsageError(
                f"{name} = {value!r} is not the digest of {what}. Give {given}, which prints it."
            )
    tunable = {name for name, setting in settings.items() if setting.is_tunable}
    if tuned and not (
        re.fullmatch(r"[^:]+:\d+x\d+", tuned) and set(tuned.partition(":")[0].split("+")) <= tunable
    ):
        raise UsageError(
            f"tuned = {tuned!r} is not of the form learning_rate:8x10. It is set by ncfbench sweep"
            " --tune."
        )


def _check_coupling(values: Values, encoder: EncoderInfo) -> None:
    if values["coupling"] == "direct" or encoder.scores_cold_items:
        return
    able = [name for name, info in ENCODERS.items() if info.scores_cold_items]
    raise UsageError(
        f"--coupling {values['coupling']} pulls free item vectors towards g, and the vectors of"
        f" --encoder {values['encoder']} are free themselves. Use --encoder {either(able)}, or"
        " --coupling direct."
    )


def _check_loss(values: Values, sampler: SamplerInfo, loss: LossInfo) -> None:
    served = sampler.families_with(values["strata"])
    able = [
        name
        for name, info in SAMPLERS.items()
        if serves(info, loss)
        and (info.shares_items or values["share"] != "local")
        and not (info.keeps_vectors and values["devices"] > 1)
    ]
    refused = f"--sampler {values['sampler']} cannot train --loss {values['loss']}"
    if loss.family not in served:
        reason = f"it serves {' and '.join(served)} losses only"
        if loss.family != "pointwise":
            reason = (
                f"a {loss.family} loss compares items of one user, and {values['sampler']} draws"
                " its negative links for other users"
            )
        instead = f"--sampler {either(able)}"
        if values["strata"] != "user" and loss.family in sampler.families_with("user"):
            instead += " (or --strata user)"
        if losses := losses_for(sampler, values["strata"]):
            instead += f", or --loss {either(losses)}"
        raise UsageError(f"{refused}: {reason}. Use {instead}.")
    if loss.includes_positive and not sampler.shares_items:
        raise UsageError(
            f"--loss {values['loss']} weighs a positive link's item among those that the batch"
            f" shares, and {values['sampler']} shares none. Use --sampler {either(able)}, or --loss"
            " softmax."
        )
    for field in ("gamma", "lambda_"):
        name = field.rstrip("_")
        if values[name] is not None and getattr(loss, field) is None:
            owners = [each for each in LOSSES if getattr(LOSSES[each], field) is not None]
            raise UsageError(
                f"{name} belongs to --loss {either(owners)}; {values['loss']} has none."
            )


def batch_unit(values: Values, sampler: SamplerInfo) -> tuple[int, int]:
    """Return the number that a batch's links must be a multiple of, and the fewest of them."""
    s, n = values["stratum_size"] if sampler.reads("stratum_size") else 1, values["devices"]
    is_local = values["share"] == "local"
    unit = s * n if is_local else math.lcm(s, n)
    least = sampler.least_strata * s * (n if is_local else 1)
    return unit, -(-least // unit) * unit


def _check_batch(values: Values, sampler: SamplerInfo) -> None:
    b, n = values["batch_size"], values["devices"]
    s = values["stratum_size"] if sampler.reads("stratum_size") else 1
    unit, least = batch_unit(values, sampler)
    faults = {
        f" is not a multiple of stratum_size = {s}": b % s,
        f": the negatives of {values['sampler']} are the batch's other items, and there are none": (
            b < sampler.least_strata * s
        ),
        f" is not a multiple of devices = {n}": b % n,
        f" leaves {b // n} positive links for each of {n} devices; with --share local these must be"
        f" a multiple of {s}, {least // n} or more": b % unit or b < least,
    }
    if words := next((words for words, is_wrong in faults.items() if is_wrong), ""):
        instead = max(-(-b // unit) * unit, least)
        raise UsageError(f"batch_size = {b}{words}. Use for example --batch-size {instead}.")


def _check_devices(values: Values, sampler: SamplerInfo) -> None:
    n, k = values["devices"], values["uniform_items"]
    whole = f"--mined {values['mined']} scores all items" if values.get("mined") else ""
    if sampler.keeps_vectors:
        whole = f"--sampler {values['sampler']} remembers item vectors"
    if whole and n > 1:
        raise UsageError(f"{whole} on one device. Use --devices 1.")
    if values["share"] != "local":
        return
    if not sampler.shares_items:
        sharing = [name for name, info in SAMPLERS.items() if info.shares_items]
        raise UsageError(
            f"--sampler {values['sampler']} shares no negatives. Use --share global, or --sampler"
            f" {either(sharing)}."
        )
    if n == 1:
        unit, least = batch_unit(values, sampler)
        b = values["batch_size"]
        more = ", or --devices 2" if b % (2 * unit) == 0 and b >= 2 * least else ""
        raise UsageError(
            f"On one device local and global sharing are the same. Use --share global{more}."
        )
    if sampler.reads("uniform_items") and k % n:
        raise UsageError(
            f"uniform_items = {k} is not a multiple of devices = {n}, as --share local needs it."
            f" Use for example --uniform-items {-(-k // n) * n}."
        )
