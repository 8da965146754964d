"""A system as one federate: what it sees and publishes, against a plain Python federate."""

from __future__ import annotations

import csv
import json
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tests.formats.test_federation import FEDERATE, MODELS, federation
from tests.processes import COSIMO, Popen, run

import cosimo as co
from cosimo import load
from cosimo.core.errors import ConfigurationError, UnknownNameError
from cosimo.execution.federate import Membership, SystemFederate
from cosimo.units.remote import Hosts, answers

OTHER = """
import sys
import helics as h
port = sys.argv[1]
h.helicsCreateBroker("zmq", "x", f"--federates=2 --port={port} --local_interface=127.0.0.1 --loglevel=no_print")
info = h.helicsCreateFederateInfo()
h.helicsFederateInfoSetCoreTypeFromString(info, "zmq")
h.helicsFederateInfoSetFlagOption(info, h.HELICS_FLAG_UNINTERRUPTIBLE, True)
h.helicsFederateInfoSetCoreInitString(info, f"--federates=1 --broker_address=127.0.0.1 --brokerport={port}")
f = h.helicsCreateCombinationFederate("grid", info)
p = h.helicsFederateRegisterGlobalTypePublication(f, "grid/u", "double", "")
s = h.helicsFederateRegisterSubscription(f, "plant/lag.y", "")
h.helicsFederateEnterExecutingMode(f)
h.helicsPublicationPublishDouble(p, 2.0)
for k in range(1, 5):
    h.helicsFederateRequestTime(f, k / 4)
    print(repr(h.helicsInputGetDouble(s)), flush=True)
    h.helicsPublicationPublishDouble(p, 2.0 + k)
h.helicsFederateDisconnect(f)
sys.stdin.read()
"""
SCENARIO = """
step-size = 0.125
stop-time = 1.0
[units.lag]
kind = "state-space"
A = -1.0
B = 1.0
C = 1.0
inputs = ["u"]
outputs = ["y"]
start = { u = 0.5 }
"""


def test_values_arrive_one_period_after_they_were_published(tmp_path: Path) -> None:
    (tmp_path / "plant.toml").write_text(SCENARIO)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", OTHER, str(port)], **pipes) as other:  # type: ignore[call-overload]
        words = ["--subscribe", "lag.u=grid/u", "--period", "0.25", "-o", "plant.csv", "-q"]
        broker = ["--broker", f"127.0.0.1:{port}", "--patience", "100"]
        while not answers(("127.0.0.1", port)):
            assert other.poll() is None
            time.sleep(0.05)
        done = run([*COSIMO, "federate", "plant.toml", *broker, *words], cwd=tmp_path, capture_output=True, timeout=120)
        seen, _ = other.communicate(timeout=120)
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader((tmp_path / "plant.csv").read_text().splitlines()))
    y = [float(row["lag.y"]) for row in rows]
    # Recorded inputs are left limits: what acted over the step before the row. Exchanges are at every second one.
    assert [float(row["lag.u"]) for row in rows] == [0.5, 0.5, 0.5, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0]
    # The other sees at k/4 what was published before it: the output of one period earlier.
    assert [float(text) for text in seen.split()] == [y[0], y[2], y[4], y[6]]


@pytest.mark.parametrize("multiple", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_iterating_with_a_federation_is_what_the_verdict_judges(multiple: int, tmp_path: Path) -> None:
    """One federate uses HELICS alone, the other is a system: the rows are those of the federation's schedule."""
    settings = {"period": 0.2, "program": "FGH", "iterations": 3}
    file = federation(tmp_path, {"a": settings, "b": settings})
    expected = load(file).run(stop=2.0)
    model = MODELS["b"]
    matrices = "\n".join(f"{key} = {model[key]}" for key in "ABC")
    (tmp_path / "plant.toml").write_text(
        f"step-size = {0.2 / multiple}\nstop-time = 2.0\n[units.b]\nkind = 'state-space'\n{matrices}\n"
        f"initial = {model['x']}\ninputs = ['force']\noutputs = ['q']\nstart = {{ force = 0.0 }}\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    network = {"core_type": "zmq", "core_init_string": f"--federates=1 --broker_address=127.0.0.1 --brokerport={port}"}
    (tmp_path / "a.json").write_text(json.dumps(json.loads((tmp_path / "a.json").read_text()) | network))
    options = f"-f 2 --port={port} --local_interface=127.0.0.1 --loglevel=no_print"
    with Popen([sys.executable, str(FEDERATE), str(tmp_path), "a", "2.0", options]) as other:
        while not answers(("127.0.0.1", port)):
            assert other.poll() is None
        words = ["--subscribe", "b.force=a/q", "--publish", "b.q=b/q", "--period", "0.2", "--iterations", "3"]
        broker = ["--broker", f"127.0.0.1:{port}", "--name", "b", "-o", "plant.csv", "-q"]
        done = run([*COSIMO, "federate", "plant.toml", *broker, *words], cwd=tmp_path, capture_output=True, timeout=120)
        assert done.returncode == 0, done.stderr
        assert other.wait(timeout=120) == 0
    rows = list(csv.DictReader((tmp_path / "plant.csv").read_text().splitlines()))[::multiple]
    np.testing.assert_allclose([float(row["b.q"]) for row in rows], expected["b.q"], rtol=0, atol=1e-12)
    published = dict(json.loads((tmp_path / "a.rows").read_text()))  # the last of each time
    np.testing.assert_allclose([*published.values()], expected["a.q"], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("given", "kind", "said"),
    [
        ({"inputs": {"lag.x": "k"}}, UnknownNameError, "unknown unconnected input 'lag.x'"),
        ({"outputs": {"lag.z": "k"}}, UnknownNameError, "unknown output 'lag.z'"),
        ({"period": 0.3}, ConfigurationError, "multiple of the macro step of 0.125 s"),
        ({"offset": -0.125}, ConfigurationError, "the offset is -0.125 s"),
        ({"period": 0.0}, ConfigurationError, "at least one macro step"),
        ({"iterations": 0}, ConfigurationError, "'iterations' is 0"),
    ],
)
def test_what_does_not_fit_is_refused(given: dict[str, object], kind: type[Exception], said: str) -> None:
    unit = co.StateSpace(-1.0, 1.0, 1.0, inputs=["u"], outputs=["y"], start={"u": 0.5})
    with pytest.raises(kind, match=said):
        SystemFederate(
            Membership(Hosts("127.0.0.1:1"), "plant", **given),  # type: ignore[arg-type]
            co.System({"lag": unit}),
            0.125,
            0.0,
        )


def test_units_inside_others_have_dots_in_their_names() -> None:
    """As those of nested packages: the variable is what follows the name of the unit."""
    lag = co.StateSpace(-1.0, 1.0, 1.0, inputs=["u"], outputs=["y"], start={"u": 0.5})
    system = co.System({"plant.lag": lag}, [])
    how = Membership(Hosts("127.0.0.1:1"), "x", inputs={"plant.lag.u": "grid/u"}, outputs={"plant.lag.y": "plant/y"})
    federate = SystemFederate(how, system, 0.1, 0.0)
    (source,) = federate.system.external("plant.lag").values()
    assert source(0.0) == 0.5
