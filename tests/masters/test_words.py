"""Masters as words: what is written can be read again, on the command line and in scenario files."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from cosimo import compensate, masters
from cosimo.cli import app, completion
from cosimo.cli.tune import SpaceOptions
from cosimo.core.coupling import Coupling
from cosimo.core.errors import ConfigurationError, UnknownNameError
from cosimo.core.master import Master
from cosimo.core.system import System
from cosimo.couplings import COUPLINGS, Dmd, Hold, Nepce, coupling_forms, parse_coupling, tuned_couplings
from cosimo.formats.scenario_building import load_scenario, master_options
from cosimo.formats.scenario_tables import MasterTable, scenario_schema
from cosimo.masters import MASTERS, Convergence, Grants
from cosimo.masters.words import (
    MasterOptions,
    base_step,
    build_master,
    command_options,
    describe,
    options_of,
    scenario_lines,
)
from cosimo.problems import find, two_mass
from cosimo.tuning import Space
from cosimo.tuning.space import FAMILIES, parse_kinds
from cosimo.units import StateSpace
from thinning import examples

SEVERAL = [Hold(0), Hold(1), Hold(2), Nepce(0.25), Dmd(), Dmd(window=100), Dmd(window=30, method="recursive")]
FEDERATIONS: list[dict[str, Any]] = [
    {"members": [Grants("one", program="FGH"), Grants("two", Fraction(1, 3), program="FHG", waits=True)]},
    {"members": [Grants("two", Fraction(1, 2), offset=Fraction(1, 4), program="FGH"), Grants("one", Fraction(1, 2))]},
    {"members": [Grants("one", program="FGH"), Grants("two", program="FGH")], "sweeps": 3},
    {"members": [Grants("one", program="FHG"), Grants("two", program="FGH")], "sweeps": Convergence(1e-6, limit=9)},
]
TARGETS = ("one.x2", "one.v2", "two.f")


def every_master(system: System, h: float, **couplings: Any) -> list[Master]:
    """One of every kind, and of every option that a kind has."""
    a, b = system.names
    return [
        masters.jacobi(system, h, **couplings),
        masters.jacobi_early_read(system, h, **couplings),
        masters.gauss_seidel(system, h, **couplings),
        masters.gauss_seidel(system, h, order=[b, a], **couplings),
        masters.groups(system, h, order=[[b], [a]], **couplings),
        masters.groups(system, h, order=[[a, b]], **couplings),
        masters.strang(system, h, **couplings),
        masters.strang(system, h, order=[b, a], **couplings),
        masters.multirate(system, h, multiples={a: 3}, **couplings),
        masters.multirate(system, h, multiples={a: 2, b: 3}, inputs="interpolated", **couplings),
        masters.multirate(system, h, multiples={}, **couplings),
        masters.multirate(system, h, multiples={a: 3}, order=[[b], [a]], **couplings),
        masters.iterative(system, h, sweeps=1, **couplings),
        masters.iterative(system, h, sweeps=4, order=[b, a], **couplings),
        masters.iterative(system, h, **couplings),
        masters.iterative(system, h, sweeps=Convergence(1e-6), order=[a, b], **couplings),
        masters.iterative(system, h, sweeps=Convergence(limit=7, anderson=2), **couplings),
        masters.iterative(system, h, sweeps=Convergence(limit=7, quasi_newton=5), **couplings),
        masters.iterative(system, h, samples=3, order=["two", "one"], **couplings),
        *(masters.federation(system, h, **how, **couplings) for how in FEDERATIONS),
    ]


def again(system: System, master: Master) -> Master:
    options = options_of(master, system)
    assert options is not None
    return build_master(system, base_step(master), options)


@pytest.mark.parametrize("coupling", [None, *SEVERAL], ids=str)
def test_every_master_with_every_coupling_is_read_as_it_was_written(coupling: Coupling | None) -> None:
    system = two_mass()
    special = {"two.f": Nepce(0.5)} if not isinstance(coupling, Dmd) else {}
    for master in every_master(system, 1e-3, coupling=coupling, couplings=special):
        assert again(system, master) == master
    assert {options_of(master).name for master in every_master(system, 1e-3)} == set(MASTERS)  # type: ignore[union-attr]


HOLDS = st.sampled_from([Hold(0), Hold(1), Hold(2)])
GAINS = st.floats(0, 1, exclude_max=True, allow_subnormal=False).map(Nepce)


@given(
    place=st.integers(0, 15),
    step=st.floats(1e-9, 1e3),
    general=HOLDS | GAINS,
    special=st.dictionaries(st.sampled_from(TARGETS), HOLDS | GAINS),
)
@settings(max_examples=examples(150))
def test_any_step_and_any_gain_are_read_to_the_last_bit(
    place: int, step: float, general: Coupling, special: dict[str, Coupling]
) -> None:
    system = two_mass()
    # A coupling of one input that is the general one anyway needs no words.
    special = {target: coupling for target, coupling in special.items() if coupling != general}
    master = every_master(system, step, coupling=general, couplings=special)[place]
    assert again(system, master) == master


@given(place=st.integers(0, 15), step=st.floats(1e-6, 1.0), general=HOLDS | GAINS)
@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_lines_of_a_scenario_are_read_as_they_were_written(
    place: int, step: float, general: Coupling, tmp_path: Path
) -> None:
    system = two_mass()
    master = every_master(system, step, coupling=general)[place]
    path = tmp_path / "masses.toml"
    step_line, _, table = scenario_lines(master, system).partition("\n\n")
    path.write_text(f'problem = "two-mass"\n{step_line}\n{table}\n', encoding="utf-8")
    found = load_scenario(path)
    assert "options" in found.specified
    assert found.master == master


def test_the_command_line_reads_the_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the whole verb, up to the analysis, which is told the master."""
    seen: list[Master] = []

    def stop(self: Any, master: Any = None, **_: Any) -> None:
        seen.append(build_master(self.system, self.step, self.options))  # warm starts are not in words
        raise ConfigurationError("enough")

    monkeypatch.setattr("cosimo.formats.scenario.Scenario.analyse", stop)
    system = two_mass()
    wanted = every_master(system, 1 / 700, coupling=Hold(1), couplings={"two.f": Nepce(1 / 3)})
    for master in wanted:
        arguments = ["analyse", "two-mass", *shlex.split(command_options(master, system))]
        with pytest.raises(ConfigurationError, match="enough"):
            CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert seen == wanted


def test_the_options_of_a_real_run_give_the_same_figures() -> None:
    system = find("tank").system()
    master = masters.gauss_seidel(system, 0.25, order=["controller", "tank"], coupling=Hold(1))
    arguments = ["analyse", "tank", *shlex.split(command_options(master, system)), "--json"]
    fields = json.loads(CliRunner().invoke(app, arguments, catch_exceptions=False).stdout)
    assert (fields["master"], fields["schedule"], fields["step_size"]) == (master.name, str(master), 0.25)
    assert "linear extrapolation (hold1)" in fields["description"]


def ring(*names: str) -> System:
    units = {name: StateSpace(-1.0, 1.0, 1.0, inputs=["u"], outputs=["y"]) for name in names}
    return System(units, [(f"{a}.y", f"{b}.u") for a, b in zip(names, (*names[1:], names[0]), strict=True)])


@pytest.mark.parametrize("names", [("my unit", "b"), ("$(rm)", "b'c"), ("a.b", "a.c[1]"), ("größe 😀", "b")], ids=str)
def test_odd_names_of_units_survive_shell_and_scenario(names: tuple[str, str]) -> None:
    import tomllib

    system = ring(*names)
    master = masters.gauss_seidel(system, 0.1, order=names[::-1], couplings={f"{names[0]}.u": Hold(2)})
    assert again(system, master) == master
    words = shlex.split(command_options(master, system))
    assert words[words.index("--order") + 1] == ",".join(names[::-1])
    assert words[words.index("--coupling") + 1] == f"{names[0]}.u=hold2"
    table = tomllib.loads(scenario_lines(master, system))["master"]
    assert (table["order"], table["couplings"]) == (",".join(names[::-1]), [f"{names[0]}.u=hold2"])


def test_what_has_no_words_says_so() -> None:
    system = two_mass()
    odd = ring("a,b", "c")
    silent = [
        replace(compensate(system, masters.jacobi(system, 4e-3)).master, name="jacobi+feedback"),
        masters.jacobi(system, 1e-3, coupling=Dmd(window=100, centred=True)),
        masters.jacobi(system, 1e-3, couplings={"two.f": Dmd(window=20, delays=1)}),
        masters.gauss_seidel(odd, 1e-3),
        masters.gauss_seidel(ring(" a", "b"), 1e-3),
        Master("mine", masters.jacobi(system, 1e-3).schedule, 1e-3, Hold(0)),
    ]
    for master in silent:
        assert options_of(master) is None
        assert command_options(master) == scenario_lines(master) == ""
        assert describe(master)
    # Where no unit is named, its name does not matter.
    assert again(odd, masters.jacobi(odd, 1e-3)) == masters.jacobi(odd, 1e-3)


@pytest.mark.parametrize(
    ("master", "text"),
    [
        (masters.jacobi(two_mass(), 1e-3), "Jacobi at 1 ms"),
        (masters.jacobi_early_read(two_mass(), 1e-3), "Jacobi with early read (jacobi-early-read) at 1 ms"),
        (
            masters.gauss_seidel(two_mass(), 5e-4, coupling=Hold(2)),
            "Gauss–Seidel one → two at 500 µs, quadratic extrapolation (hold2)",
        ),
        (masters.groups(two_mass(), 1e-3, order=[["two", "one"]]), "groups (two, one) at 1 ms"),
        (masters.strang(two_mass(), 1e-3), "Strang splitting one → two at 1 ms"),
        (
            masters.multirate(two_mass(), 1e-3, multiples={"one": 2}),
            "multirate, one every 2 steps at 2 ms",
        ),
        (
            masters.multirate(two_mass(), 1e-3, multiples={"one": 2}, inputs="interpolated"),
            "multirate, one every 2 steps, interpolated at 2 ms",
        ),
        (masters.multirate(two_mass(), 1e-3, multiples={}), "multirate, all units every step at 1 ms"),
        (masters.iterative(two_mass(), 1e-3, sweeps=1), "Jacobi, 1 sweep (iterative) at 1 ms"),
        (
            masters.iterative(two_mass(), 1e-3, sweeps=2, order=["two", "one"]),
            "Gauss–Seidel two → one, 2 sweeps (iterative) at 1 ms",
        ),
        (masters.iterative(two_mass(), 1e-3), "Jacobi, iterated until converged (iterative) at 1 ms"),
        (
            masters.jacobi(two_mass(), 1e-3, couplings={"two.f": Nepce(0.6), "one.x2": Hold(1)}),
            "Jacobi at 1 ms, two.f nepce:0.6, one.x2 linear extrapolation (hold1)",
        ),
        (masters.jacobi(two_mass(), 1e-3, coupling=Dmd()), "Jacobi at 1 ms, data-driven extrapolation (dmd)"),
        (
            compensate(two_mass(), masters.jacobi(two_mass(), 4e-3)).master,
            "Jacobi at 4 ms, compensated inputs",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_one_notation_for_every_master(master: Master, text: str) -> None:
    assert describe(master) == text
    assert describe(master, step=False) == text.replace(f" at {text.partition(' at ')[2].partition(',')[0]}", "")


def test_masters_that_differ_are_described_differently() -> None:
    system = two_mass()
    found = [master for h in (Hold(0), Hold(1), Nepce(0.5)) for master in every_master(system, 1e-3, coupling=h)]
    texts = {describe(master, system) for master in found}
    # Tolerances, sweep limits and how an iteration is accelerated are left to the options.
    assert len(texts) == len(found) - 6
    assert len({command_options(master, system) for master in found}) == len(found)


def test_many_couplings_are_counted() -> None:
    system = ring("a", "b", "c", "d", "e", "f")
    couplings: dict[str, Coupling] = {f"{name}.u": Hold(1) for name in system.names}
    text = describe(masters.jacobi(system, 1e-3, couplings=couplings))
    assert text.endswith("d.u linear extrapolation (hold1), 2 more couplings")


def test_words_that_mean_nothing_are_refused() -> None:
    system = two_mass()
    for text in ("hold4", "hold0:2", "hold1:x", "nepce", "nepce:fast", "nepce:1", "dmd:0", "dmd:x", "dmd:10:slow", ""):
        with pytest.raises((ConfigurationError, UnknownNameError)):
            parse_coupling(text)
    with pytest.raises(UnknownNameError, match="did you mean 'jacobi'"):
        build_master(system, 1e-3, MasterOptions("jacobbi"))
    options = {"order": "one,two", "sweeps": 2, "tolerance": 1e-3, "inputs": "held", "multiples": {"one": 2}}
    for name, value in options.items():
        with pytest.raises(ConfigurationError, match="master 'jacobi' does not take the option"):
            build_master(system, 1e-3, MasterOptions(**{name: value}))  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="not both"):
        build_master(system, 1e-3, MasterOptions("iterative", sweeps=2, tolerance=1e-3))


# ---- one registry ----------------------------------------------------------------------------------------------------


def test_every_word_is_in_help_completion_schema_and_tuning() -> None:
    """What a user can read or press the tab key for is what the registries hold."""
    shown = {verb: " ".join(_help(verb)) for verb in ("run", "compare", "tune")}
    described = json.dumps(scenario_schema()["$defs"]["MasterTable"], ensure_ascii=False)
    for word in MASTERS:
        assert word in shown["run"]
        assert word in shown["compare"]
        assert word in described
        assert word in completion.masters()
    for form in coupling_forms():
        assert form in shown["run"]
        assert form in shown["compare"]
        assert form in described
        assert "".join(form.partition(":")[:2]) in completion.couplings()
    assert [word in shown["tune"] for word in tuned_couplings()] == [True] * len(tuned_couplings())
    assert set(Space().kinds) <= set(parse_kinds(tuned_couplings()))
    assert SpaceOptions().space().families == Space().families
    assert set(FAMILIES) == {word for word in MASTERS if MASTERS[word].tuned}


def test_tune_builds_every_master_and_coupling_that_it_offers() -> None:
    system = find("chain").system({"n": 3})
    space = Space(steps=1e-3, families=FAMILIES, sweeps=(2,), kinds=parse_kinds(tuned_couplings()))
    structures = space.resolve(system, fastest=10.0, horizon=1.0).structures
    built = [structure.master(system, 1e-3) for structure in structures]
    assert {master.name.partition("(")[0] for master in built} == set(FAMILIES)
    used = {type(coupling) for master in built for coupling in (master.coupling, *master.couplings.values())}
    assert used == {type(parse_coupling(COUPLINGS[word].example)) for word in tuned_couplings()}


def _help(verb: str) -> list[str]:
    """The help of a verb as words, without the frame around it."""
    text = CliRunner().invoke(app, [verb, "--help"], env={"COLUMNS": "400"}).stdout
    return text.replace("│", " ").split()


def test_one_group_cannot_be_split() -> None:
    """Named as a group, in a scenario as a list in a list; units without a semicolon are parts of their own."""
    system = two_mass()
    one = master_options(MasterTable(name="strang", order=[["one", "two"]]))
    for options in (one, MasterOptions("strang", order="one,two;")):
        with pytest.raises(ConfigurationError, match="at least two parts"):
            build_master(system, 1e-3, options)
    assert build_master(system, 1e-3, MasterOptions("strang", order="two,one")).name == "strang(two;one)"
    grouped = master_options(MasterTable(name="groups", order=[["one", "two"]]))
    assert build_master(system, 1e-3, grouped).name == "groups(one,two)"


def test_compensated_masters_are_said_by_their_plain_one_and_the_target() -> None:
    system = find("two-mass").system()
    plain = masters.gauss_seidel(system, 1e-3, order=["two", "one"], coupling=Hold(1))
    options = options_of(compensate(system, plain, target="converged").master, system)
    assert options == MasterOptions("gauss-seidel", "two,one", ("hold1",), follow="converged")
    assert options_of(plain, system) == replace(options, follow=None)
    with pytest.raises(ConfigurationError, match="designed for one system and step; leave follow out"):
        build_master(system, 1e-3, options)
    assert "--follow converged" in command_options(compensate(system, plain, target="converged").master, system)
