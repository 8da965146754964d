"""Benchmarks: ratios and rates measured inside one run, written to RESULTS.md."""
