# Everything a newcomer or CI runs. Each target makes what it needs; only Python 3.11 or newer and make must be there.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
DATASET ?= synthetic
ENCODER ?= cnn
DEMO_FLAGS := --runs-dir runs/demo

.PHONY: demo test test-real check bench bench-peer clean
.DEFAULT_GOAL := demo

$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "ncfbench needs Python 3.11 or newer; set PYTHON=python3.x")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

# Trains all five samplers on synthetic data and prints the speedup table.
demo: $(VENV)/.installed
	@for sampler in iid neg strat ns strat-ns; do \
	  $(BIN)/ncfbench run --dataset synthetic --encoder cnn --loss sg --sampler $$sampler --epochs 12 --resume $(DEMO_FLAGS) || exit $$?; \
	done
	@$(BIN)/ncfbench report $(DEMO_FLAGS)

test: $(VENV)/.installed
	$(BIN)/python -m pytest -n logical --maxprocesses 4

# Minutes on the real data that NCFBENCH_SHARED_DATA names.
test-real: $(VENV)/.installed
	$(BIN)/python -m pytest -m real

check: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The five samplers on DATASET, interleaved in one process.
bench: $(VENV)/.installed
	$(BIN)/python benchmarks/bench_iteration.py --dataset $(DATASET) --encoder $(ENCODER) $(BENCH_FLAGS)

# The same work in PyTorch, interleaved with ours. Needs the extra: pip install '.[bench]'
bench-peer: $(VENV)/.installed
	$(BIN)/python benchmarks/peer_pytorch.py --dataset $(DATASET) --encoder $(ENCODER) $(BENCH_FLAGS)

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
