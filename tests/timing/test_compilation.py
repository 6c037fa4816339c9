"""The cache of compiled programs: across processes, and beside users' own settings of JAX."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import jax
import pytest
from support.training import figures, train

from ncfbench.timing import compile_cache
from ncfbench.timing.compile_cache import keep_compiled
from ncfbench.training.inference import compiled_once
from ncfbench.training.step import program_of

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
    monkeypatch.setenv(LEAST.upper(), "1000")
    for least in (1.0, 0):
        jax.config.update(FOLDER, None)
        folder = keep_compiled(pytest.fail)
        assert folder.parent == cache / "compiled"
        assert (jax.config.values[FOLDER], jax.config.values[LEAST]) == (str(folder), least)
        monkeypatch.delenv(LEAST.upper(), raising=False)


def test_the_cache_is_bounded(cache, monkeypatch):
    """Programs that were read or written longest ago go, and no more than must."""
    folder = keep_compiled(pytest.fail)
    for age in range(8):
        (folder / f"{age}-cache").write_bytes(b"0" * 100)
        os.utime(folder / f"{age}-cache", (1e9 - 10 * age, 1e9 - 10 * age))
    os.utime(folder / "7-cache", (2e9, 1e9))  # read since
    for most, left in ((800, "01234567"), (799, "01237"), (400, "017")):
        monkeypatch.setattr(compile_cache, "MOST_BYTES", most)
        jax.config.update(FOLDER, None)
        assert keep_compiled(pytest.fail) == folder
        assert sorted(path.name for path in folder.iterdir()) == [f"{age}-cache" for age in left]


def test_a_second_start_of_a_run_compiles_nothing(data_dir, tmp_path):
    """Its programs are read from the cache, all of them, in another folder of runs, and they are
    the same.
    """
    counts, curves = Counter(), []
    jax.monitoring.register_event_listener(lambda event, **_: counts.update([event]))
    for folder in ("first", "second"):
        jax.clear_caches()
        for kept in (program_of, compiled_once):
            kept.cache_clear()
        counts.clear()
        record = train(data_dir, tmp_path / folder, sampler="ns", epochs=1)
        curves.append(figures(record))
    assert counts["/jax/compilation_cache/cache_misses"] == 0
    assert counts["/jax/compilation_cache/cache_hits"] > 15
    assert curves[0] == curves[1]


def test_a_folder_that_cannot_be_written_is_reported(cache):
    cache.touch()
    said = []
    assert keep_compiled(said.append) is None
    assert "Compiled programs are not kept" in said[0]
    assert "Not a directory" in said[0]
    assert jax.config.values[FOLDER] is None
