"""Words that a format knows, for the fuzzer to put into its inputs."""

from __future__ import annotations


def words(text: str, *others: bytes) -> tuple[bytes, ...]:
    """The words of `text`, and others that cannot be written in one."""
    return (*(word.encode() for word in text.split()), *others)
