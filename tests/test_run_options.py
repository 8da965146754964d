"""One value holds what a run takes: `run`, checkpoints and the command line have all of its fields."""

from __future__ import annotations

import inspect
from dataclasses import fields

import pytest
import typer

import cosimo as co
from cosimo.cli.application import app
from cosimo.core.errors import CheckpointError, ConfigurationError
from cosimo.execution.options import PASSING, Adaptive, Checkpoint, EngineOptions, RunOptions


def test_run_takes_all_options_as_keywords() -> None:
    system, master, *keywords = inspect.signature(co.run).parameters.values()
    assert (system.name, master.name) == ("system", "master")
    assert [keyword.name for keyword in keywords] == [option.name for option in fields(RunOptions)]
    assert {keyword.kind for keyword in keywords} == {inspect.Parameter.KEYWORD_ONLY}


def test_unknown_keywords_are_refused() -> None:
    system = co.problems.two_mass()
    with pytest.raises(ConfigurationError, match="run: got an unexpected keyword argument 'stops'"):
        co.run(system, co.masters.jacobi(system, 0.1), stop=1.0, stops=1.0)  # type: ignore[call-arg]


def test_the_command_line_offers_what_is_declared() -> None:
    import cosimo.cli.run  # noqa: F401

    verb = typer.main.get_command(app).commands["run"]  # type: ignore[attr-defined]
    names = {parameter.name: parameter for parameter in verb.params}
    offered = [
        option
        for kind in (RunOptions, EngineOptions, Adaptive, Checkpoint)
        for option in fields(kind)
        if "help" in option.metadata
    ]
    assert len({option.metadata["help"] for option in offered}) == len(offered) >= 10
    for option in offered:
        parameter = names[option.metadata["word"] or option.name]
        assert parameter.help == option.metadata["help"]
        assert parameter.default is None


def test_checkpoints_keep_all_that_outlives_the_process() -> None:
    engine = EngineOptions("reference", allow_non_finite=True)
    described = {"metadata": {"why": "test"}, "power_pairs": (("a.f", "a.v"),), "stop_on_divergence": True}
    options = RunOptions(start=1.0, stop=3.0, record="all", engine=engine, **described)  # type: ignore[arg-type]
    plain = options.to_plain()
    assert plain.keys() == {option.name for option in fields(RunOptions)} - set(PASSING)
    assert RunOptions.from_plain(plain, "a.checkpoint") == options


@pytest.mark.parametrize("entry", [{"start": 9.0}, {"record": "none"}, {"engine": {"kind": "fast"}}, {"stops": 1.0}])
def test_what_makes_no_sense_in_a_checkpoint_is_refused(entry: dict[str, object]) -> None:
    with pytest.raises(CheckpointError, match=r"'a\.checkpoint' does not record what was run"):
        RunOptions.from_plain({**RunOptions(stop=3.0).to_plain(), **entry}, "a.checkpoint")


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"stop": 0.0}, "must be a number greater than the start time"),
        ({"stop": float("nan")}, "must be a number greater than the start time"),
        ({"engine": EngineOptions(monitors=False), "power_pairs": [("a", "b")]}, "need the monitors"),
        ({"adaptive": Adaptive(), "stop_on_divergence": True}, "no divergence monitor"),
        ({"adaptive": Adaptive(), "engine": EngineOptions(threads=2)}, "one after the other"),
        ({"adaptive": Adaptive(), "engine": EngineOptions(allow_non_finite=True)}, "needs finite values"),
    ],
)
def test_what_does_not_go_together_is_refused(keywords: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        RunOptions(**{"stop": 1.0, **keywords})  # type: ignore[arg-type]
