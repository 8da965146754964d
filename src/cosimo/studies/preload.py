"""Loaded by local worker processes when they start: Ctrl-C is for the process that directs them."""

from __future__ import annotations

import signal


def dask_setup(worker: object) -> None:
    """Ignore Ctrl-C, which a terminal sends to all processes at once; the worker is ended by its nanny."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
