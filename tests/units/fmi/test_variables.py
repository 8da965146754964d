"""Variables: which connections are allowed and what they do to values, which values a user may give."""

from __future__ import annotations

import pytest

from cosimo.core.errors import ConfigurationError
from cosimo.core.unit import Conversion, UnitOfMeasure
from cosimo.units.fmi.variables import VariableInfo, check_connection, parse_value

METRE = UnitOfMeasure("m", (0, 1, 0, 0, 0, 0, 0, 0))
MILLIMETRE = UnitOfMeasure("mm", (0, 1, 0, 0, 0, 0, 0, 0), 1e-3)
SECOND = UnitOfMeasure("s", (0, 0, 1, 0, 0, 0, 0, 0))


def variable(kind: str, name: str = "v", unit: UnitOfMeasure | None = None) -> VariableInfo:
    return VariableInfo(name, kind, 0, unit=unit)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("Float64", "Float64"),
        ("Float32", "Float64"),
        ("Int32", "Float64"),
        ("Int64", "Float64"),
        ("Int16", "Float32"),
        ("Int32", "Int64"),
        ("UInt8", "Int16"),
        ("Boolean", "Int8"),
        ("Boolean", "Float32"),
        ("Enumeration", "Enumeration"),
        ("Enumeration", "Int32"),
        ("String", "String"),
    ],
)
def test_lossless_connections(source: str, target: str) -> None:
    assert check_connection(variable(source), variable(target)) == Conversion()


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        ("Float64", "Float32", "wider type"),
        ("Float64", "Int32", "fractions would be lost"),
        ("Int32", "Float32", "wider type"),
        ("Int64", "Int32", "wider type"),
        ("Int8", "UInt8", "wider type"),
        ("UInt64", "Int64", "wider type"),
        ("Int32", "Boolean", "not every value"),
        ("Int32", "Enumeration", "not every value"),
        ("String", "Float64", "a text or a binary value can be connected only to its like"),
        ("Boolean", "String", "a text or a binary value can be connected only to its like"),
    ],
)
def test_lossy_connections_are_refused(source: str, target: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason) as caught:
        check_connection(variable(source, "speed"), variable(target, "gear"))
    assert f"'speed' ({source})" in str(caught.value)
    assert f"'gear' ({target})" in str(caught.value)


def test_units_of_measure_are_converted() -> None:
    source, target = variable("Float64", unit=METRE), variable("Float64", unit=MILLIMETRE)
    assert check_connection(source, target) == Conversion(1000.0, 0.0)
    assert check_connection(source, variable("Float64")) == Conversion()


def test_units_of_measure_that_do_not_fit_are_refused_by_name() -> None:
    source = variable("Float64", "delay", SECOND)
    with pytest.raises(ConfigurationError, match=r"'delay' is in 's' \(s\) and 'length' in 'mm' \(m\)"):
        check_connection(source, variable("Float64", "length", MILLIMETRE))
    with pytest.raises(ConfigurationError, match="without a definition"):
        check_connection(source, variable("Float64", "length", UnitOfMeasure("ell")))


@pytest.mark.parametrize(
    ("kind", "value", "parsed"),
    [("Float64", 3, 3.0), ("Int8", 3.0, 3), ("Boolean", 1, True), ("Boolean", False, False), ("String", "a", "a")],
)
def test_values_that_fit(kind: str, value: object, parsed: object) -> None:
    result = parse_value(variable(kind), value)
    assert result == parsed
    assert type(result) is type(parsed)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("Float64", "3"),
        ("Float64", float("nan")),
        ("Float64", None),
        ("Int8", 128),
        ("UInt16", -1),
        ("Int32", 2.5),
        ("Boolean", 2),
        ("String", 1.0),
        ("Int32", [1, 2]),
    ],
)
def test_values_that_do_not_fit(kind: str, value: object) -> None:
    with pytest.raises(ConfigurationError, match=f"'v' is of type {kind} and cannot be"):
        parse_value(variable(kind), value)


def test_values_stay_in_the_declared_range() -> None:
    info = VariableInfo("v", "Float64", 0, minimum=0.0, maximum=2.0)
    assert parse_value(info, 2) == 2.0
    with pytest.raises(ConfigurationError, match="allows 0 to 2"):
        parse_value(info, 2.1)
