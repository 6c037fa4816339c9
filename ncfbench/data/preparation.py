"""The command line that makes a data set again, from what its manifest says."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

SOURCES = ("citeulike", "citeulike-t", "mind", "custom", "synthetic")
"""What ``ncfbench prepare`` can be followed by."""


def preparation(name: str, manifest: Mapping[str, Any]) -> str:
    """The command line that prepares such a data set again; FOLDER stands for files that are not
    downloaded.
    """
    source = str(manifest.get("source", name))
    words = ["ncfbench", "prepare", source] + ([] if name == source else ["--name", name])
    for key, value in manifest["options"].items():
        flag = key.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        elif value not in (None, []):
            words += [f"--{flag}", ",".join(value) if isinstance(value, list) else str(value)]
    if "arguments" in manifest:  # files of the user's own
        return shlex.join([*words, *manifest["arguments"]])
    verified = [file.get("verified") for file in manifest.get("files", {}).values()]
    if not all(verified):
        words += ["--from", "FOLDER"]
    if (
        False in verified
    ):  # None: nothing was published to verify a file by, so that there is nothing to allow
        words.append("--allow-unverified")
    return shlex.join(words)
