"""Profiles of moments, for what they hold and not for their times."""

from ncfbench.profiling import batches, measure


def shorten(patch):
    """Blocks of moments, and fewer sizes."""
    for name, number in (("BLOCK_SECONDS", 0.002), ("LOOP_SECONDS", 0.02)):
        patch.setattr(measure, name, number)
    patch.setattr(measure, "TRIED_SECONDS", 0.01)
    # A step is compiled for each size: only those of the samplers' batches.
    patch.setattr(batches, "SPACING", 1000.0)
