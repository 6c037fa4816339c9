"""Output that cannot be written, and terminals of unknown size."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ncfbench.cli import app

COMMANDS = {
    "by Rich": ["describe", "tiny"],
    "by Typer": ["report", "--help"],
    "by Click": ["--version"],
    "as JSON": ["describe", "tiny", "--json"],
}


def shell(data_dir: Path, words: list[str], redirected: str) -> subprocess.CompletedProcess[str]:
    """Run the program in a shell, which redirects its output."""
    located = [*words, "--data-dir", str(data_dir)] if "tiny" in words else words
    return subprocess.run(
        [
            *("bash", "-c", f'set -o pipefail; "$@" {redirected}', "bash"),
            *(sys.executable, "-m", "ncfbench", *located),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.mark.long_cases("by Typer|by Click")
@pytest.mark.parametrize("how", COMMANDS)
def test_output_to_a_full_disk_gets_a_sentence(data_dir: Path, how: str) -> None:
    done = shell(data_dir, COMMANDS[how], "> /dev/full")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "Error: Cannot write the output: No space left on device.\n"


@pytest.mark.long_cases("by Typer|as JSON|by Click")
@pytest.mark.parametrize("how", COMMANDS)
def test_a_closed_pipe_gets_a_sentence(data_dir: Path, how: str) -> None:
    done = shell(data_dir, COMMANDS[how], "| exec true")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "Error: Cannot write the output: Broken pipe.\n"


@pytest.mark.long_cases("2>&-")
@pytest.mark.parametrize("redirected", ["2>&-", "<&- 2> /dev/full"])
def test_results_need_no_standard_error(data_dir: Path, redirected: str) -> None:
    done = shell(data_dir, COMMANDS["as JSON"], redirected)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("{")


def test_an_error_ends_without_standard_error(tmp_path: Path) -> None:
    done = shell(tmp_path, COMMANDS["as JSON"], "2> /dev/full >&-")
    assert (done.returncode, done.stdout, done.stderr) == (3, "", "")


def test_a_size_that_is_none_is_unknown(data_dir: Path) -> None:
    described = ["describe", "tiny", "--data-dir", str(data_dir)]
    for words in (described, ["report", "--help"], ["report", "--figure"]):
        unknown = CliRunner().invoke(app, words, env={"COLUMNS": None, "LINES": None}).output
        assert unknown
        for size in ("0", "00", "-1", "wide", "²", "", "9" * 20):
            sizes = {"COLUMNS": size, "LINES": size}
            assert CliRunner().invoke(app, words, env=sizes).output == unknown, size
