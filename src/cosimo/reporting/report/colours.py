"""Colours that can be told apart by everybody and seen on white and on black, always with a sign or a dash beside."""

from __future__ import annotations

BLUE, ORANGE, GREEN, PURPLE, GREY, GOLD, CYAN = (
    "#2b7bcb",
    "#d65f0e",
    "#12936b",
    "#b0579b",
    "#858c96",
    "#b08400",
    "#2397a8",
)
LINES = (BLUE, ORANGE, GREEN, PURPLE, GOLD, CYAN)
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "pentagon")
ROLES = {
    "given": (ORANGE, "solid"),
    "tuned": (GREEN, "dash"),
    "compensated": (BLUE, "dashdot"),
    "reference": (GREY, "solid"),
}
"""Colour and dash of runs by what they are there for."""
