# The same targets for people and for CI. VENV names the environment that `setup` makes.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: setup test lint format clean

setup: $(VENV)/.ready ## make an environment with everything that the tests need

$(VENV)/.ready: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("driftscore needs Python 3.11 or newer") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

test: setup ## run every test
	$(BIN)/python -m pytest

lint: setup ## style, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup ## put the code into its standard form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove the environment and all caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
