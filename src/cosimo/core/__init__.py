"""The vocabulary everything else is written in: schedules, signals, systems, contracts, results, errors."""
