"""What an archive may be at most, and where the user says so.

The limits guard against files that unpack to more than the disk, or stand for more than the memory, holds. They belong
to the user, not to the file: a scenario or a package cannot raise them.
"""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass, fields, replace

from cosimo.core.errors import ConfigurationError, UnknownNameError

ENVIRONMENT = "COSIMO_ARCHIVE_LIMITS"
"""The variable with limits for all files that a process reads, as `total-size=8GiB,ratio=1000`."""

KIB, MIB, GIB = 2**10, 2**20, 2**30
_FACTORS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": KIB, "mib": MIB, "gib": GIB}


@dataclass(frozen=True)
class ArchiveLimits:
    """What an FMU, a package or a description may be at most; sizes in bytes.

    >>> ArchiveLimits.parse("total-size=8GiB, ratio=1000").total_size
    8589934592
    """

    total_size: int = 2 * GIB
    """All entries of one archive unpacked; all FMUs of a package together as well."""
    text_size: int = GIB // 4
    """One description: modelDescription.xml, .ssd, .ssv, .ssm, .toml."""
    ratio: float = 200.0
    """Unpacked over packed size of one entry, counted from `MIB` bytes on: small ones harm nobody."""
    entries: int = 100_000
    """Files and folders in one archive."""
    nesting: int = 16
    """Packages and descriptions inside each other."""
    xml_depth: int = 100
    """Elements inside each other."""
    xml_items: int = 5_000_000
    """Tags and attributes of one description."""
    variables: int = 1_000_000
    """Scalars of one FMU, every element of an array counted."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not value > 0 or not math.isfinite(value):
                raise ConfigurationError(f"archive limit '{_word(field.name)}' is {value}; give a positive number.")

    @classmethod
    def parse(cls, text: str) -> ArchiveLimits:
        """The limits in `text`, separated by commas; those that it does not name keep their usual values."""
        names = {_word(field.name): field.name for field in fields(cls)}
        given: dict[str, int | float] = {}
        for item in filter(None, (part.strip() for part in text.split(","))):
            word, equals, value = (part.strip() for part in item.partition("="))
            if not equals:
                raise ConfigurationError(f"archive limits are written NAME=VALUE, not '{item}'.")
            if word not in names:
                raise UnknownNameError("archive limit", word, names)
            given[names[word]] = _number(word, value)
        return replace(cls(), **given)  # type: ignore[arg-type]

    @classmethod
    def from_environment(cls) -> ArchiveLimits:
        """The usual limits, or those that the variable COSIMO_ARCHIVE_LIMITS gives."""
        try:
            return cls.parse(os.environ.get(ENVIRONMENT, ""))
        except ConfigurationError as error:
            raise ConfigurationError(f"environment variable {ENVIRONMENT}: {error}") from None


def remedy(limit: str) -> str:
    """How to go on with a file that one trusts; `limit` is the name of the field."""
    return f"refused. If you trust the file, raise the archive limit '{_word(limit)}'"


def _word(name: str) -> str:
    return name.replace("_", "-")


def _number(word: str, text: str) -> int | float:
    found = re.fullmatch(r"(\d+(?:\.\d*)?(?:e\d{1,2})?) *([a-z]*)", text.lower())
    if found is None or found[2] not in _FACTORS:
        raise ConfigurationError(f"archive limit '{word}' is '{text}'; give a number, for sizes also as 500MB or 8GiB.")
    value = float(found[1]) * _FACTORS[found[2]]
    return value if word == "ratio" else int(value)
