"""Profiles of moments, for what they hold and not for their times."""

from ncfbench.profiling import calibration, rounds


def shorten(patch):
    """Blocks of moments, and fewer sizes."""
    for name, number in (("BLOCK_SECONDS", 0.002), ("LOOP_SECONDS", 0.02)):
        patch.setattr(rounds, name, number)
    patch.setattr(rounds, "TRIED_SECONDS", 0.01)
    # A step is compiled for each size: only those of the samplers' batches.
    patch.setattr(calibration, "SPACING", 1000.0)
