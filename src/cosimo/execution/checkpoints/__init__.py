"""Checkpoints: what a run needs to go on later, in another process, as if it had never been interrupted.

At a macro step boundary k everything the run remembers is taken (`Engine.memory`), then one macro step is made, and the
signals after it are kept too. Whoever resumes puts the memory into fresh units, makes that step again, and must find
the same signals, bit by bit; only then does the run go on.
"""

from cosimo.execution.checkpoints.files import read_checkpoint
from cosimo.execution.checkpoints.options import Checkpoint

__all__ = ["Checkpoint", "read_checkpoint"]
