"""Inputs nobody would write: every reader of files is given mutated ones, and may only refuse them with a typed error.

Each module with a function `check(data)` and a function `seeds()` is a target; `python -m fuzz` runs them all with
atheris (coverage-guided, libFuzzer), `make fuzz` gives each 10^5 inputs. An input on which a target crashes, hangs for
more than 5 s or raises anything but `CosimoError` is kept in `tests/safety/findings/<target>/`, where a test runs all
of them without atheris.
"""

TARGETS = ("model_description", "structures", "scenario", "archives", "results", "checkpoints")
