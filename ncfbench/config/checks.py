"""Refuse settings that cannot work, alone or together, with what to use instead."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from ncfbench.catalog import (
    ENCODERS,
    LOSSES,
    SAMPLERS,
    SamplerInfo,
    find_encoder,
    find_loss,
    find_sampler,
    losses_for,
    samplers_for,
    serves,
)
from ncfbench.errors import UsageError, either, nearest

if TYPE_CHECKING:
    from ncfbench.config.run_config import RunConfig

NAMED_EXPONENTS = {"unigram": 1.0, "uniform": 0.0}


def check(config: RunConfig) -> None:
    """Refuse impossible settings.

    Raises:
        UsageError: a value is out of range, or a combination cannot work.
    """
    values = config.to_dict()
    for name, setting in config.settings.items():
        if values[name] is not None:
            setting.check(values[name])
        if setting.multiple_of and (rest := values[name] % (of := values[setting.multiple_of])):
            raise UsageError(
                f"{name} = {values[name]} is not a multiple of {setting.multiple_of} = {of}. Use"
                f" for example {setting.flag} {values[name] - rest + of}."
            )
    noise_exponent(config.noise)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", config.dataset):
        raise UsageError(
            f"dataset = {config.dataset[:80]!r} is not a data set's name: at most 64 letters,"
            " digits, dots and hyphens."
        )
    if config.word_vectors and not is_digest(config.word_vectors):
        raise UsageError(
            f"word_vectors = {config.word_vectors!r} is not the digest of word vectors. Give their"
            " file to ncfbench run --word-vectors FILE, which prints it."
        )
    checkpoint = values.get("checkpoint")
    if checkpoint and not is_digest(checkpoint):
        raise UsageError(
            f"checkpoint = {checkpoint!r} is not the digest of a checkpoint. Give its folder to"
            " ncfbench run --checkpoint FOLDER, which prints it."
        )
    tunable = {name for name, setting in config.settings.items() if setting.is_tunable}
    if config.tuned and not (
        re.fullmatch(r"[^:]+:\d+x\d+", config.tuned) and set(config.tuned_settings) <= tunable
    ):
        raise UsageError(
            f"tuned = {config.tuned!r} is not of the form learning_rate:8x10. It is set by ncfbench"
            " sweep --tune."
        )
    sampler = find_sampler(config.sampler)
    _check_coupling(config)
    _check_devices(config, sampler)
    _check_loss(config, sampler)
    _check_strata(config, sampler)
    _check_mined_items(config)


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


def _check_coupling(config: RunConfig) -> None:
    if config.coupling == "direct" or find_encoder(config.encoder).scores_cold_items:
        return
    able = [name for name in ENCODERS if find_encoder(name).scores_cold_items]
    raise UsageError(
        f"--coupling {config.coupling} pulls free item vectors towards g, and the vectors of"
        f" --encoder {config.encoder} are free themselves. Use --encoder {either(able)}, or"
        " --coupling direct."
    )


def _check_loss(config: RunConfig, sampler: SamplerInfo) -> None:
    loss = find_loss(config.loss)
    served = sampler.families_with(config.strata)
    if loss.family not in served:
        reason = {
            "pointwise": f"it serves {' and '.join(served)} losses only",
            "pairwise": "a pairwise loss compares two items of one user",
            "listwise": "a listwise loss compares items of one user",
        }[loss.family]
        if loss.family != "pointwise":
            reason += f", and {config.sampler} draws its negative links for other users"
        able = [
            name
            for name in samplers_for(loss.family)
            if serves(found := find_sampler(name), loss)
            and (found.shares_items or not config.shares_locally)
            and not (found.keeps_vectors and config.devices > 1)
        ]
        instead = f"--sampler {either(able)}"
        if config.strata != "user" and loss.family in sampler.families_with("user"):
            instead += " (or --strata user)"
        if losses := losses_for(sampler, config.strata):
            instead += f", or --loss {either(losses)}"
        raise UsageError(
            f"--sampler {config.sampler} cannot train --loss {config.loss}: {reason}. Use"
            f" {instead}."
        )
    if loss.includes_positive and not sampler.shares_items:
        sharing = [name for name in samplers_for(loss.family) if find_sampler(name).shares_items]
        raise UsageError(
            f"--loss {config.loss} weighs a positive link's item among those that the batch"
            f" shares, and {config.sampler} shares none. Use --sampler {either(sharing)}, or --loss"
            " softmax."
        )
    if config.gamma is not None and loss.gamma is None:
        owners = [name for name in LOSSES if find_loss(name).gamma is not None]
        raise UsageError(f"gamma belongs to --loss {either(owners)}; {config.loss} has none.")
    if config.lambda_ is not None and loss.lambda_ is None:
        owners = [name for name in LOSSES if find_loss(name).lambda_ is not None]
        raise UsageError(f"lambda belongs to --loss {either(owners)}; {config.loss} has none.")


def batch_unit(config: RunConfig, sampler: SamplerInfo) -> tuple[int, int]:
    """Return the number that a batch's links must be a multiple of, and the fewest of them."""
    s, n = _stratum_size(config, sampler), config.devices
    unit = s * n if config.shares_locally else math.lcm(s, n)
    least = sampler.least_strata * s * (n if config.shares_locally else 1)
    return unit, -(-least // unit) * unit


def _check_strata(config: RunConfig, sampler: SamplerInfo) -> None:
    b, s = config.batch_size, _stratum_size(config, sampler)
    unit, least = batch_unit(config, sampler)
    use = f"Use for example --batch-size {max(-(-b // unit) * unit, least)}."
    if b % s:
        raise UsageError(f"batch_size = {b} is not a multiple of stratum_size = {s}. {use}")
    if b < sampler.least_strata * s:
        raise UsageError(
            f"batch_size = {b}: the negatives of {config.sampler} are the batch's other items, and"
            f" there are none. Use --batch-size {least} or more."
        )
    n = config.devices
    if b % n:
        raise UsageError(f"batch_size = {b} is not a multiple of devices = {n}. {use}")
    if b % unit or b < least:
        raise UsageError(
            f"batch_size = {b} leaves {b // n} positive links for each of {n} devices; with --share"
            f" local these must be a multiple of {s}, {least // n} or more. {use}"
        )


def _check_devices(config: RunConfig, sampler: SamplerInfo) -> None:
    n = config.devices
    if sampler.keeps_vectors and n > 1:
        raise UsageError(
            f"--sampler {config.sampler} remembers item vectors, which lie on one device. Use"
            " --devices 1, or --sampler ns."
        )
    if not config.shares_locally:
        return
    if not sampler.shares_items:
        sharing = [name for name in SAMPLERS if find_sampler(name).shares_items]
        raise UsageError(
            f"--sampler {config.sampler} shares no negatives. Use --share global, or --sampler"
            f" {either(sharing)}."
        )
    if n == 1:
        unit, least = batch_unit(config, sampler)
        able = config.batch_size % (2 * unit) == 0 and config.batch_size >= 2 * least
        more = ", or --devices 2" if able else ""
        raise UsageError(
            f"On one device local and global sharing are the same. Use --share global{more}."
        )
    if sampler.uses_uniform_items and config.uniform_items % n:
        raise UsageError(
            f"uniform_items = {config.uniform_items} is not a multiple of devices = {n}, as --share"
            f" local needs it. Use for example --uniform-items {-(-config.uniform_items // n) * n}."
        )


def _check_mined_items(config: RunConfig) -> None:
    if not config.mines:
        for name in ("mine_every", "mine_skip"):
            if (value := config.objective_settings.get(name)) is not None:
                flag = config.settings[name].flag
                raise UsageError(
                    f"{flag} {value} belongs to mined negatives, and none are mined. Add for"
                    f" example --mined 200, or leave {flag} out."
                )
    elif config.devices > 1:
        raise UsageError(f"--mined {config.mined} scores all items on one device. Use --devices 1.")


def _stratum_size(config: RunConfig, sampler: SamplerInfo) -> int:
    return config.stratum_size if sampler.uses_strata else 1
