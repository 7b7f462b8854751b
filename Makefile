# Everything runs in a virtual environment that the targets make themselves.
#   make test PYTHON=python3.12       another interpreter (3.10 or newer)
#   make bench BENCH=all             every case, not only the quick ones
#   make test PIP_ARGS='--extra-index-url URL'   another package index, say torch's CPU builds

PYTHON ?= python3
VENV ?= .venv
NATIVE ?= $(VENV)-native
PIP_ARGS ?=
PYTEST_ARGS ?=
BENCH ?= weighted_sum edge_difference/sum edge_difference/mean edge_difference/max peak_memory call_overhead first_call

BIN := $(VENV)/bin
RUN := $(BIN)/python
INSTALL = -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) -c constraints.txt

# What runs where torch is not installed; tests of it skip, and killed writers cost 15 seconds.
NATIVE_TESTS ?= tests/native tests/memory tests/docs --ignore=tests/memory/test_faults.py

# Tests that compile hundreds of kernels are for `make test`.
QUICK := $(foreach name,torch_ pyg arithmetic exactness triton_kernels,--ignore-glob='*/unit/test_$(name)*')

# Tests that compare texts beside those of tests/golden.
GOLDEN := $(foreach name,kernels scans segments,tests/unit/test_triton_$(name).py) tests/native/test_gpu_kernels.py

.DEFAULT_GOAL := help
.PHONY: help demo gpu gpu-bench test test-all test-native check format bench golden docs reference doctor clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-11s %s\n", $$1, $$2}'

$(BIN)/python:
	bash tools/make_venv.sh $(PYTHON) $(VENV)

$(VENV)/.demo: pyproject.toml constraints.txt | $(BIN)/python
	$(RUN) $(INSTALL) -e '.[demo]'
	@touch $@

$(VENV)/.test: pyproject.toml constraints.txt | $(BIN)/python
	$(RUN) $(INSTALL) -e '.[test]'
	@touch $@ $(VENV)/.demo

$(NATIVE)/bin/python:
	bash tools/make_venv.sh $(PYTHON) $(NATIVE)

$(NATIVE)/.test: pyproject.toml constraints.txt | $(NATIVE)/bin/python
	$(NATIVE)/bin/python $(INSTALL) -e '.[test-native]'
	@touch $@

$(VENV)/.docs: pyproject.toml constraints.txt | $(BIN)/python
	$(RUN) $(INSTALL) -e '.[docs]'
	@touch $@

demo: $(VENV)/.demo ## train a small graph network and compare it with torch
	$(RUN) -m tiga demo

doctor: $(VENV)/.demo ## say what Tiga finds on this machine
	$(RUN) -m tiga

test: $(VENV)/.test ## every test but the slow ones, then those of test-native
	$(RUN) -m pytest -m 'not slow and not gpu' $(PYTEST_ARGS)
	@$(MAKE) --no-print-directory test-native

test-native: $(NATIVE)/.test ## native tensors, memory and documents in an environment without torch
	! $(NATIVE)/bin/python -c 'import torch' 2>/dev/null
	$(NATIVE)/bin/python -m pytest -q -m 'not slow and not gpu' $(NATIVE_TESTS)

test-all: $(VENV)/.test ## every test
	$(RUN) -m pytest $(PYTEST_ARGS)

check: $(VENV)/.test ## format, lint, types, import rule and quick unit tests: under two minutes
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(RUN) -m pytest -q -m 'not slow and not gpu' tests/unit $(QUICK) $(PYTEST_ARGS)

format: $(VENV)/.test ## rewrite the sources in the project's format
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

bench: $(VENV)/.test ## measure against torch and SciPy: under five minutes
	$(RUN) -m benchmarks $(BENCH) --out build/bench

gpu: $(VENV)/.test ## the conformance of kernels on this machine's GPU
	$(RUN) -m pytest tests/gpu $(PYTEST_ARGS)

gpu-bench: $(VENV)/.test ## measure on this machine's GPU against cuSPARSE and torch.compile
	$(RUN) -m benchmarks.gpu --out build
	$(RUN) -m benchmarks.gpu_limits
	$(RUN) -m benchmarks.gpu_edges

golden: $(VENV)/.test ## rewrite the golden kernel texts after a wanted change; read the diff
	TIGA_GOLDEN_UPDATE=1 $(RUN) -m pytest -q tests/golden $(GOLDEN) $(PYTEST_ARGS)

reference: $(VENV)/.test ## rewrite docs/reference.md from signatures and docstrings
	$(RUN) -m tools.reference > docs/reference.md

docs: $(VENV)/.docs ## build the pages of docs/ into build/site
	$(BIN)/mkdocs build --strict

clean: ## remove the environment and everything built
	rm -rf $(VENV) $(NATIVE) build dist .pytest_cache .ruff_cache .mypy_cache .hypothesis .import_linter_cache
	find src tests benchmarks tools -name __pycache__ -type d -prune -exec rm -rf {} +
