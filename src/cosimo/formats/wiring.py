"""Connections between FMU variables: types checked, units of measure converted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cosimo.core.system import Connection, System
from cosimo.core.unit import Unit
from cosimo.units.fmu import Fmu
from cosimo.units.fmu_variables import VariableInfo, check_connection


def directory(units: Mapping[str, Unit]) -> System:
    """A system in which names can be looked up before it is known what feeds which input."""
    inputs = {f"{name}.{variable}": 0.0 for name, unit in units.items() for variable in unit.inputs}
    return System(units, inputs=inputs)


def convert_connection(known: System, connection: Connection) -> Connection:
    """target = gain · convert(source) + offset; conversions only between FMUs, as other units declare none."""
    source, target = known.output(connection.source), known.input(connection.target)
    giver, taker = known.units[source.unit], known.units[target.unit]
    if not isinstance(giver, Fmu) or not isinstance(taker, Fmu):
        return connection
    gives = replace(giver.output_infos[source.index], name=connection.source)
    takes = replace(taker.input_infos[target.index], name=connection.target)
    return combine(connection, gives, takes)


def combine(connection: Connection, gives: VariableInfo, takes: VariableInfo) -> Connection:
    """The connection with the conversion between the two variables before its own gain and offset."""
    conversion = check_connection(gives, takes)
    return replace(
        connection,
        gain=connection.gain * conversion.gain,
        offset=connection.gain * conversion.offset + connection.offset,
        convert=False,
    )
