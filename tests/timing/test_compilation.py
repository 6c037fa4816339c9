"""The cache of compiled programs: for a second start, and beside users' own settings of JAX."""

import os
from collections import Counter

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.compilation_cache.compilation_cache import reset_cache
from support.training import figures, train

from ncfbench.timing import compile_cache
from ncfbench.timing.compile_cache import keep_compiled
from ncfbench.training.inference import compiled_once
from ncfbench.training.step import program_of

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
    reset_cache()


@pytest.fixture
def counts():
    """Count the events of JAX, by name."""
    counted = Counter()
    jax.monitoring.register_event_listener(lambda event, **_: counted.update([event]))
    return counted


def read_and_compiled(counts):
    """Return the programs read from the cache, and those that were not there; count anew."""
    both = [counts[f"/jax/compilation_cache/cache_{kind}"] for kind in ("hits", "misses")]
    counts.clear()
    return both


def test_what_is_compiled_is_read_again(cache, counts):
    """Programs that take no time to compile too."""
    folder = keep_compiled(pytest.fail)
    assert folder.parent == cache / "compiled"
    reset_cache()
    ones = jnp.ones((3, 3))
    counts.clear()
    for expected in ([0, 1], [1, 0]):
        jax.jit(lambda x: jnp.sin(x) @ x.T)(ones).block_until_ready()
        assert read_and_compiled(counts) == expected


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


def test_a_second_start_of_a_run_compiles_nothing(data_dir, tmp_path, counts):
    """All its programs are read from the cache, and they are the same."""
    curves = []
    for folder in ("first", "second"):
        jax.clear_caches()
        for kept in (program_of, compiled_once):
            kept.cache_clear()
        counts.clear()
        curves.append(figures(train(data_dir, tmp_path / folder, sampler="ns", epochs=1)))
    read, compiled = read_and_compiled(counts)
    assert compiled == 0
    assert read > 15
    assert curves[0] == curves[1]


def test_a_folder_that_cannot_be_written_is_reported(cache):
    cache.touch()
    said = []
    assert keep_compiled(said.append) is None
    assert "Compiled programs are not kept" in said[0]
    assert "Not a directory" in said[0]
    assert jax.config.values[FOLDER] is None
