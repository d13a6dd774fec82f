# Everything starts from Python 3.11+ and a package index: each target makes the environment it needs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO := demo-out
WORKERS ?= $(shell nproc 2>/dev/null || echo 2)

.PHONY: help install demo check format test test-slow bench clean constraints

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

install: $(STAMP)  ## make the environment and install hbp-prep into it

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "hbp-prep needs Python 3.11 or newer; name one with PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(STAMP)  ## prepare a small mixed corpus: shards, manifest, report
	$(BIN)/hbp-prep demo-corpus $(DEMO)/corpus
	$(BIN)/hbp-prep run pipelines/quickstart.yaml --output $(DEMO)/prepared --overwrite

check: $(STAMP)  ## format, lint, types, import floors
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP)  ## format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test: $(STAMP)  ## the tests (under 15 minutes on 2 cores)
	$(BIN)/python -m pytest -n $(WORKERS) -m 'not slow'

test-slow: $(STAMP)  ## the slower suites
	$(BIN)/python -m pytest -n $(WORKERS) -m slow

bench: $(STAMP)  ## the benchmarks (see benchmarks/README.md)
	$(BIN)/python -m benchmarks.planner
	$(BIN)/python -m benchmarks.tokenization
	$(BIN)/python -m benchmarks.end_to_end

constraints:  ## pin what a fresh environment resolves to now
	$(PYTHON) -m venv build/constraints
	build/constraints/bin/python -m pip install --quiet '.[dev]'
	( echo "# Versions that development, tests and CI install; made with 'make constraints'. Users of the package are free."; \
	  build/constraints/bin/python -m pip freeze | grep -v '^hbp' ; echo 'torch==2.13.0' ) > constraints.txt

clean:  ## remove the environment and everything made
	rm -rf $(VENV) $(DEMO) build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
