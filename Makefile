# Everything a newcomer runs. A fresh machine needs Python 3.11 or later and make.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: help study test first-tier platform quick approve lint reference docs chaos compare clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

study: .venv/installed  ## train the study of noisy digits, confirm it, draw figures, write the report, register and verify a model
	$(BIN)/calstudy run study/specs/noisy_digits.yaml --storage studies
	$(BIN)/calstudy pareto noisy_digits --storage studies --bootstrap 1000
	$(BIN)/calstudy confirm noisy_digits --storage studies
	@# What only reads, in one process: most of a command is its imports.
	$(BIN)/python -m calstudy.several \
		"figures noisy_digits --storage studies" \
		"report noisy_digits --storage studies" \
		"export noisy_digits --storage studies --name digits --alias champion" \
		"verify models:/digits@champion --storage studies" \
		"answer noisy_digits --storage studies"

# One thread for each of pytest's processes: more of them wait for each other.
test platform quick approve: export OMP_NUM_THREADS := 1
# Empty: Python keeps what it has compiled, though an image may say otherwise. Without, each process
# compiles all tests and all of calstudy.
test platform quick approve: export PYTHONDONTWRITEBYTECODE :=

# Every test of a file in one process; a process that dies ends the run.
PYTEST := $(BIN)/python -m pytest --numprocesses 3 --max-worker-restart 0 --dist loadfile --no-loadscope-reorder \
	--durations 25 --durations-min 5

test: .venv/installed-for-tests  ## lint, types and every test that any machine can run
	$(MAKE) --no-print-directory --jobs 2 --keep-going lint first-tier

first-tier: .venv/installed-for-tests
	$(PYTEST) -m "not platform"

platform: .venv/installed-for-tests  ## the tests with hosts, services, a browser, Slurm and killed runs
	$(PYTEST) -m platform

quick: .venv/installed-for-tests lint  ## lint, types and the tests that take less than a second each
	$(BIN)/python -m pytest --numprocesses 2 -m "not slow and not platform" --quiet

# The files of tests whose wordings are written anew; without FILES=..., all that have some.
FILES = $(shell grep -rlw approved tests --include="test_*.py")

approve: .venv/installed-for-tests  ## write the approved wordings anew, or those of FILES=tests/...; read their diff
	$(PYTEST) --approve $(FILES)

lint: .venv/installed-for-tests  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

reference: .venv/installed-for-tests  ## write docs/reference and the schema of study files anew, from the code
	$(BIN)/python docs/generate.py

docs: .venv/installed-for-docs  ## build the site in build/docs, with pictures of the demo study, which it trains once
	$(BIN)/python docs/pictures.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

chaos: .venv/installed-for-tests  ## 400 faults at random moments; writes benchmarks/results/chaos.jsonl (hours; root)
	$(BIN)/python -m benchmarks.chaos

compare: .venv/compare/installed  ## compare with public packages on random and adversarial inputs and public bug reports, then in speed
	.venv/compare/bin/python -W ignore -m benchmarks.compare
	.venv/compare/bin/python -m benchmarks.compare.reports
	.venv/compare/bin/python -W ignore -m benchmarks.metrics
	.venv/compare/bin/python -W ignore -m benchmarks.search --only stop

.venv/compare/installed: benchmarks/compare-requirements.txt
	$(PYTHON) -m venv .venv/compare
	.venv/compare/bin/pip install --quiet --requirement $<
	touch $@

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/installed: pyproject.toml .venv/bin/python
	$(BIN)/pip install --quiet --editable .
	touch $@

.venv/installed-for-tests: pyproject.toml .venv/bin/python
	$(BIN)/pip install --quiet --editable ".[test]"
	touch $@ .venv/installed

.venv/installed-for-docs: pyproject.toml .venv/bin/python
	$(BIN)/pip install --quiet --editable ".[docs]"
	touch $@

clean:  ## remove the environment and its caches; studies stay
	rm -rf .venv build *.egg-info .mypy_cache .ruff_cache .pytest_cache
