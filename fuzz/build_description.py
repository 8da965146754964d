"""sources/buildDescription.xml in an otherwise good FMU: read as `--compile` does it, without compiling."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

from fuzz.dictionary import words
from fuzz.places import folder

WORDS = words(
    r"""
    fmiBuildDescription fmiVersion 3.0 BuildConfiguration modelIdentifier platform x86_64-linux SourceFileSet language
    C99 C++11 compiler compilerOptions SourceFile name PreprocessorDefinition value optional true IncludeDirectory
    Library external ../ -o @ ' \" <!DOCTYPE <!ENTITY <![CDATA[ ]]> <?xml &#0; &lt; xmlns: UTF-16
    """,
)

MODULES = ("cosimo.units.fmi.archive",)


def seeds() -> Iterator[bytes]:
    """One with all elements for this platform, one with the least."""
    from cosimo.units.fmi.archive import platform_folders

    here = platform_folders(3)[0]
    yield (
        f'<fmiBuildDescription fmiVersion="3.0"><BuildConfiguration modelIdentifier="a" platform="{here}">'
        '<SourceFileSet language="C99" compiler="gcc" compilerOptions="-O1 -g"><SourceFile name="a.c"/>'
        '<PreprocessorDefinition name="A" value="1" optional="true"/><IncludeDirectory name="b"/></SourceFileSet>'
        '<Library name="m" version="1" external="true"/></BuildConfiguration></fmiBuildDescription>'
    ).encode()
    least = '<SourceFileSet><SourceFile name="a.c"/></SourceFileSet>'
    yield f"<fmiBuildDescription><BuildConfiguration>{least}</BuildConfiguration></fmiBuildDescription>".encode()


def check(data: bytes) -> None:
    """What would be compiled, and how."""
    from cosimo.units.fmi.archive import source_sets

    path = folder() / "a.fmu"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("sources/a.c", "")
        archive.writestr("sources/buildDescription.xml", data)
    sets, libraries = source_sets(Path(path), "CoSimulation", "a")
    assert all(isinstance(word, str) for one in sets for word in (*one.files, *one.words, *one.includes, *libraries))
