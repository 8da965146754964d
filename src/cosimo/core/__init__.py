"""The vocabulary everything else is written in: schedules, signals, systems, contracts, results, errors."""

__version__ = "0.1.0"
"""The version of the package; it goes into results and checkpoints."""
