"""Descriptions in XML, read without entities, without a network and within limits."""

from __future__ import annotations

from typing import Any

from cosimo.core.errors import ConfigurationError, UnsafeInputError
from cosimo.units.archive_checks import show
from cosimo.units.archives import ArchiveLimits, remedy

_TYPES = tuple("<!DOCTYPE".encode(encoding) for encoding in ("utf-8", "utf-16-le", "utf-16-be"))


def check_text(content: bytes, label: str, limits: ArchiveLimits) -> None:
    """Refuse a text, called `label` in messages, that is too long or has too many tags and attributes.

    Every tag costs a '<' and every attribute a '=' in all encodings that XML is written in; an element takes about 100
    times its four shortest bytes in memory, which the size alone does not bound.
    """
    if len(content) > limits.text_size:
        raise UnsafeInputError(f"{label} has {len(content):,} bytes, more than {limits.text_size:,}; "
                               f"{remedy('text_size')}.")  # fmt: skip
    items = content.count(b"<") + content.count(b"=")
    if items > limits.xml_items:
        raise UnsafeInputError(f"{label} has {items:,} tags and attributes, more than {limits.xml_items:,}; "
                               f"{remedy('xml_items')}.")  # fmt: skip


def parse_xml(content: bytes, label: str, limits: ArchiveLimits) -> Any:
    """The root element of the document (lxml), which has neither a document type nor deep nesting.

    Entities are not replaced while reading, so that a document type does nothing before it is found and refused.
    `huge_tree` stays off: the library then also refuses single texts of more than 10 MB and entities that multiply.
    """
    from lxml import etree

    check_text(content, label, limits)
    parser = etree.XMLParser(resolve_entities=False, load_dtd=False, no_network=True, huge_tree=False)
    try:
        root = etree.fromstring(content, parser)
    except etree.XMLSyntaxError as error:
        if any(mark in content for mark in _TYPES):
            raise UnsafeInputError(_typed(label)) from None
        if "XML_PARSE_HUGE" in str(error.msg):  # it is not the syntax that is wrong but the size
            raise UnsafeInputError(f"{label} exceeds a limit: {_one_line(error.msg)}; refused.") from None
        raise ConfigurationError(f"{label} is not well-formed: {_one_line(error.msg)}.") from None
    except ValueError as error:  # bytes that lxml refuses to look at
        raise ConfigurationError(f"{label} is not well-formed: {_one_line(error)}.") from None
    if root.getroottree().docinfo.doctype:
        raise UnsafeInputError(_typed(label))
    if etree.XPath("boolean(" + "/*" * (limits.xml_depth + 1) + ")")(root):
        raise UnsafeInputError(f"{label} nests elements more than {limits.xml_depth} deep; {remedy('xml_depth')}.")
    return root


def _typed(label: str) -> str:
    return f"{label} has a DOCTYPE, which FMI does not need and attacks use; refused. Remove it."


def _one_line(reason: object) -> str:
    # The library repeats what it found, line ends and all.
    return show(" ".join(str(reason).split()).rstrip("."))
