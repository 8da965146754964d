"""Units of measure: conversion, refusal, differences."""

from __future__ import annotations

import pytest

from cosimo.core.errors import ConfigurationError
from cosimo.core.unit import Conversion, UnitOfMeasure, convert

LENGTH = (0, 1, 0, 0, 0, 0, 0, 0)
TEMPERATURE = (0, 0, 0, 0, 1, 0, 0, 0)
METRE, MILLIMETRE = UnitOfMeasure("m", LENGTH), UnitOfMeasure("mm", LENGTH, 1e-3)
CELSIUS, FAHRENHEIT = (
    UnitOfMeasure("degC", TEMPERATURE, offset=273.15),
    UnitOfMeasure("degF", TEMPERATURE, 5 / 9, 273.15 - 32 * 5 / 9),
)


def test_factor() -> None:
    assert convert(METRE, MILLIMETRE) == Conversion(1000.0, 0.0)
    assert convert(MILLIMETRE, METRE) == Conversion(1e-3, 0.0)


def test_offset() -> None:
    conversion = convert(CELSIUS, FAHRENHEIT)
    assert conversion is not None
    assert conversion.gain * 100.0 + conversion.offset == pytest.approx(212.0, abs=1e-10)
    assert conversion.gain * -40.0 + conversion.offset == pytest.approx(-40.0, abs=1e-10)


def test_a_difference_has_no_offset() -> None:
    assert convert(CELSIUS.relative, UnitOfMeasure("K", TEMPERATURE)) == Conversion(1.0, 0.0)


def test_same_unit_changes_nothing() -> None:
    conversion = convert(CELSIUS, CELSIUS)
    assert conversion is not None
    assert conversion.identity


def test_a_missing_unit_fits_everything() -> None:
    assert convert(None, METRE) == convert(METRE, None) == convert(None, None) == Conversion()


def test_other_quantities_do_not_fit() -> None:
    assert convert(METRE, CELSIUS) is None


def test_without_definition_only_the_same_name_fits() -> None:
    assert convert(UnitOfMeasure("widget"), UnitOfMeasure("widget", LENGTH)) == Conversion()
    assert convert(UnitOfMeasure("widget"), METRE) is None


def test_base_is_written_out() -> None:
    assert UnitOfMeasure("N", (1, 1, -2, 0, 0, 0, 0, 0)).base == "kg·m·s^-2"
    assert UnitOfMeasure("one", (0,) * 8).base == "1"


@pytest.mark.parametrize("factor", [0.0, float("nan")])
def test_factor_must_be_a_number_other_than_zero(factor: float) -> None:
    with pytest.raises(ConfigurationError, match="'odd' has the factor"):
        UnitOfMeasure("odd", LENGTH, factor)


def test_exponents_must_be_complete() -> None:
    with pytest.raises(ConfigurationError, match="needs 8 exponents"):
        UnitOfMeasure("odd", (1, 2))
