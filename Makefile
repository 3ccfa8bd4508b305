# `make demo` and `make test` set up everything they need in .venv, once.
#   make demo PY=python3        use an environment of your own; nothing is installed
#   make venv PYTHON=python3.12 VENV=../venv312
#   make test ARGS="-k render"  extra arguments for pytest

.DEFAULT_GOAL := help

PYTHON ?= python3
VENV ?= .venv
ARGS ?=

STAMP := $(VENV)/.installed
INSTALL := $(VENV)/bin/python -m pip install --quiet --constraint constraints.txt
# Whoever names an interpreter (PY=…) brings the environment, so nothing is set up for it.
ifneq ($(origin PY),command line)
PY := $(VENV)/bin/python
READY := $(STAMP)
endif

# Tests start some hundred interpreters. Each would compile the package again if none kept its bytecode.
unexport PYTHONDONTWRITEBYTECODE

PARALLEL := -n auto --dist loadfile --no-loadscope-reorder
# The kernels for training take Triton's interpreter minutes: `make demo ARGS=examples/training_blocks` adds them.
DEMO := examples/llm_blocks examples/transformers_layers
EXAMPLES := $(DEMO) examples/quantised examples/training_blocks

.PHONY: help venv demo test test-slow test-gpu bench catch golden lint structure format docs linkcheck constraints clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(firstword $(MAKEFILE_LIST)) | sed -E 's/:[^#]*## */\t/' | expand -t 14

venv: $(STAMP)  ## the development environment, in .venv

$(STAMP): pyproject.toml kernelllm_runtime/pyproject.toml kernelllm_judge/pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
	  "Python 3.11 or later is needed; $(PYTHON) is %s. Try: make venv PYTHON=python3.12" % sys.version.split()[0])'
	@echo "Installing into $(VENV); the first time takes a minute or two."
	@$(PYTHON) -m venv $(VENV)
	@$(INSTALL) --upgrade pip
	@# PyTorch on its own first: the build chosen here, CPU or CUDA, then stays.
	@$(INSTALL) torch
	@$(INSTALL) --editable kernelllm_runtime --editable kernelllm_judge --editable '.[all]' --group dev
	@touch $@

demo: $(READY)  ## run the plugin over the example projects; ends with its table
	$(PY) -m pytest --kernelllm --kernelllm-only --kernelllm-samples 2 $(DEMO) $(ARGS)

test: $(READY)  ## the tests but slow ones, and the examples' own, without a GPU; with ARGS, those it selects, slow or not
	$(PY) -m pytest -m "not gpu$(if $(ARGS),, and not slow)" --ignore tests/docs $(PARALLEL) $(ARGS)
	$(if $(ARGS),,$(PY) -m pytest $(EXAMPLES))

test-slow: $(READY)  ## the slow tests: whole runs with models, pass@k, the action, the survey of modules
	$(PY) -m pytest -m slow $(PARALLEL) $(ARGS)

test-gpu: $(READY)  ## tests that need a CUDA GPU
	$(PY) -m pytest -m gpu tests/gpu $(ARGS)

bench: $(READY)  ## what the installed, unused plugin adds to a pytest session
	$(PY) -m benchmarks startup --out build/benchmarks $(ARGS)

catch: $(READY)  ## the catch table: every cheat in tests/corpus and the rule that stops it (ARGS="--device cuda --jobs 8", --mutate)
	$(PY) -m tests.corpus $(ARGS)
	$(if $(ARGS),,$(PY) -m tests.corpus.dispatch)

golden: $(READY)  ## compare verdicts and renderings with those in tests/golden (ARGS="--write" takes today's)
	$(PY) -m tests.golden $(ARGS)

lint: $(READY)  ## style, formatting, types and layers
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m mypy
	$(PY) -c 'import importlinter.cli; importlinter.cli.lint_imports_command()'

structure: $(READY)  ## lines, modules, folders, and the arrows and circles of imports between folders (ARGS=--arrows lists them)
	$(PY) docs/_tools/structure.py $(ARGS)

format: $(READY)  ## fix style and formatting in place
	$(PY) -m ruff check --fix
	$(PY) -m ruff format

SPHINX = $(PY) -m sphinx -W --keep-going -d build/docs/doctrees docs

docs: $(READY)  ## the site, in build/docs/html, without a warning; then the tests of its pages, which execute them
	$(SPHINX) -q -b html build/docs/html $(ARGS)
	$(if $(ARGS),,$(PY) -m pytest tests/docs)

linkcheck: $(READY)  ## every link of the site to other sites; needs the network
	$(SPHINX) -b linkcheck build/docs/linkcheck $(ARGS)

constraints: $(STAMP)  ## write the versions installed in .venv to constraints.txt
	@{ grep '^#' constraints.txt; $(VENV)/bin/python -m pip freeze --all --exclude-editable \
	   | sed 's/+[a-z0-9.]*$$//' | sort -f; } > $(VENV)/constraints.txt
	@mv $(VENV)/constraints.txt constraints.txt
	@touch $(STAMP)

lock:  ## write requirements-suggest.txt: what the job with the write token installs, by hash (needs uv)
	@{ grep '^#' requirements-suggest.txt; $(VENV)/bin/python -c "import tomllib; \
	   p = tomllib.load(open('pyproject.toml', 'rb')); g = p['project']; \
	   print(*g['dependencies'], *g['optional-dependencies']['github'], *p['build-system']['requires'], sep='\n')" \
	   | uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
	     --constraint constraints.txt -; } > $(VENV)/lock.txt
	@mv $(VENV)/lock.txt requirements-suggest.txt

clean:  ## remove what make and the plugin's runs left behind, but for .venv
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .kernelllm
	find kernelllm_runtime kernelllm_judge pytest_kernelllm hooks examples tests benchmarks docs -depth -type d \
	  \( -name __pycache__ -o -name .kernelllm -o -name .pytest_cache \) -exec rm -rf {} +
