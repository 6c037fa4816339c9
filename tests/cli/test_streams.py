"""Output that cannot be written, and terminals of unknown size."""

import os
import subprocess
import sys

import pytest
from support.records import write_run
from typer.testing import CliRunner

from ncfbench.cli import app
from ncfbench.cli.failures import report_system_error

COMMANDS = {
    "by Rich": ["describe", "tiny"],
    "by Typer": ["report", "--help"],
    "by Click": ["--version"],
    "as JSON": ["describe", "tiny", "--json"],
}


def shell(data_dir, words, redirected):
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
        # Without Python's buffers what remains of a cut write is lost, and no error says so.
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
    )


@pytest.mark.long_cases("by Typer|by Click")
@pytest.mark.parametrize("how", COMMANDS)
def test_output_to_a_full_disk_gets_a_sentence(data_dir, how):
    done = shell(data_dir, COMMANDS[how], "> /dev/full")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "Error: Cannot write the output: No space left on device.\n"


@pytest.mark.long_cases("(by Typer|as JSON|by Click).*true|(by Typer|by Click).*head")
@pytest.mark.parametrize("reader", ["2>&1 | exec true", "| exec true", "| head -c 9 > /dev/null"])
@pytest.mark.parametrize("how", COMMANDS)
def test_a_closed_pipe_ends_in_silence(data_dir, how, reader):
    """A reader that takes some of it may have taken all, which is no closed pipe."""
    done = shell(data_dir, COMMANDS[how], reader)
    assert (done.stdout, done.stderr) == ("", "")
    assert done.returncode in ([141, 0] if "head" in reader else [141])


def test_a_table_that_is_longer_than_a_pipe(tmp_path):
    """The program meets the closed pipe while it writes, in Rich's text, in JSON and in a file."""
    for number in range(40):
        write_run(tmp_path, "ns", [9, 5, 3], 10, [0, 0.2, 0.3], seed=number, dimension=number + 1)
    for more, reader in (
        (["--full"], "head -c 99 > /dev/null"),
        (["--json"], "head -c 99 > /dev/null"),
        (["--full", "--format", "csv", "-o", "/dev/stdout"], "true"),
    ):
        done = shell(tmp_path, ["report", str(tmp_path), *more], f"| exec {reader}")
        assert (done.returncode, done.stdout, done.stderr) == (141, "", ""), more


def test_a_pipe_that_is_not_the_output_gets_a_sentence(capsys):
    """Such as that of a process which the program feeds: the output itself has its reader."""
    code = report_system_error(BrokenPipeError(32, "Broken pipe"))
    assert code == 3
    assert "Cannot write the output: Broken pipe." in capsys.readouterr().err


@pytest.mark.long_cases("2>&-")
@pytest.mark.parametrize("redirected", ["2>&-", "<&- 2> /dev/full"])
def test_results_need_no_standard_error(data_dir, redirected):
    done = shell(data_dir, COMMANDS["as JSON"], redirected)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("{")


def test_an_error_ends_without_standard_error(tmp_path):
    done = shell(tmp_path, COMMANDS["as JSON"], "2> /dev/full >&-")
    assert (done.returncode, done.stdout, done.stderr) == (3, "", "")


def test_a_size_that_is_none_is_unknown(data_dir):
    described = ["describe", "tiny", "--data-dir", str(data_dir)]
    for words in (described, ["report", "--help"], ["report", "--table"]):
        unknown = CliRunner().invoke(app, words, env={"COLUMNS": None, "LINES": None}).output
        assert unknown
        for size in ("0", "00", "-1", "wide", "²", "", "9" * 20):
            sizes = {"COLUMNS": size, "LINES": size}
            assert CliRunner().invoke(app, words, env=sizes).output == unknown, size
