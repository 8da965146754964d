"""modelDescription.xml in an otherwise good FMU: described as `cosimo info` does it."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

from fuzz.dictionary import words
from fuzz.places import folder

XMLS = Path(__file__).parents[1] / "tests" / "fmus"
WORDS = words(
    r"""
    fmiModelDescription fmiVersion 2.0 3.0 modelName guid instantiationToken CoSimulation ModelExchange
    ScheduledExecution modelIdentifier canGetAndSetFMUstate ModelVariables ScalarVariable Float64 Float32 Int32
    UInt64 Boolean String Binary Clock Enumeration Real Integer name valueReference causality input output
    parameter local independent structuralParameter variability continuous discrete fixed tunable constant initial
    exact approx calculated start min max unit declaredType derivative Dimension Start Alias ModelStructure
    Outputs Unknown index dependencies dependenciesKind Output ContinuousStateDerivative InitialUnknown
    UnitDefinitions Unit BaseUnit DisplayUnit factor offset kg m s rad TypeDefinitions SimpleType Item value
    DefaultExperiment startTime stopTime stepSize tolerance LogCategories Category relativeQuantity INF NaN 1e999
    clocks intervalVariability triggered countdown changing intervalDecimal shiftDecimal intervalCounter shiftCounter
    resolution hasEventMode mightReturnEarlyFromDoStep 1.0 CoSimulation_StandAlone Capabilities noAlias
    negatedAlias alias providesIntermediateUpdate intermediateUpdate
    -1 0 4294967295 99999999999999999999 <!DOCTYPE <!ENTITY <![CDATA[ ]]> <?xml &#0; &lt; xmlns: UTF-16
    """,
)


MODULES = ("fmpy.model_description", "fmpy.validation", "cosimo.formats.information")


def seeds() -> Iterator[bytes]:
    """The descriptions of the test FMUs, each with and without validation."""
    for file in sorted(XMLS.glob("*.xml")):
        yield b"v" + file.read_bytes()
        yield b"-" + file.read_bytes()


def check(data: bytes) -> None:
    """The first byte says whether the description is validated, the rest is the description."""
    from cosimo.formats.information import describe_fmu
    from cosimo.units.fmi.fmu import Fmu, FmuOptions

    path = folder() / "a.fmu"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("modelDescription.xml", data[1:])
    fmu = Fmu(path, options=FmuOptions(validate=data[:1] == b"v"))
    described = describe_fmu(fmu)
    str(described)
    described.to_dict()
    fmu.settings()
    fmu.derivatives()
    fmu.adapter  # noqa: B018  what the library of ours is told of it
    for clock in fmu.clocks.timed:
        clock.next(0.0, 1.0) if clock.interval else None
    [fmu.refusal(name) for name in fmu.left_out]
    fmu.ranges()
