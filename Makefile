# Every target sets up what it needs: a fresh machine needs make and Python 3.11 or newer with the venv module.
PYTHON ?= python3
VENV := .venv
# Writes the lock files; nothing else uses it.
UV_VERSION := 0.13.9
LOCK_VENV := .lock-venv
# `make lock LOCK_FLAGS=--upgrade` moves every version; without it only what pyproject.toml asks for moves.
LOCK_FLAGS ?=
# Of each fuzzer, whichever is over first.
FUZZ_RUNS ?= 100000
FUZZ_SECONDS ?= 600

BIN := $(VENV)/bin
DEPENDENCIES := $(VENV)/.dependencies
INSTALLED := $(VENV)/.installed
FUZZER := $(VENV)/.fuzzer
COMPILE := $(LOCK_VENV)/bin/uv --no-config pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' $(LOCK_FLAGS)

.DEFAULT_GOAL := help
.PHONY: help install demo test chaos soak lint types reference bench fuzz lock clean
.DELETE_ON_ERROR:

help:
	@echo 'make demo    three MCP servers, the proxy in front, tasks through it'
	@echo 'make test    ruff, mypy and pytest'
	@echo 'make chaos   2,000 tasks while proxies, workers and the store are killed; some minutes'
	@echo 'make soak    mixed load while backends are killed; a quarter of an hour'
	@echo 'make lint    ruff only'
	@echo 'make types   mypy only'
	@echo 'make bench   measure the data path beside nginx, HAProxy and Envoy, and write docs/performance.md; ten minutes'
	@echo '             BENCH_FLAGS=--quick: two minutes, nothing written; BENCH_FLAGS="--envoy FILE": the envoy to start'
	@echo 'make fuzz    run the fuzzers, each for FUZZ_RUNS inputs (now: $(FUZZ_RUNS)) or FUZZ_SECONDS ($(FUZZ_SECONDS))'
	@echo 'make reference   write docs/configuration.md and config/proxy.schema.json anew'
	@echo 'make lock    write the lock files again (LOCK_FLAGS=--upgrade: with newer versions)'
	@echo 'make clean   remove what the other targets made'
	@echo 'PYTHON=...   the interpreter to set up with (now: $(PYTHON))'

install: $(INSTALLED)

demo: $(INSTALLED)
	$(BIN)/python -m proxy demo

# Tests mostly wait, so more than one at a time takes less time. Those of a file stay together: they share servers.
TEST_PROCESSES ?= 2
test: lint types
	$(BIN)/python -m pytest --numprocesses $(TEST_PROCESSES) --dist loadfile

# A small one is in the tests. SEED=... draws another plan.
SEED ?= 1
chaos: $(INSTALLED)
	$(BIN)/python -m tests.chaos.run --tasks 2000 --seconds 60 --seed $(SEED) --store memory
	$(BIN)/python -m tests.chaos.run --tasks 2000 --seconds 60 --seed $(SEED) --store redis

# Likewise.
soak: $(INSTALLED)
	$(BIN)/python -m tests.soak.run --seconds 600 --seed $(SEED)
	$(BIN)/python -m tests.soak.run --seconds 240 --seed $(SEED) --workers 2

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)
	$(BIN)/mypy proxy tests bench

reference: $(INSTALLED)
	$(BIN)/python -m proxy.config.reference

BENCH_FLAGS ?=
bench: $(INSTALLED)
	$(BIN)/python -m bench.suite $(BENCH_FLAGS)

fuzz: $(FUZZER)
	$(BIN)/python -m tests.fuzz --runs $(FUZZ_RUNS) --seconds $(FUZZ_SECONDS)

$(FUZZER): $(INSTALLED) requirements/fuzz.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements/fuzz.lock
	@touch $@

# The stamp comes last and the environment is made anew: one that broke off half way is never used.
$(DEPENDENCIES): requirements/dev.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo 'mcp-routing-proxy needs Python 3.11 or newer, and "$(PYTHON)" is not:' >&2; \
		$(PYTHON) --version >&2; \
		echo 'Name one that is: make PYTHON=python3.12 ...' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || { \
		echo '"$(PYTHON)" has no venv module; your system may pack it apart, as python3-venv.' >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.lock
	@touch $@

# The build backend comes from the lock as well, so nothing that has no hash is fetched.
$(INSTALLED): $(DEPENDENCIES) pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# What is tested is what is shipped: the smaller locks take their versions from the largest.
lock: $(LOCK_VENV)/.uv-$(UV_VERSION)
	$(COMPILE) --output-file requirements/dev.lock pyproject.toml --extra dev --group build
	$(COMPILE) --output-file requirements/runtime.lock --constraints requirements/dev.lock pyproject.toml
	$(COMPILE) --output-file requirements/build.lock --constraints requirements/dev.lock --group build
	$(COMPILE) --output-file requirements/fuzz.lock --constraints requirements/dev.lock --group fuzz

$(LOCK_VENV)/.uv-$(UV_VERSION):
	$(PYTHON) -m venv --clear $(LOCK_VENV)
	$(LOCK_VENV)/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@touch $@

clean:
	rm -rf $(VENV) $(LOCK_VENV) build dist .fuzz .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
