# Every target sets itself up in .venv: nothing but Python 3.11 or later is needed.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check format clean

# Train on the built-in corpus, then translate.
demo: .venv/installed
	$(BIN)/python train.py demo --overwrite
	$(BIN)/python translate.py --run demo "The cat sits on the mat." "The cat is sitting on the mat."

test: .venv/installed
	$(BIN)/python -m pytest

check: .venv/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: .venv/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv *.egg-info build .mypy_cache .pytest_cache .ruff_cache

.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed: make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	@touch $@
