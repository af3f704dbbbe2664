# Every target sets itself up in .venv: nothing but Python 3.11 or later is needed.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test huggingface check format clean

# Train on the built-in corpus, then translate.
demo: .venv/installed
	$(BIN)/python train.py demo --overwrite
	$(BIN)/python translate.py --run demo "The cat sits on the mat." "The cat is sitting on the mat."

test: .venv/installed
	$(BIN)/python -m pytest

# What Hugging Face's transformers make of an export; by itself, since they slow every other command by a second.
huggingface: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt transformers
	$(BIN)/python -m pytest tests/test_export.py -k hugging_face
	$(BIN)/python -m pip uninstall --quiet --yes transformers

check: .venv/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: .venv/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv *.egg-info build _kernels.* .mypy_cache .pytest_cache .ruff_cache

.venv/installed: pyproject.toml constraints.txt kernels.c
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed: make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	@touch $@
