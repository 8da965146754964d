"""The command line: arguments in, objects out. One module per verb; everything heavy is imported inside the verbs."""

# Importing a module adds its verbs, in the order in which `cosimo --help` lists them.
from cosimo.cli import new, analyse, run, resume, plot, compare, tune, sweep, report, files, papers  # noqa: F401, I001
from cosimo.cli.application import app, main

__all__ = ["app", "main"]
