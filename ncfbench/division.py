"""Whether a batch can be cut into as many parts as there are devices."""

from __future__ import annotations

from ncfbench.errors import UsageError
from ncfbench.registry import find_sampler, nearest

SHARES = ("global", "local")
"""Whose items are negatives where a batch is spread over devices: all, or each device's own."""


def check(
    sampler: str,
    *,
    batch_size: int,
    stratum_size: int,
    uniform_items: int,
    devices: int,
    share: str,
) -> None:
    """Refuse what cannot be cut, with what to use instead.

    Raises:
        UsageError: the batch, its strata or its uniform items cannot be divided, or the sampler
            shares nothing.
    """
    entry, b, n = find_sampler(sampler), batch_size, devices
    if share not in SHARES:
        raise UsageError(f"share = {share!r}{nearest(share, SHARES)} Valid: {', '.join(SHARES)}.")
    if b % n:
        raise UsageError(
            f"batch_size = {b} is not a multiple of devices = {n}. Use for example --batch-size"
            f" {-(-b // n) * n}."
        )
    if share == "global":
        return
    if not entry.shares_items:
        raise UsageError(
            f"--sampler {sampler} shares no negatives. Use --share global, or --sampler ns or"
            " strat-ns."
        )
    if n == 1:
        raise UsageError(
            "On one device local and global sharing are the same. Use --share global, or --devices"
            " 2 or more."
        )
    s = stratum_size if entry.uses_strata else 1
    least = 1 if entry.uses_uniform_items else 2 * s
    if b // n % s or b // n < least:
        raise UsageError(
            f"batch_size = {b} leaves {b // n} positive links for each of {n} devices; with --share"
            f" local these must be a multiple of {s}, {least} or more. Use for example --batch-size"
            f" {max(-(-b // n // s) * s, least) * n}."
        )
    if entry.uses_uniform_items and uniform_items % n:
        raise UsageError(
            f"uniform_items = {uniform_items} is not a multiple of devices = {n}, as --share local"
            f" needs it. Use for example --uniform-items {-(-uniform_items // n) * n}."
        )
