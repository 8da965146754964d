"""Federations of HELICS: what their settings mean, against HELICS itself; what is read, and what is refused."""

from __future__ import annotations

import json
import re
import socket
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosimo import load
from cosimo.core.errors import ConfigurationError, FileError, FileFindings
from cosimo.formats.federation import load_federation
from processes import Popen
from thinning import mostly_slow

FEDERATE = Path(__file__).with_name("federate.py")
STIFFNESS, DAMPING = 4.0, 0.3
MODELS = {  # two masses with a spring between them, each with a damper to the ground; each sees where the other is
    "a": {"A": [[0, 1], [-STIFFNESS, -DAMPING]], "B": [[0], [STIFFNESS]], "C": [[1, 0]], "x": [1, 0]},
    "b": {"A": [[0, 1], [-2 * STIFFNESS, -DAMPING]], "B": [[0], [STIFFNESS]], "C": [[1, 0]], "x": [0, 0]},
}
SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "one period": ({"period": 0.2, "program": "FGH"}, {"period": 0.2, "program": "FGH"}),
    "publish first": ({"period": 0.1, "program": "HFG"}, {"period": 0.1, "program": "HFG"}),
    "wait": (
        {"period": 0.1, "program": "FGH"},
        {"period": 0.1, "program": "FGH", "wait_for_current_time_update": True},
    ),
    "two periods": (
        {"period": 0.1, "program": "FGH", "uninterruptible": True},
        {"period": 0.2, "program": "FHG", "wait_for_current_time_update": True},
    ),
    "offset": ({"period": 0.2, "program": "FGH"}, {"period": 0.2, "offset": 0.1, "program": "FGH"}),
    "late offset": ({"period": 0.2, "program": "HFG"}, {"period": 0.2, "offset": 0.05, "program": "HFG"}),
    "iteration": (
        {"period": 0.2, "program": "FGH", "iterations": 3},
        {"period": 0.2, "program": "FGH", "iterations": 3},
    ),
}


def federation(folder: Path, settings: dict[str, dict[str, Any]], **more: Any) -> Path:
    """The files of a federation of `a` and `b`: configurations as HELICS reads them, and the file that lists them."""
    for name, own in settings.items():
        other = "b" if name == "a" else "a"
        shared = {
            "name": name,
            "publications": [{"key": "q", "type": "double"}],
            "subscriptions": [{"key": f"{other}/q", "variable": "force"}],
            "model": MODELS[name],
        }
        (folder / f"{name}.json").write_text(json.dumps(shared | own))
    units = {
        name: {"kind": "state-space", "A": m["A"], "B": m["B"], "C": m["C"], "initial": m["x"]}
        | {"inputs": ["force"], "outputs": ["q"]}
        for name, m in MODELS.items()
    }
    listed = [{"name": n, "exec": f"python federate.py . {n}", "config": f"{n}.json"} for n in settings]
    path = folder / "federation.json"
    path.write_text(json.dumps({"federates": listed, "cosimo": {"units": units, "stop-time": 8.0}} | more))
    return path


def run_helics(folder: Path, stop: float) -> dict[str, np.ndarray]:
    """The rows [time, output] of two federates in processes of their own, coupled by HELICS on the loopback device."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for name in "ab":
        file = folder / f"{name}.json"
        network = {"core_type": "zmq_ss", "core_init_string": f"--brokerport={port}"}
        file.write_text(json.dumps(json.loads(file.read_text()) | network))
    broker = {"a": [f"-f 2 --port={port} --ipv4"], "b": []}
    words = {name: [sys.executable, str(FEDERATE), str(folder), name, str(stop), *broker[name]] for name in "ab"}
    started = [Popen(command) for command in words.values()]
    try:
        assert [process.wait(timeout=300) for process in started] == [0, 0]
    finally:
        for process in started:
            process.kill()
            process.wait()
    return {name: np.array(json.loads((folder / f"{name}.rows").read_text())) for name in "ab"}


@pytest.mark.parametrize("case", mostly_slow(SETTINGS, ["publish first", "two periods", "offset", "iteration"]))
def test_the_schedule_is_what_helics_does(case: str, tmp_path: Path) -> None:
    """Outputs of a federation with HELICS alone equal those of the schedule that its configuration became, to rounding;
    their growth and their error are those of the verdict, which has seen the configuration only."""
    a, b = SETTINGS[case]
    scenario = load(federation(tmp_path, {"a": a, "b": b}))
    verdict = scenario.analyse()
    result = scenario.run()
    rows = run_helics(tmp_path, 8.0)
    seen = {}
    for name, settings in (("a", a), ("b", b)):
        published = dict(zip(np.round(rows[name][:, 0], 9), rows[name][:, 1], strict=True))  # the last of each time
        times = result.time - scenario.step + settings["offset"] if "offset" in settings else result.time
        seen[name] = np.array([published[time] for time in np.round(times[1:], 9)])
        if "offset" not in settings:  # else it publishes within macro steps, and the result has it at their ends
            np.testing.assert_allclose(result[f"{name}.q"][1:], seen[name], rtol=0, atol=1e-10)
            error = np.abs(seen[name] - true_solution(result.time[1:])[name]).max()
            largest = np.abs(true_solution(np.linspace(0, 8, 8001))[name]).max()
            # The verdict meets the peak of the true solution to some 1e-5: it samples it a few times per oscillation.
            assert verdict.error.outputs[f"{name}.q"] == pytest.approx(error / largest, rel=1e-4)
    assert verdict.spectral_radius == pytest.approx(growth(np.array([seen["a"], seen["b"]])), abs=2e-6)


def growth(outputs: np.ndarray) -> float:
    """The factor by which the fastest-growing part of sampled outputs (p, N) grows from one sample to the next: the
    spectral radius of the map between windows of them (Ho and Kalman, 1966)."""
    width = 8
    windows = np.vstack([outputs[:, k : outputs.shape[1] - width + k] for k in range(width)])
    left, sizes, right = np.linalg.svd(windows[:, :-1], full_matrices=False)
    rank = int((sizes > 1e-10 * sizes[0]).sum())
    reduced = left[:, :rank].T @ windows[:, 1:] @ right[:rank].T / sizes[:rank]
    return float(np.abs(np.linalg.eigvals(reduced)).max())


def true_solution(times: np.ndarray) -> dict[str, np.ndarray]:
    """The two masses in one model."""
    parts = {name: {key: np.array(value, dtype=float) for key, value in m.items()} for name, m in MODELS.items()}
    a, b = parts["a"], parts["b"]
    whole = np.block([[a["A"], a["B"] @ b["C"]], [b["B"] @ a["C"], b["A"]]])
    values, shapes = np.linalg.eig(whole)
    start = np.linalg.solve(shapes, np.concatenate([a["x"], b["x"]]))
    states = (np.exp(np.outer(times, values)) * start) @ shapes.T
    return {"a": states[:, 0].real, "b": states[:, 2].real}


def test_settings_that_no_schedule_has_are_refused(tmp_path: Path) -> None:
    refused = {
        "no period": ({"period": 0}, "federate 'a' has no period"),
        "period": ({"period": "fast"}, "period is 'fast'; give seconds"),
        "offset": ({"period": 0.1, "offset": 0.1}, "the offset must not be negative, and less than the period"),
        "program": ({"period": 0.1, "program": "GFH"}, "program is 'GFH'; give FGH, FHG or HFG"),
        "delay": ({"period": 0.1, "output_delay": 0.1}, "output_delay changes when values arrive"),
        "flags": ({"period": 0.1, "flags": ["delayed_update"]}, "delayed_update changes when values arrive"),
        "iterations": ({"period": 0.1, "iterations": 0}, "iterations is 0; give a number from 1"),
        "tolerance": ({"period": 0.1, "iteration_tolerance": "1"}, "iteration_tolerance is '1'; give a number"),
        "endless": ({"period": "1e999999"}, "period is '1e999999'; give seconds"),
        "no number": ({"period": 0.1, "iteration_tolerance": [1]}, "iteration_tolerance is [1]; give a number"),
        "targets": ({"period": 0.1, "publications": [{"key": "q", "targets": 3}]}, "unknown input '3'"),
        "alike": ({"period": 0.1, "iterations": 2, "program": "FGH"}, "do not iterate alike"),
        "type": ({"period": 0.1, "publications": [{"key": "q", "type": "vector"}]}, "only numbers are judged"),
        "key": ({"period": 0.1, "publications": [{"type": "double"}]}, "one of its publications has no key"),
        "list": ({"period": 0.1, "publications": {"key": "q"}}, "publications must be a list of objects"),
        "unknown": (
            {"period": 0.1, "subscriptions": [{"key": "b/p"}]},
            "unknown publication 'b/p'; did you mean 'b/q'",
        ),
        "variable": (
            {"period": 0.1, "publications": [{"key": "q", "variable": "p"}]},
            "unknown output of federate 'a' 'p'",
        ),
        "target": ({"period": 0.1, "publications": [{"key": "q", "targets": ["b/f"]}]}, "unknown input 'b/f'"),
        "unit": (
            {"period": 0.1, "subscriptions": [{"key": "b/q", "unit": "mm"}], "publications": [{"key": "q"}]},
            "HELICS converts between them; add the factor",
        ),
    }
    for settings, message in refused.values():
        b = {"period": 0.1, "publications": [{"key": "q", "unit": "m"}]}
        with pytest.raises(FileError, match=re.escape(message)):
            load(federation(tmp_path, {"a": settings, "b": b}))


def test_federates_that_wait_for_each_other_are_refused(tmp_path: Path) -> None:
    both = {"period": 0.1, "waitForCurrentTimeUpdate": True}
    with pytest.raises(FileError, match="both wait for the current update; HELICS refuses that as a deadlock"):
        load(federation(tmp_path, {"a": both, "b": both}))


def test_a_step_across_macro_steps_whose_input_comes_within_it_is_refused(tmp_path: Path) -> None:
    fast, late = {"period": 0.1, "program": "FGH"}, {"period": 0.4, "offset": 0.2, "program": "FGH"}
    with pytest.raises(
        FileError, match="'b' makes the step that ends at its first grant with values that 'a' publishes"
    ):
        load(federation(tmp_path, {"a": fast, "b": late}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not valid JSON"),
        ("[]", "a configuration is an object"),
        ("{}", "'federates' must be a list of objects"),
        ('{"publications": []}', "the configuration of one federate"),
        ('{"federates": [{"period": 1}]}', "a federate has no name"),
        ('{"federates": [{"name": "a", "config": "c.json"}]}', "c.json' does not exist"),
        ('{"federates": [{"name": "a"}, {"name": "a"}]}', "two federates are called 'a'"),
        ('{"federates": [{"name": "a", "period": 1}]}', "what the members compute is missing"),
        ('{"federates": [{"name": "a", "period": 1}], "cosimo": {"unit": 1}}', "unit: unknown key"),
        ('{"federates": [{"name": "a", "period": 1}], "cosimo": {"problem": "two-mass"}}', "leave out connections"),
    ],
)
def test_a_file_that_is_no_federation_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "federation.json"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        load(path)


def test_members_and_federates_must_be_the_same(tmp_path: Path) -> None:
    path = federation(tmp_path, {"a": {"period": 1}, "b": {"period": 1}})
    told = json.loads(path.read_text())
    told["cosimo"]["units"]["c"] = told["cosimo"]["units"].pop("b")
    path.write_text(json.dumps(told))
    findings = FileFindings()
    with pytest.raises(FileError):
        load_federation(path, findings)
    messages = " ".join(map(str, findings.errors))
    assert "unknown unit under 'cosimo' 'b'" in messages
    assert "unknown federate 'c'" in messages


def test_inputs_comments_global_names_and_gains_are_read_as_helics_reads_them(tmp_path: Path) -> None:
    b = {"period": "100 ms", "inputs": [{"name": "force", "units": "N", "targets": "position", "gain": 2}]}
    settings = {"a": {"period": 0.05, "publications": [{"key": "position", "global": True, "unit": "m"}]}, "b": b}
    path = federation(tmp_path, settings)
    own = json.loads((tmp_path / "b.json").read_text())
    del own["subscriptions"]
    text = json.dumps(own).replace('"period"', '/* the\n period */ "period"', 1) + "// of b"
    (tmp_path / "b.json").write_text(text)
    scenario = load(path)
    assert [(str(c), c.gain) for c in scenario.system.connections] == [("b.q → a.force", 1.0), ("a.q → b.force", 2.0)]
    assert scenario.master.name == "federation(a:HFG:1/2,b:HFG:1)"
    assert scenario.step == 0.1
    assert ["has no 'program'" in finding.message for finding in scenario.warnings] == [True, True]


def test_what_the_verdict_does_not_cover_is_told(tmp_path: Path) -> None:
    a = {"period": 0.1, "flags": 3, "endpoints": [{"name": "e"}], "publications": [{"key": "q", "tolerance": "1"}]}
    b = {"period": 0.1, "program": "FGH", "max_iterations": 3}
    told = [finding.message for finding in load(federation(tmp_path, {"a": a | {"program": "FGH"}, "b": b})).warnings]
    assert len(told) == 3
    assert "says nothing of its endpoints" in told[0]
    assert "does not send changes of 'q' below its tolerance" in told[1]
    assert "max_iterations alone does not say that it iterates" in told[2]


def test_units_may_stand_in_a_scenario_file(tmp_path: Path) -> None:
    path = federation(tmp_path, {"a": {"period": 0.1}, "b": {"period": 0.1}}, cosimo="members.toml")
    lines = ["stop-time = 1.0"]
    for name, m in MODELS.items():
        lines += [f"[units.{name}]", 'kind = "state-space"', 'inputs = ["force"]', 'outputs = ["q"]']
        lines += [f"{key} = {m[key]}" for key in "ABC"] + [f"initial = {m['x']}"]
    (tmp_path / "members.toml").write_text("\n".join(lines))
    scenario = load(path)
    assert scenario.stop == 1.0
    assert str(scenario.master) == "G1 G2 F1 F2 H1 H2"
