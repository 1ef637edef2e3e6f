# Every target works on a fresh machine that has make and Python 3.11 or newer: the first one builds .venv.
# Another interpreter: make setup PYTHON=python3.13      Some of the tests: make test ARGS="-k lease"

PYTHON ?= python3
ARGS ?=

VENV := .venv
PEERS := .venv-peers
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
SOURCES := $(wildcard src tests tools benchmarks examples)

.DEFAULT_GOAL := help
.PHONY: help setup demo test soak lint bench bench-peers clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(READY) ## build .venv with Stoker and its tools

demo: $(READY) ## see a queue at work: jobs of every kind, a crash that is survived, a report of it all
	$(PY) -m stoker.cli.main demo $(ARGS)

# With ARGS one process runs what they choose; without, the suite is cut into shares for all cores.
test: $(READY) ## the whole test suite
	@if [ -n "$(ARGS)" ]; then $(PY) -m pytest $(ARGS); else $(PY) tools/run_tests.py; fi

soak: $(READY) ## the long versions: crash loops, power cuts, damage, random histories, leaks (about two and a half hours)
	STOKER_SOAK=1 $(PY) -m pytest tests/crash tests/faults tests/histories tests/leaks tests/model tests/mutants tests/redis tests/redis_served tests/sharing tests/worker_kill tests/spark \
		tests/spark_cluster tests/app tests/cluster tests/inbox tests/postgres tests/processes tests/schedules tests/security tests/unit tests/wire $(ARGS)
	STOKER_SOAK=1 $(PY) -m pytest tests/conformance $(ARGS)

lint: $(READY) ## style, types and the direction of imports
	$(PY) -m ruff check $(SOURCES)
	$(PY) -m ruff format --check $(SOURCES)
	$(PY) -m mypy $(SOURCES)
	$(VENV)/bin/lint-imports --no-logo --no-cache

bench: $(READY) ## measure, and print the tables
	$(PY) -m benchmarks $(ARGS)

# Other queues live in environments of their own: what they need must not decide what Stoker gets.
bench-peers: $(READY) ## the same job through other queues, and through Stoker
	$(PY) -m benchmarks.peers $(ARGS)

clean: ## remove .venv, caches and builds
	rm -rf $(VENV) $(PEERS) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +

# Two steps, so that a new dependency updates the environment and does not rebuild it.
$(READY): pyproject.toml | $(PY)
	$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

# A half-made environment is removed: the next run must not take it for a whole one.
$(PY):
	@command -v '$(PYTHON)' >/dev/null || { \
		echo "There is no '$(PYTHON)' here. Install Python 3.11 or newer, or name one: make setup PYTHON=/path/to/python3"; exit 1; }
	@'$(PYTHON)' -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Stoker needs Python 3.11 or newer, and '$(PYTHON)' is $$('$(PYTHON)' -V 2>&1). Name a newer one: make setup PYTHON=python3.12"; exit 1; }
	'$(PYTHON)' -m venv $(VENV) || { rm -rf $(VENV); exit 1; }
