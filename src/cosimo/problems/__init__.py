"""Built-in systems: one file per benchmark, with its citation."""

from cosimo.problems.catalogue import CATALOGUE, Problem, find
from cosimo.problems.chain import chain
from cosimo.problems.dc_motor import dc_motor
from cosimo.problems.double_mass_spring_damper import double_mass_spring_damper
from cosimo.problems.four_mass import four_mass
from cosimo.problems.manipulator import manipulator, manipulator_pressure, manipulator_steps
from cosimo.problems.motor_gearbox import motor_gearbox
from cosimo.problems.oscillators import oscillator_linear, oscillator_nonlinear
from cosimo.problems.pendula import pendula
from cosimo.problems.quarter_truck import quarter_truck
from cosimo.problems.tank import tank
from cosimo.problems.thermal_pair import thermal_pair
from cosimo.problems.two_mass import two_mass, two_mass_damped, two_mass_undamped
from cosimo.problems.two_mass_glumac import two_mass_glumac

__all__ = [
    "CATALOGUE",
    "Problem",
    "chain",
    "dc_motor",
    "double_mass_spring_damper",
    "find",
    "four_mass",
    "manipulator",
    "manipulator_pressure",
    "manipulator_steps",
    "motor_gearbox",
    "oscillator_linear",
    "oscillator_nonlinear",
    "pendula",
    "quarter_truck",
    "tank",
    "thermal_pair",
    "two_mass",
    "two_mass_damped",
    "two_mass_glumac",
    "two_mass_undamped",
]
