"""Macro steps as long as accuracy allows: `run(system, master, stop=…, adaptive=Adaptive(...))`.

Steps are whole multiples of a quantum of time (`variable.py`). Lengths are rounded to eight per octave, so that the
constants of a length are worked out once. With ε the error of a step as a multiple of what is tolerated, and
p the order of the master, the next step is that of a PI controller,

    h' = 0.9 h ε^(−0.7 / (p + 1)) ε_before^(0.4 / (p + 1)),        h/5 ≤ h' ≤ 2 h.

"energy" takes ε from power bonds and connection defects (`indicators.py`): nothing is repeated, every step is accepted.
"doubling" makes every two steps also as one of twice the length (`doubling.py`), and again when ε > 1. Steps end where
external inputs jump (`jumps.py`); afterwards, as at the start, they begin short.
"""

from cosimo.execution.adaptive.options import Adaptive
from cosimo.execution.adaptive.session import run_adaptive

__all__ = ["Adaptive", "run_adaptive"]
