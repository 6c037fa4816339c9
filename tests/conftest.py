"""Fixtures: graphs small enough to enumerate, data small enough to train on in a second."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

# Most of the tests' time is compilation, of programs that run for a moment. What LLVM makes of them changes their speed, which no
# test asserts. Eight devices are there for the tests that spread a step; the others use the first. Users' settings go before.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_force_host_platform_device_count=8")

import jax
import numpy as np
import pytest
from jax._src.lru_cache import LRUCache

from ncfbench.datasets import synthetic
from ncfbench.datasets.store import Dataset, load
from ncfbench.graph import BipartiteGraph
from ncfbench.tables import atomic_path

LONG = (
    r"test_sweeping.py::test_a_killed_sweep_ends_with_the_same_tables$",
    r"test_sweeping.py::test_ctrl_c_saves_all_cells_and_the_same_call_goes_on\[strat-ns-34",
    r"test_sweeping.py::test_a_cell_whose_summary_is_gone_is_trained_again",
    r"test_audit.py::test_audit_from_the_command_line",
    r"test_audit.py::test_wrong_estimators_by_loss\[UnmaskedPairs",
    r"test_audit.py::test_mean_gradient_of_batches_both_ways\[(?!ns-sg|strat-ns-softmax)",
    r"test_tuning.py::test_the_command_tunes_trains_and_does_neither_twice",
    r"test_training.py::test_synthetic_recall_on_cold_items_is_far_above_chance",
    r"test_training.py::test_damaged_checkpoints_fall_back_and_say_so\[(?!newest-arrays|all-no arrays)",
    r"test_training.py::test_an_interrupted_run_ends_with_the_same_curve\[(?!stops1-iid|stops2-strat-ns)",
    r"test_training.py::test_the_probe_falls\[.*lstm",
    r"test_step.py::test_every_combination_trains_with_a_falling_probe\[(?!.*-cnn|ns-sg-lstm|iid-sg-mf|strat-ns-log-mf)",
    r"test_step.py::test_unique_items_change_the_work_and_not_the_gradient\[(iid|mixed-ns|strat|neg)\]",
    r"test_dispatch.py::test_losses_and_parameters_are_those_of_one_at_a_time\[lstm",
    r"test_model.py::test_an_item_does_not_depend_on_its_neighbours_or_slot\[mf",
    r"test_parallel.py::test_a_run_goes_on_with_another_number_of_devices",
    r"test_evaluation.py::test_a_million_items_in_bounded_memory",
    r"test_damaged.py::test_what_unpacks_to_half_a_gigabyte_stays_small\[gzip-(m|r.csv.gz-user,item.n-)",
    r"test_mind.py::test_reports_name_the_stand_in_and_the_command_that_prepares_it",
    r"test_compilation.py::test_a_run_with_the_cache_is_the_same_run",
    r"test_benchmarks.py::test_samplers_at_scale",
    r"test_damaged.py::test_parquet_that_repeats_a_long_text_stays_small",
    r"test_profiling.py::test_the_parts_one_after_another_give_the_steps_gradient\[neg-sg-cnn",
    r"test_model.py::test_only_the_words_of_the_texts_get_a_gradient\[lstm",
)
"""Tests that are ``long`` for CI's sake alone: what they show of many cases, others show of one or two."""

jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(re.search(pattern, item.nodeid) for pattern in LONG):
            item.add_marker(pytest.mark.long)


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing goes into the user's cache, from processes that tests start neither."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NCFBENCH_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _compile_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Many tests compile the same small programs; keep them for the session, for all of its processes."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "compiled"
    LRUCache.put = _put  # type: ignore[method-assign]
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


def _put(self: LRUCache, key: str, value: bytes) -> None:
    """JAX's own, but whole or absent, so that no process reads what another has half written."""
    path = Path(str(self.path)) / f"{key}-cache"
    if not path.exists():
        with atomic_path(path) as temporary:
            temporary.write_bytes(value)


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NCFBENCH_DATA_DIR", "NCFBENCH_RUNS_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def five_nodes() -> BipartiteGraph:
    """Two users, three items, four links: degrees 2 2 and 1 2 1."""
    return BipartiteGraph.from_links(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 2]), 2, 3)


@pytest.fixture(scope="session")
def tiny_options() -> synthetic.Options:
    return synthetic.Options(users=120, items=400, links=1500, topics=5, vocabulary_size=200, min_words=3, max_length=12)


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory: pytest.TempPathFactory, tiny_options: synthetic.Options) -> Path:
    folder = tmp_path_factory.mktemp("data")
    synthetic.prepare(folder, "tiny", tiny_options, say=lambda text: None)
    return folder


@pytest.fixture(scope="session")
def tiny(data_dir: Path) -> Dataset:
    return load(data_dir, "tiny")


@pytest.fixture(scope="session")
def growing(tmp_path_factory: pytest.TempPathFactory, tiny_options: synthetic.Options) -> Dataset:
    """Like ``tiny``; here a batch comes along, some time after the first, that needs more slots than the first made room for."""
    folder = tmp_path_factory.mktemp("growing")
    synthetic.prepare(folder, "growing", replace(tiny_options, seed=1), say=lambda text: None)
    return load(folder, "growing")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    folder = os.environ.get("NCFBENCH_SHARED_DATA")
    if not folder:
        pytest.skip("NCFBENCH_SHARED_DATA is not set")
    return Path(folder)
