"""Connections between FMU variables: types checked, units of measure converted, texts refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cosimo.core.errors import ConfigurationError
from cosimo.core.system import Connection, System
from cosimo.core.unit import Unit
from cosimo.units.fmu import Fmu
from cosimo.units.fmu_variables import VariableInfo, check_connection


def directory(units: Mapping[str, Unit]) -> System:
    """A system in which names can be looked up before it is known what feeds which input."""
    inputs = {f"{name}.{variable}": 0.0 for name, unit in units.items() for variable in unit.inputs}
    return System(units, inputs=inputs)


def refuse_text(units: Mapping[str, Unit], name: str) -> None:
    """Say of a text that it is one; other unknown names are left to the system."""
    for place in (place for place, letter in enumerate(name) if letter == "."):
        unit = units.get(name[:place])
        if isinstance(unit, Fmu):
            info = unit.variables.get(name[place + 1 :])
            if info is not None and info.type == "String" and info.causality in ("input", "output"):
                raise ConfigurationError(
                    f"{name} is a text; only numbers are exchanged while running. Give it a start value instead."
                )


def convert_connection(known: System, connection: Connection) -> Connection:
    """target = gain · convert(source) + offset; conversions only between FMUs, as other units declare none."""
    for name in (connection.source, connection.target):
        refuse_text(known.units, name)
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
