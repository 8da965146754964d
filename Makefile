# Two commands do everything: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
SHELL := /bin/bash

.PHONY: demo test test-all lint bench clean

demo: $(READY)
	@mkdir -p results
	$(BIN)/cosimo analyse two-mass --step-size 4e-3
	$(BIN)/cosimo run two-mass --step-size 4e-3 --stop-time 20 --output-file results/two-mass.csv

test: lint
	OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -n 2 -m "not slow"

test-all: lint
	OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -n 2

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY)
	$(BIN)/python -m benchmarks.peers_install
	$(BIN)/python -m benchmarks

# Installed once, and again only when the requirements or the compiled sources change.
$(READY): pyproject.toml CMakeLists.txt $(wildcard src/fmu/* src/kernel/*)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -e ".[dev]"
	@touch $(READY)

clean:
	rm -rf .venv build dist results
