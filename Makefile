# Everything a newcomer or CI runs. Each target makes what it needs; only Python 3.11 or newer and make must be there.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
DATASET ?= synthetic
ENCODER ?= cnn
TEST_WORKERS ?= 3
TEST_SECONDS ?= 5
DEMO_FLAGS := --runs-dir runs/demo

.PHONY: demo results test test-real test-long test-lowest test-browser test-torch test-frameworks coverage check bench bench-peer clean
.DEFAULT_GOAL := demo

$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "ncfbench needs Python 3.11 or newer; set PYTHON=python3.x")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

# Trains all five samplers on synthetic data, an epoch each in turn, and prints the speedup table.
demo: $(VENV)/.installed
	@$(BIN)/ncfbench sweep paper-speedup --dataset synthetic --set encoder=cnn --set loss=sg --epochs 12 --seeds 1 $(DEMO_FLAGS)
	@$(BIN)/ncfbench report $(DEMO_FLAGS)

# Three workers also where there are two cores: a good part of the tests waits for processes that they start.
# Whole stretches of the list go to a worker, so that few make what the tests of a module share.
# A test fails that computes for longer than TEST_SECONDS. Processor time counts, which hardly grows on a loaded machine.
test: $(VENV)/.installed
	NCFBENCH_TEST_SECONDS=$(TEST_SECONDS) $(BIN)/python -m pytest -n $(TEST_WORKERS) --dist worksteal

# Minutes on the real data that NCFBENCH_SHARED_DATA names.
test-real: $(VENV)/.installed
	$(BIN)/python -m pytest -m real

# What `make test` does a few times, many times, and properties on new random examples.
test-long: $(VENV)/.installed
	$(BIN)/python -m pytest -m 'long or hypothesis' --hypothesis-profile random

# The lowest versions that pyproject.toml allows, in an environment of their own. That they are deprecated is no news.
test-lowest:
	$(PYTHON) -m venv --clear $(VENV)-lowest
	$(VENV)-lowest/bin/python -m pip install --quiet --disable-pip-version-check uv
	$(VENV)-lowest/bin/uv pip install --quiet --python $(VENV)-lowest --resolution lowest-direct --editable '.[dev]'
	$(VENV)-lowest/bin/python -m pytest -n $(TEST_WORKERS) --dist worksteal -W ignore::DeprecationWarning

# The lines and branches that no test reaches: a list, not a threshold. What tests do in processes of their own is not in it.
coverage: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'pytest-cov>=7'
	$(BIN)/python -m pytest -n $(TEST_WORKERS) --dist worksteal --cov ncfbench --cov-branch --cov-report term-missing:skip-covered

# The HTML report in Chromium, which must be installed (the package chromium, or `playwright install chromium`).
test-browser: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,browser]'
	$(BIN)/python -m pytest -m browser

# PyTorch's batches, objective and pairs of texts beside ours, and the peer of the benchmarks. Tests are skipped without their
# package, so it is imported first.
test-torch: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,torch,sentence-transformers]'
	$(BIN)/python -c 'import datasets, sentence_transformers, torch'
	$(BIN)/python -m pytest tests/test_torch.py tests/test_torch_pairs.py tests/test_migrating_page.py tests/training/test_exported_vectors.py tests/benchmarks/test_peer.py \
	  tests/racing/test_examples.py

# Losses of other frameworks, judged by the lint as docs/audit.md says. Of GradCache, only what is tested is
# installed.
test-frameworks: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable \
	  '.[dev,sentence-transformers]' 'pytorch-metric-learning>=2.9'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps \
	  'gradcache==0.0.1'
	$(BIN)/python -c 'import gradcache, pytorch_metric_learning, sentence_transformers'
	$(BIN)/python -m pytest -m '' -k framework tests/benchmarks/test_records.py

check: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

# What users wait for on DATASET, beside its targets: start, evaluation, step, floors. BENCH_FLAGS names some of these.
bench: DATASET = citeulike
bench: $(VENV)/.installed
	$(BIN)/python benchmarks/bench.py $(DATASET) $(BENCH_FLAGS)

# The same work in PyTorch, interleaved with ours. Needs the extra: pip install '.[bench]'
bench-peer: $(VENV)/.installed
	$(BIN)/python benchmarks/peer_pytorch.py --dataset $(DATASET) --encoder $(ENCODER) $(BENCH_FLAGS)

# All evidence of results/: data, sweeps, profiles, audits, reports. Days on two cores; the same command resumes.
# MOVIELENS_PLOTS, ANIME and YELP name the folders of these data, MINILM that of the checkpoint for bert (docs/models.md says
# how to get it).
results: $(VENV)/.installed
	$(BIN)/python benchmarks/make_results.py $(RESULTS_FLAGS)

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
