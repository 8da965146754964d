"""Which numbers of z carry the dynamics from one macro step to the next.

Slots that nobody reads before they are overwritten, slots that are always zero, and save slots that merely keep what
they hold would show up as eigenvalues 0 or 1 of Φ that mean nothing. They are found from the structure and left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

Indices = npt.NDArray[np.intp]


def live_slots(Phi: Any, states: npt.ArrayLike) -> Indices:
    """The places of z that are read by others (or are `states`) and are not always zero.

    Removing the rest changes no other eigenvalue: Φ is block-triangular with respect to it.

    >>> live_slots(np.array([[0.5, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]), [0])
    array([0])
    """
    pattern = sp.csr_array(Phi != 0)
    alive = np.arange(pattern.shape[0])
    physical = np.zeros(pattern.shape[0], dtype=bool)
    physical[np.asarray(states, dtype=int)] = True
    while True:
        part = pattern[alive][:, alive].astype(int)
        own = part.diagonal()
        read = np.asarray(part.sum(axis=0)).ravel() - own
        written = np.asarray(part.sum(axis=1)).ravel()
        keep = (written > 0) & ((read > 0) | ((own > 0) & physical[alive]))
        if keep.all():
            return alive
        alive = alive[keep]
