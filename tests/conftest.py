"""Fixtures: graphs small enough to enumerate, data small enough to train on in a second."""

import gc
import os
import re
import signal
from copy import copy
from dataclasses import replace
from functools import cache
from importlib import metadata
from pathlib import Path

# Most of the tests' time is compilation, of programs that run for a moment. How XLA and LLVM make
# them changes their speed, which no test asserts: without optimisation, by the older emitters and
# in one piece it takes half the time. A jaxlib without these flags would end at once. Eight devices
# are there for the tests that spread a step; the others use the first. Users' settings go before.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0"
    + " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
    * metadata.version("jaxlib").startswith("0.10.")
    + " --xla_force_host_platform_device_count=8",  # the last, which processes of tests leave out
)

import jax
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from jax._src.lru_cache import LRUCache
from typer.main import get_command

from ncfbench.data import prepare
from ncfbench.data.graph import BipartiteGraph
from ncfbench.data.sources import synthetic
from ncfbench.data.store import load
from ncfbench.storage import tables
from ncfbench.timing import contention
from ncfbench.training import probe
from ncfbench.training.step import program_of

# A shell ignores SIGINT in what it starts in the background, and so would all that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

jax.config.update("jax_numpy_rank_promotion", "raise")
# The same examples in every run, without limits on times; `make test-long` draws others.
more = {"deadline": None, "suppress_health_check": [HealthCheck.function_scoped_fixture]}
settings.register_profile("same", derandomize=True, **more)
settings.register_profile("random", **more)
settings.load_profile("same")
# Imports and pytest's rewriting of asserts make millions of objects, and hardly a cycle.
gc.disable()


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark the cases that ``long_cases`` names as ``long``."""
    for item in items:
        marker = item.get_closest_marker("long_cases")
        if marker is not None and re.match(marker.args[0], item.callspec.id):
            item.add_marker(pytest.mark.long)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Fail a test that computes for longer than NCFBENCH_TEST_SECONDS, unless it is long.

    Processor time counts, so that other load on the machine fails nothing: that of this process, or
    half of that with the processes that it started, which share two cores; at most the wall time.
    """
    begin = os.times()
    result = yield
    user, system, *children, wall = np.subtract(os.times(), begin).tolist()
    alone = user + system
    taken = min(wall, max(alone, (alone + sum(children)) / 2))
    limit = float(os.environ.get("NCFBENCH_TEST_SECONDS", "inf"))
    if taken > limit and not any(map(item.get_closest_marker, ("long", "real", "browser"))):
        pytest.fail(f"took {taken:.1f} s of at most {limit:g} (NCFBENCH_TEST_SECONDS)", False)
    return result


def pytest_collection_finish():
    """Imported modules stay; tracing makes so many objects that to look for cycles costs time."""
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _own_files(tmp_path_factory):
    """Nothing goes into the user's cache, from processes that tests start neither. Nor does a test
    wait for the disk: none needs its files after a power cut, and a sync takes longer than most
    writes. What many compile is kept for the session, for all of its processes.
    """
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "compiled"
    LRUCache.put = _put
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NCFBENCH_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


def _put(self, key, value):
    """JAX's own, but whole or absent, so that no process reads what another has half written."""
    path = Path(str(self.path)) / f"{key}-cache"
    if not path.exists():
        with tables.atomic_path(path) as temporary:
            temporary.write_bytes(value)


@pytest.fixture(scope="session", autouse=True)
def _once():
    """What many tests ask for again is made once: functions of their arguments alone, and what a
    file of some bytes holds.
    """

    def read(path):
        if not path.is_file() or path.stat().st_size > 2**16:
            return read_anew(path)
        content = path.read_bytes()
        if content not in contents:
            contents[content] = read_anew(path)
        return contents[content]

    def command(app):
        """A copy: a command that a plug-in has flags of takes them on."""
        group = copy(made_once(app))
        group.commands = {name: copy(command) for name, command in group.commands.items()}
        return group

    made_once = cache(get_command)
    read_anew, contents = tables._read, dict[bytes, pa.Table]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "_read", read)
        patch.setattr(probe, "compiled_sum", cache(probe.compiled_sum))
        patch.setattr("typer.testing._get_command", command)
        yield


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    """Tests print the same whatever the user has set and the machine does, and none runs a step
    that another one traced, with what that one patched.
    """
    for name in ("NCFBENCH_DATA_DIR", "NCFBENCH_RUNS_DIR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(contention.OtherPrograms, "cores", lambda self: 0.0)
    yield
    program_of.cache_clear()


@pytest.fixture
def five_nodes():
    """Two users, three items, four links: degrees 2 2 and 1 2 1."""
    return BipartiteGraph.from_links(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 2]), 2, 3)


@pytest.fixture(scope="session")
def tiny_options():
    return synthetic.Options(
        users=120, items=400, links=1500, topics=5, vocabulary_size=200, min_words=3, max_length=12
    )


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory, tiny_options):
    folder = tmp_path_factory.mktemp("data")
    prepare("synthetic", tiny_options, folder, "tiny", say=lambda text: None)
    return folder


@pytest.fixture(scope="session")
def tiny(data_dir):
    return load(data_dir, "tiny")


@pytest.fixture(scope="session")
def featured_dir(tmp_path_factory, tiny_options):
    folder = tmp_path_factory.mktemp("featured")
    options = replace(tiny_options, item_features=6)
    prepare("synthetic", options, folder, "tiny", say=lambda text: None)
    return folder


@pytest.fixture(scope="session")
def featured(featured_dir):
    return load(featured_dir, "tiny")


@pytest.fixture(scope="session")
def growing(tmp_path_factory, tiny_options):
    """Like ``tiny``; here a batch comes along, some time after the first, that needs more slots
    than the first made room for.
    """
    folder = tmp_path_factory.mktemp("growing")
    options = replace(tiny_options, seed=1)
    prepare("synthetic", options, folder, "growing", say=lambda text: None)
    return load(folder, "growing")


@pytest.fixture(scope="session")
def shared_data():
    return Path(os.environ["NCFBENCH_SHARED_DATA"])
