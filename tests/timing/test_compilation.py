"""The cache of compiled programs, each case in a fresh interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from ncfbench.runs import folder as runs
from ncfbench.timing.compile_cache import keep_compiled

SCRIPT = """
import sys
import jax, jax.numpy as jnp
from ncfbench.timing.compile_cache import keep_compiled
counts = {}
jax.monitoring.register_event_listener(lambda event, **_: counts.update({event: counts.get(event, 0) + 1}))
print(keep_compiled(lambda text: print(text, file=sys.stderr)))
jax.jit(lambda x: jnp.sin(x) @ x.T)(jnp.ones((3, 3))).block_until_ready()
print(counts.get("/jax/compilation_cache/cache_hits", 0), counts.get("/jax/compilation_cache/cache_misses", 0))
"""


def compile_something(cache: Path, **variables: str) -> tuple[str, int, int, str]:
    """Folder, programs that were read from the cache, programs that were not, messages."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    environment = {**kept, "NCFBENCH_CACHE_DIR": str(cache), **variables}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=environment, check=True
    )
    folder, counts = done.stdout.splitlines()
    hits, misses = map(int, counts.split())
    return folder, hits, misses, done.stderr


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    folder, hits, misses, said = compile_something(tmp_path)
    assert Path(folder).parent == tmp_path / "compiled"
    assert hits == 0
    assert misses > 0
    assert said == ""
    assert compile_something(tmp_path) == (folder, misses, 0, "")


def test_jax_switches_it_off(tmp_path: Path) -> None:
    assert compile_something(tmp_path, JAX_ENABLE_COMPILATION_CACHE="0") == ("None", 0, 0, "")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_the_users_own_is_left_alone(tmp_path: Path) -> None:
    own = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "own"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    folder, _, misses, _ = compile_something(tmp_path / "ours", **own)
    assert folder == "None"
    assert misses > 0
    assert [path.name for path in tmp_path.iterdir()] == ["own"]
    before = jax.config.values["jax_compilation_cache_dir"]
    assert keep_compiled(pytest.fail) is None
    assert jax.config.values["jax_compilation_cache_dir"] == before


def test_the_users_own_shortest_time_is_left_alone(tmp_path: Path) -> None:
    compile_something(tmp_path, JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="1000")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_folder_that_cannot_be_written_is_said_and_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    folder, hits, misses, said = compile_something(tmp_path / "file")
    assert (folder, hits, misses) == ("None", 0, 0)
    assert "Compiled programs are not kept" in said
    assert "Not a directory" in said


@pytest.mark.long
def test_a_run_with_the_cache_is_the_same_run(data_dir: Path, tmp_path: Path) -> None:
    words = [
        "run",
        "--dataset",
        "tiny",
        "--sampler",
        "ns",
        "--batch-size",
        "128",
        "--epochs",
        "1",
        "--quiet",
    ]
    curves = []
    for number in range(2):
        places = ["--data-dir", str(data_dir), "--runs-dir", str(tmp_path / f"runs{number}")]
        variables = {"NCFBENCH_CACHE_DIR": str(tmp_path / "cache")}
        subprocess.run(
            [sys.executable, "-m", "ncfbench", *words, *places],
            env={**os.environ, **variables},
            check=True,
        )
        (folder,) = (tmp_path / f"runs{number}").iterdir()
        curves.append([{**row, "train_seconds": None} for row in runs.read(folder).curve])
    assert list((tmp_path / "cache" / "compiled").rglob("*-cache"))
    assert curves[0] == curves[1]
