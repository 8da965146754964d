"""Result files of every format, whole, cut off and mutated, as `read_result` reads them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict

from fuzz.dictionary import words
from fuzz.places import folder

SUFFIXES = (".parquet", ".arrow", ".arrows", ".csv", ".mat")
WORDS = words(
    r"""
    time,a.x Aclass binTrans binNormal dataInfo data_1 data_2 name cosimo nan inf , " ARROW1 PAR1
    """,
    b"\xff\xff\xff\xff",
    b"\x00\x00\x00\x00",
)


MODULES = ("pyarrow.csv", "pyarrow.parquet", "scipy.io", "cosimo.formats.results")


def seeds() -> Iterator[bytes]:
    """A short run in every format, whole and cut in the middle; a sidecar follows the file where there is one."""
    import numpy as np
    import pyarrow

    from cosimo.core.result import Warned
    from cosimo.formats.results import FORMATS, METADATA_KEY

    document = {"complete": True, "warnings": [asdict(Warned("odd", 0.5, 2))], "master": "jacobi"}
    schema = pyarrow.schema(
        [("time", pyarrow.float64()), ("a.x", pyarrow.float64())], metadata={METADATA_KEY: json.dumps(document)}
    )
    for rows in (3, 40):
        columns = [pyarrow.array(np.linspace(0, 1, rows)), pyarrow.array(np.arange(rows, dtype=float))]
        batch = pyarrow.record_batch(columns, schema=schema)
        for number, suffix in enumerate(SUFFIXES):
            path = folder() / f"seed{suffix}"
            FORMATS[suffix].write([batch, batch], schema, path)
            content = path.read_bytes()
            path.unlink()
            yield bytes([number]) + content
            yield bytes([number]) + content[: len(content) // 2]


def check(data: bytes) -> None:
    """The first byte chooses the format."""
    from cosimo.formats.results import read_result

    path = folder() / f"r{SUFFIXES[data[0] % len(SUFFIXES)] if data else '.csv'}"
    path.write_bytes(data[1:])
    try:
        result = read_result(path)
        assert result.values.shape == (len(result.time), len(result.names))
        float(result.values.sum())
        float(result.time.sum())
        str(result)
    finally:
        path.unlink()
