# Every target sets itself up in .venv: nothing but Python 3.11 or later is needed.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test quick huggingface check format clean

# Train on the built-in corpus, then translate. Installs the core alone.
demo: .venv/core
	$(BIN)/python train.py demo --overwrite
	$(BIN)/python translate.py --run demo "The cat sits on the mat." "The cat is sitting on the mat."

# The whole suite.
test: .venv/dev
	$(BIN)/python -m pytest

# The tests that need no trained model, no other process and no browser: an answer in a minute.
quick: .venv/dev
	$(BIN)/python -m pytest -m "not slow and not browser"

# The Hugging Face export, loaded by transformers. Apart, since transformers slows every other command by a second.
huggingface: .venv/dev
	$(PIP) transformers
	$(BIN)/python -m pytest tests/test_export.py -k hugging_face
	$(BIN)/python -m pip uninstall --quiet --yes transformers

check: .venv/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: .venv/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv *.egg-info build decoding/_compiled.* .mypy_cache .pytest_cache .ruff_cache

.venv/core: pyproject.toml constraints.txt decoding/compiled.c decoding/compiled_transformer.h
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed: make PYTHON=python3.11")'
	@echo "installing Tapis into .venv: torch and a few smaller packages, some minutes the first time"
	$(PYTHON) -m venv .venv
	$(PIP) --editable .
	@touch $@

.venv/dev: .venv/core
	@echo "installing the development tools into .venv"
	$(PIP) --editable ".[dev]"
	@touch $@
