"""Where data comes from (one module for each source), how text becomes tokens, and how a prepared
data set is stored.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ncfbench.data.store import Dataset, load, read_manifest

__all__ = ["Dataset", "open_dataset"]


def open_dataset(data_dir: Path, name: str, say: Callable[[str], None]) -> Dataset:
    """Load a prepared data set; ``synthetic`` is made first if it is not there.

    Raises:
        DataError: it is not prepared; the message names the command that would.
    """
    if name == "synthetic" and read_manifest(data_dir, name) is None:
        from ncfbench.data.sources import synthetic

        say(
            f"Making the synthetic data set in {data_dir / name} (sizes: ncfbench prepare synthetic"
            " --help)."
        )
        synthetic.prepare(data_dir, name, synthetic.Options(), say=say)
    return load(data_dir, name)
