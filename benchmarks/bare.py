"""The bare C loop, compiled here, over the functions of the FMUs that the kernel runs."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from cosimo.core.system import System
from cosimo.execution.live import Live


class _Unit(ctypes.Structure):
    _fields_ = (
        [(name, ctypes.c_void_p) for name in ("component", "set", "get", "step", "in_", "out")]
        + [("inputs", ctypes.c_size_t), ("outputs", ctypes.c_size_t)]
        + [("u", ctypes.c_void_p), ("y", ctypes.c_void_p)]
    )


def library() -> ctypes.CDLL:
    """The compiled C file beside this one."""
    folder = Path(tempfile.mkdtemp(prefix="cosimo-bench-"))
    target = folder / "bare.so"
    source = Path(__file__).with_name("bare.c")
    subprocess.run(["cc", "-O3", "-shared", "-fPIC", "-pthread", "-o", str(target), str(source)], check=True)
    return ctypes.CDLL(str(target))


class BareLoop:
    """Jacobi over the instances of initialised live units."""

    def __init__(self, code: ctypes.CDLL, live: Live) -> None:
        self._loop, self._h, self.made = code.bare_loop, live.master.step, 0
        system: System = live.system
        self.y = np.concatenate([live.y[name] for name in system.units])
        self.u = np.concatenate([live.c[name][0] for name in system.units])
        outputs = {name: i for i, name in enumerate(system.outputs)}
        links = {link.connection.target: link.connection for link in system.links}
        self.source = np.array([outputs[links[name].source] for name in system.input_names], dtype=np.uint32)
        self.gain = np.array([links[name].gain for name in system.input_names])
        self.units = (_Unit * len(system.units))()
        self._keep: list[np.ndarray] = []
        at_u = at_y = 0
        for unit, (name, described) in zip(self.units, system.units.items(), strict=True):
            native = live.instances[name].native(1)
            unit.component = native.component
            unit.set, unit.get, unit.step = (native.address(f"fmi2{f}") for f in ("SetReal", "GetReal", "DoStep"))
            for field, groups in (("in_", native.inputs), ("out", native.outputs)):
                self._keep.append(np.array([r for group in groups for r in group.references], dtype=np.uint32))
                setattr(unit, field, self._keep[-1].ctypes.data)
            unit.inputs, unit.outputs = len(described.inputs), len(described.outputs)
            unit.u, unit.y = self.u[at_u:].ctypes.data, self.y[at_y:].ctypes.data
            at_u, at_y = at_u + unit.inputs, at_y + unit.outputs

    def advance(self, first: int, rows: np.ndarray) -> None:
        """As an engine does."""
        pointer = ctypes.c_void_p
        status = self._loop(
            self.units,
            ctypes.c_size_t(len(self.units)),
            *(pointer(a.ctypes.data) for a in (self.u, self.y)),
            ctypes.c_size_t(len(self.y)),
            *(pointer(a.ctypes.data) for a in (self.source, self.gain)),
            ctypes.c_size_t(len(self.u)),
            ctypes.c_double(self._h),
            ctypes.c_longlong(first),
            ctypes.c_longlong(len(rows)),
            pointer(rows.ctypes.data),
        )
        if status:
            raise RuntimeError(f"the bare loop met status {status}")
        self.made = len(rows)
