# Two commands do everything: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
FEW := .venv/.few
SHELL := /bin/bash

.PHONY: demo test test-all foreign reference mutations packages faults lint bench fuzz sanitize wheel windows clean
# Prerequisites are made in the order in which they are named, also with -j: packages before what is built with them.
.NOTPARALLEL:

# Needs no root and installs no system package.
# An unstable coupling, its verdict, the tuned and the compensated alternative, and the runs of all three, on one page.
demo: $(if $(wildcard $(READY)),$(READY),$(FEW))
	@mkdir -p results
	$(BIN)/cosimo analyse two-mass --step-size 4e-3
	$(BIN)/cosimo report two-mass --step-size 4e-3 --tune --compensate --run --stop-time 20 --parameter kc=10:1000 \
		--output-file results/report.html
	@echo "open results/report.html in a browser"

# Bytecode is kept, whatever the environment says: compiling is half of what collecting the tests costs.
TESTING := OPENBLAS_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=

# Three processes for two cores: a fifth of the time tests wait, for a time limit or another process.
test: packages lint
	$(TESTING) $(BIN)/pytest -n 3 --dist worksteal -m "not slow"

test-all: packages lint
	$(TESTING) COSIMO_TESTS=all $(BIN)/pytest -n 2 --dist worksteal

# Couplings of other people's FMUs against what is known of them: FMUS is a folder of cases (tests/foreign.py).
foreign: $(READY)
	OPENBLAS_NUM_THREADS=1 COSIMO_CACHE=off $(BIN)/python -m tests.foreign $(FMUS)

# The Reference FMUs of the Modelica Association in all kinds beside FMPy (tests/reference.py): FMUS is their folder.
reference: $(READY)
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m tests.reference $(FMUS)

# Every fault of the table FAULTS times (20 where it is not said), and docs/reliability.md with what came out.
faults: packages $(READY)
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m tests.faults.suite

# A compiler, Chromium and bubblewrap where they are missing; what cannot be installed is named, see CONTRIBUTING.md.
packages:
	@.ci/system-packages $(PYTHON)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python docs/list_messages.py

bench: $(READY)
	$(BIN)/python -m benchmarks.peers_install
	$(BIN)/python -m benchmarks

# Every reader of files on mutated inputs (fuzz/); FUZZ_RUNS inputs for each.
FUZZ_RUNS ?= 100000
fuzz: $(READY)
	$(BIN)/pip install --quiet --disable-pip-version-check -e ".[fuzz]"
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m fuzz --runs $(FUZZ_RUNS)

# One-token mutations of the modules that decide, each of which a test in tests/analysis must notice.
MUTATIONS ?= 40
SEED ?= 1
mutations: $(READY)
	$(BIN)/python -m tests.mutations --seed $(SEED) --count $(MUTATIONS)

# The compiled code under the sanitizers for addresses, undefined behaviour and threads (sanitize/).
sanitize: $(READY)
	$(BIN)/python -m sanitize

# The source distribution and wheels, compiled here by zig (wheels/): for Linux, or for TARGETS.
wheel:
	$(PYTHON) -m wheels $(TARGETS)

# Tests with the wheel of Windows, in a Python for Windows under Wine (wheels/windows.py): all, going on where the last run
# was ended, or TESTS.
windows: $(READY)
	$(BIN)/python -m wheels windows --python 3.11
	$(BIN)/python -m wheels.windows $(TESTS)

# Installed once, and again only when the requirements or the compiled sources change.
$(READY): pyproject.toml CMakeLists.txt $(wildcard src/fmu/* src/coupling/* src/kernel/* src/isolation/* src/model_exchange/*)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -e ".[dev]"
	@touch $(READY)

# What the demo needs, where nothing is installed yet: the package without any extra.
$(FEW): pyproject.toml CMakeLists.txt $(wildcard src/fmu/* src/coupling/* src/kernel/* src/isolation/* src/model_exchange/*)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -e .
	@touch $(FEW)

clean:
	rm -rf .venv build dist results
