"""What the help shows: options under titles, words for values, examples that can be copied; times with their units."""

from __future__ import annotations

import re
import shlex

import pytest
import typer
from typer.testing import CliRunner

from cosimo.cli import app
from cosimo.cli.application import EXAMPLES
from cosimo.cli.option_groups import seconds

VERBS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def shown(verb: str) -> str:
    return CliRunner().invoke(app, [verb, "--help"], env={"COLUMNS": "110"}).stdout


def test_every_verb_has_two_examples_of_options_that_it_has() -> None:
    assert {name for name, verb in VERBS.items() if not verb.hidden} == set(EXAMPLES)
    for verb, examples in EXAMPLES.items():
        assert len(set(examples)) == 2
        known = {word for option in VERBS[verb].params for word in (*option.opts, *option.secondary_opts)}
        for words in examples:
            assert {word for word in shlex.split(words) if word.startswith("-")} <= known, words


@pytest.mark.parametrize("verb", sorted(EXAMPLES))
def test_flags_have_no_value_and_words_are_not_pictures(verb: str) -> None:
    text = shown(verb)
    assert "Examples:" in text
    assert not re.search(r"<\w+>", text), "a type of Python's"
    assert not re.search("[\U0001f000-\U0001ffff]", text)


def test_flags_before_the_verb_have_no_value_either() -> None:
    text = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "110"}).stdout
    assert "--version" in text
    assert not re.search(r"<\w+>", text), "a type of Python's"


def test_options_of_run_stand_under_titles() -> None:
    titles = (
        "System",
        "Master",
        "Output",
        "Engine",
        "Checkpoint and resume",
        "Adaptive steps",
        "Process isolation",
        "Messages",
    )
    places = [shown("run").index(f"─ {title} ─") for title in titles]
    assert places == sorted(places)
    assert "─ Master ─" not in shown("info")


def test_every_verb_that_takes_a_system_takes_other_values_of_it() -> None:
    none = {"new", "resume", "plot", "worker", "problems", "reproduce"}
    for name in set(EXAMPLES) - none:
        known = {word for option in VERBS[name].params for word in option.opts}
        assert {"--set", "--input-file"} <= known, name


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.004", 0.004), ("4e-3", 0.004), ("4ms", 0.004), ("4 ms", 0.004), ("1e3us", 1e-3), ("50µs", 5e-5),
        ("0.1ms", 1e-4), ("7ns", 7e-9), ("3s", 3.0), ("2min", 120.0), ("1h", 3600.0), ("-1ms", -1e-3),
    ],
)  # fmt: skip
def test_times_with_their_units(text: str, value: float) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["", "ms", "4 parsecs", "4 m", "1 ms s", "0,1s", "1\n2ms"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match="could not convert"):
        seconds(text)
    said = CliRunner().invoke(app, ["run", "two-mass", f"--step-size={text}"])
    assert said.exit_code == 2
    assert "not a time" in said.output


def test_a_step_with_its_unit_is_the_step_in_seconds() -> None:
    one, two = (
        CliRunner().invoke(app, [verb, "two-mass", "--step-size", step, "--json"]).stdout
        for verb, step in (("analyse", "0.004"), ("analyze", "4ms"))
    )
    assert one == two
