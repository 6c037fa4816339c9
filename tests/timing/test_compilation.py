"""The cache of compiled programs: across processes, and beside users' own settings of JAX."""

import os
import shlex
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
def count(event, **_):
    counts[event] = counts.get(event, 0) + 1
jax.monitoring.register_event_listener(count)
print(keep_compiled(lambda text: print(text, file=sys.stderr)))
jax.jit(lambda x: jnp.sin(x) @ x.T)(jnp.ones((3, 3))).block_until_ready()
print(*(counts.get(f"/jax/compilation_cache/cache_{kind}", 0) for kind in ("hits", "misses")))
"""


def compile_something(cache):
    """Folder, programs that were read from the cache, programs that were not, messages."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    environment = {**kept, "NCFBENCH_CACHE_DIR": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=environment, check=True
    )
    folder, counts = done.stdout.splitlines()
    hits, misses = map(int, counts.split())
    return folder, hits, misses, done.stderr


def test_a_second_process_compiles_nothing(tmp_path):
    folder, hits, misses, said = compile_something(tmp_path)
    assert Path(folder).parent == tmp_path / "compiled"
    assert hits == 0
    assert misses > 0
    assert said == ""
    assert compile_something(tmp_path) == (folder, misses, 0, "")


FOLDER = "jax_compilation_cache_dir"
ENABLED = "jax_enable_compilation_cache"
LEAST = "jax_persistent_cache_min_compile_time_secs"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """JAX as it starts, without a cache of compiled programs; restored afterwards."""
    before = {name: jax.config.values[name] for name in (FOLDER, ENABLED, LEAST)}
    monkeypatch.setenv("NCFBENCH_CACHE_DIR", str(tmp_path / "cache"))
    for name, value in ((FOLDER, None), (ENABLED, True), (LEAST, 1.0)):
        jax.config.update(name, value)
    yield tmp_path / "cache"
    for name, value in before.items():
        jax.config.update(name, value)


def test_the_users_own_settings_are_left_alone(cache, monkeypatch):
    """A cache that is switched off, a folder, and a shortest time; without them all is kept."""
    jax.config.update(ENABLED, False)
    assert keep_compiled(pytest.fail) is None
    jax.config.update(ENABLED, True)
    jax.config.update(FOLDER, "/own")
    assert keep_compiled(pytest.fail) is None
    assert jax.config.values[FOLDER] == "/own"
    assert not cache.exists()
    jax.config.update(FOLDER, None)
    monkeypatch.setenv(LEAST.upper(), "1000")
    assert keep_compiled(pytest.fail) is not None
    assert jax.config.values[LEAST] == 1.0
    jax.config.update(FOLDER, None)
    monkeypatch.delenv(LEAST.upper())
    folder = keep_compiled(pytest.fail)
    assert folder is not None
    assert folder.parent == cache / "compiled"
    assert jax.config.values[FOLDER] == str(folder)
    assert jax.config.values[LEAST] == 0


def test_a_folder_that_cannot_be_written_is_reported(cache):
    cache.touch()
    said: list[str] = []
    assert keep_compiled(said.append) is None
    assert "Compiled programs are not kept" in said[0]
    assert "Not a directory" in said[0]
    assert jax.config.values[FOLDER] is None


@pytest.mark.long
def test_a_run_with_the_cache_is_the_same_run(data_dir, tmp_path):
    words = shlex.split("run --dataset tiny --sampler ns --batch-size 128 --epochs 1 --quiet")
    curves = []
    for number in range(2):
        locations = ["--data-dir", str(data_dir), "--runs-dir", str(tmp_path / f"runs{number}")]
        variables = {"NCFBENCH_CACHE_DIR": str(tmp_path / "cache")}
        subprocess.run(
            [sys.executable, "-m", "ncfbench", *words, *locations],
            env={**os.environ, **variables},
            check=True,
        )
        (folder,) = (tmp_path / f"runs{number}").iterdir()
        curves.append([{**row, "train_seconds": None} for row in runs.read(folder).curve])
    assert list((tmp_path / "cache" / "compiled").rglob("*-cache"))
    assert curves[0] == curves[1]
