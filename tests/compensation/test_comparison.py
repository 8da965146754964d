"""Runs side by side, and what `cosimo compensate` prints of them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import processes
from cosimo import masters
from cosimo.analysis.error_norms import nrms
from cosimo.compensation import compare, compensate
from cosimo.compensation.comparison import observed
from cosimo.compensation.target import rebuild, require_linear
from cosimo.core.document import as_json, as_text
from cosimo.core.errors import ConfigurationError
from cosimo.core.master import Master
from cosimo.core.system import System
from cosimo.couplings import Dmd
from cosimo.execution.running import run
from cosimo.papers.mechanics import coupling_signal, monolithic_motion
from cosimo.problems import four_mass, motor_gearbox, two_mass, two_mass_undamped
from cosimo.reporting.documents import compensation_document
from cosimo.units import ForwardEuler, Mechanical, PythonUnit, StateSpace

PAGE = Path(__file__).parents[2] / "docs" / "command-line.md"


def early(system: System, h: float) -> Master:
    return masters.jacobi_early_read(system, h)


def cosimo(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cosimo.cli", *arguments]
    return processes.run(command, capture_output=True, text=True, check=False, timeout=300)


def test_the_papers_numbers_come_out() -> None:
    """Free evolution under the papers' convention (tamellin2022, Sec. 5.2 and 6.2; richiedei2024): NRMS, energies."""
    system = two_mass_undamped()
    found = compare(compensate(system, early(system, 1e-3)), stop=20.0)
    assert found.monolithic is not None
    for trajectory, x2, force in ((found.monolithic, 0.00496, 0.00196), (found.uncompensated, 0.2745, 0.1090)):
        assert trajectory.nrms is not None
        assert trajectory.nrms["two.x"] == pytest.approx(x2, rel=0.02)
        assert trajectory.nrms["one.f"] == pytest.approx(force, rel=0.02)
    system = four_mass()
    found = compare(compensate(system, early(system, 3e-3)), stop=10.0)
    assert found.uncompensated.nrms is not None
    assert found.uncompensated.nrms["right.x3"] == pytest.approx(0.0755, rel=0.03)
    assert found.uncompensated.nrms["left.f"] == pytest.approx(0.126, rel=0.03)
    system = motor_gearbox()
    found = compare(compensate(system, early(system, 1e-4)), stop=0.5)
    assert found.energy_start is not None
    energies = {name: trajectory.energy for name, trajectory in found.runs.items()}
    for name, ratio in {"exact": 0.943, "monolithic": 0.974, "uncompensated": 4.19, "compensated": 0.974}.items():
        assert energies[name] == pytest.approx(ratio * found.energy_start, rel=0.01)


def test_runs_are_the_runs_of_the_given_masters() -> None:
    system, h = two_mass(), 4e-3
    found = compensate(system, masters.jacobi(system, h))
    compared = compare(found, stop=2.0)
    for master, trajectory in (
        (masters.jacobi(system, h), compared.uncompensated),
        (found.master, compared.compensated),
    ):
        last = run(system, master, stop=2.0).values[-1]
        assert list(trajectory.final.values()) == last.tolist()
    assert not compared.uncompensated.stable
    assert compared.compensated.stable


def test_offsets_and_start_values_reach_the_undivided_system() -> None:
    """A constant force and an offset: every run comes to rest at the same place, k x = force + offset."""
    from cosimo.core.system import Connection

    one = Mechanical(1.0, 5.0, 100.0, B=[[1.0, 1.0]], displacement=1.0, inputs=["f", "weight"], start={"weight": 3.0})
    two = Mechanical(1.0, 5.0, 50.0, B=1.0, displacement=1.0, inputs=["f"])
    system = System({"one": one, "two": two}, [Connection("one.y1", "two.f", 10.0, 2.0), ("two.y1", "one.f")])
    compared = compare(compensate(system, masters.jacobi(system, 0.01)), stop=20.0)
    rest = np.linalg.solve([[100.0, -1.0], [-10.0, 50.0]], [3.0, 2.0])
    for trajectory in compared.runs.values():
        assert list(trajectory.final.values()) == pytest.approx(rest, rel=1e-6)
    # 10 x1 on mass 2 and x2 on mass 1 have no potential.
    assert compared.energy_start is None


def test_a_run_that_diverges_is_reported() -> None:
    system = two_mass()
    compared = compare(compensate(system, masters.jacobi(system, 2e-2)), stop=2000.0)
    assert compared.uncompensated.diverged == pytest.approx(794, rel=0.05)
    assert compared.uncompensated.final == {}
    assert compared.compensated.diverged is None


def test_an_exact_solution_without_end_is_refused() -> None:
    system = two_mass(k1=-200.0)
    with pytest.raises(ConfigurationError, match="itself overflows before t = 200"):
        compare(compensate(system, masters.jacobi(system, 1e-2)), stop=200.0)


def test_different_integrators_have_no_monolithic_run() -> None:
    units = {"a": StateSpace(-1.0, 1.0, 1.0, initial=1.0), "b": StateSpace(-2.0, 1.0, 1.0, integrator=ForwardEuler())}
    system = System(units, [("a.y1", "b.u1"), ("b.y1", "a.u1")])
    found = compensate(system, masters.jacobi(system, 0.05), target="exact")
    compared = compare(found, stop=2.0)
    assert compared.monolithic is None
    assert compared.compensated.nrms is not None
    assert max(compared.compensated.nrms.values()) < 1e-12
    head = next(line for line in as_text(compensation_document(found, compared)).splitlines() if "until t" in line)
    assert head.split()[-3:] == ["exact", "uncompensated", "compensated"]


def test_the_command_prints_the_three_runs_side_by_side() -> None:
    done = cosimo("compensate", "two-mass", "--step-size", "4e-3", "--master", "jacobi-early-read", "--target", "exact")
    assert done.returncode == 0, done.stderr
    head = next(line for line in done.stdout.splitlines() if "uncompensated" in line)
    assert head.split()[-4:] == ["exact", "monolithic", "uncompensated", "compensated"]
    stable = next(line for line in done.stdout.splitlines() if line.startswith("  stable"))
    assert stable.split() == ["stable", "yes", "yes", "NO", "yes"]


def test_the_command_in_json_has_what_the_page_names() -> None:
    done = cosimo("compensate", "two-mass", "--step-size", "2e-2", "--stop-time", "1000", "--json")
    assert done.returncode == 0, done.stderr
    fields = json.loads(done.stdout)
    assert fields["stable"]
    assert fields["runs"]["uncompensated"]["diverged_at"] > 700
    assert fields["runs"]["compensated"]["diverged_at"] is None
    assert fields["runs"]["exact"]["nrms"] is None
    section = PAGE.read_text(encoding="utf-8").split("## compensate\n")[1].split("\n## ")[0]
    nested = [fields["modes"][0], fields["sensitivity"][0], fields["runs"], fields["runs"]["compensated"]]
    names = {*fields, *(name for part in nested for name in part)}
    assert not [name for name in names if f"`{name}`" not in section]
    # And nothing beside that.
    listed = re.findall(r"^\| (`.*?`) \|", section.split("| field of `--json` |")[1], re.MULTILINE)
    assert {name for cell in listed for name in re.findall(r"`(\w+)`", cell)} == set(fields)


def test_fields_are_plain_data() -> None:
    system = two_mass()
    found = compensate(system, masters.jacobi(system, 4e-3))
    fields = as_json(compensation_document(found, compare(found, stop=0.1)))
    assert json.loads(json.dumps(fields, allow_nan=False)) == fields


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["two-mass", "--target", "best"], "'target' must be 'monolithic' or 'exact' or 'converged', not 'best'"),
        (["four-mass", "--target", "exact"], "unit 'left' cannot follow the target"),
        (["two-mass", "--master", "iterative"], "masters that do not iterate"),
        (["two-mass", "--stop-time", "0"], "stop time"),
    ],
)
def test_wrong_input_ends_with_one_line_and_code_2(arguments: list[str], message: str) -> None:
    done = cosimo("compensate", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_one_rule_decides_what_is_stable() -> None:
    """Rigid motion: the verdict on the design and the table of runs say the same."""
    system = two_mass(k1=0.0, k2=0.0, damping=0.0)
    for target in ("monolithic", "exact"):
        found = compensate(system, masters.jacobi(system, 1e-3), target=target)  # type: ignore[arg-type]
        compared = compare(found, stop=1.0)
        assert found.stable
        assert compared.compensated.stable
        assert compared.monolithic is not None
        assert compared.monolithic.stable
        assert not compared.uncompensated.stable


def test_spectral_radii_are_per_macro_step() -> None:
    system = two_mass()
    found = compensate(system, masters.multirate(system, 4e-3, multiples={"one": 2, "two": 3}))
    compared = compare(found, stop=1.0)
    assert compared.monolithic is not None
    assert compared.monolithic.radius == pytest.approx(found.target_radius, rel=1e-10)
    assert compared.monolithic.radius == pytest.approx(compared.compensated.radius, rel=1e-8)


def test_what_feeds_inputs_through_is_the_monolithic_force_when_read_early() -> None:
    """And unit 1's own states always; under jacobi the force shows the corrected input, and is marked."""
    system, h, steps = two_mass(), 4e-3, 2000
    for build, error in ((masters.jacobi, (5e-3, 5e-2)), (masters.jacobi_early_read, (0.0, 1e-12))):
        found = compensate(system, build(system, h))
        late = int(build is masters.jacobi_early_read)
        twin, master = observed(system, found.master)
        ours = run(twin, master, stop=(steps + 1) * h)
        motion = monolithic_motion(system, h, steps)
        for name, wanted in (("one.state 1", motion.positions[:, 0]), ("one.state 2", motion.velocities[:, 0])):
            assert np.abs(ours[name][late : steps + 1 + late] - wanted).max() <= 1e-10 * np.abs(wanted).max()
        force = coupling_signal(system, motion, "one.f")
        gap = np.abs(ours["one.f"][late : steps + 1 + late] - force)[1:].max() / np.abs(force).max()
        assert error[0] <= gap <= error[1]
        compared = compare(found, stop=0.1)
        assert compared.fed_through == (() if late else ("one.f",))
        text = as_text(compensation_document(found, compared))
        assert ("one.f*, end" in text and "  * compensated: shows" in text) == (not late)


def test_couplings_that_learn_are_refused_with_advice() -> None:
    system = two_mass()
    with pytest.raises(ConfigurationError, match=r"'two\.f' learns while running.*inputs are held \(Hold\(0\)\)"):
        compensate(system, masters.jacobi(system, 4e-3, coupling=Dmd()))


def test_runs_beside_the_exact_solution_need_known_equations() -> None:
    class Still:
        inputs: tuple[str, ...] = ()
        outputs = ("y",)
        y = 1.0

        def step(self, time: float, duration: float) -> None:
            """Nothing happens."""

    system = System({"a": PythonUnit(Still)})
    with pytest.raises(ConfigurationError, match="'a' is a PythonUnit, whose equations are not known"):
        compare(compensate(system, masters.jacobi(system, 0.01)), stop=1.0)


def test_micro_steps_are_refused_with_their_own_reason() -> None:
    system = two_mass()
    units = {name: rebuild(unit, micro_steps=2) for name, unit in require_linear(system).items()}
    fine = System(units, system.connections)
    with pytest.raises(ConfigurationError, match="2 micro steps use one constant input; use micro_steps=1") as caught:
        compensate(fine, masters.jacobi(fine, 4e-3))
    assert "use target 'monolithic'" not in str(caught.value)


def test_nrms() -> None:
    """One measure for all: the range of the reference; at rest 0 or infinite, never NaN."""
    rest, moved = np.zeros(3), np.array([0.0, 2.0, 4.0])
    assert nrms(rest, rest) == 0
    assert nrms(moved, rest) == np.inf
    assert nrms(moved + 1, moved) == 0.25
    assert nrms(np.array([0.0, np.inf, 1e300]), moved) == np.inf
    assert nrms(np.array([0.0, np.nan, 1.0]), moved) == np.inf
