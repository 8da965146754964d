"""The verbs for several machines: `worker` serves units to runs elsewhere, `federate` joins a HELICS federation."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cosimo.cli.application import app
from cosimo.cli.console_output import say
from cosimo.cli.isolation_options import IsolationOptions
from cosimo.cli.option_groups import ALL, Json, StartTime, StopTime, SystemName, Texts, many, option, pairs, time_option
from cosimo.cli.run import Recording, run_and_report
from cosimo.cli.system_options import MasterChoice, stop_of
from cosimo.core.errors import ConfigurationError

if TYPE_CHECKING:
    from cosimo.execution.federate import SystemFederate
    from cosimo.execution.options import RunOptions
    from cosimo.formats.scenario import Scenario

Broker = Annotated[str, option("Address and port of the HELICS broker, as 192.168.1.10:23404.", metavar="ADDRESS:PORT")]
CoreType = Annotated[str, option("How HELICS connects to the broker: zmq or tcp.", metavar="zmq|tcp")]


@app.command()
def worker(
    isolation: IsolationOptions,
    broker: Broker = ...,  # type: ignore[assignment]
    name: Annotated[str, option("The name that scenarios give as 'host'.")] = ...,  # type: ignore[assignment]
    core: CoreType = "zmq",
    token: Annotated[str | None, option("The token of the runs; others can see it in the list of processes.")] = None,
    token_file: Annotated[Path | None, option("A file with the token; default: the variable COSIMO_TOKEN.")] = None,
    cache: Annotated[Path | None, option("Folder in which FMUs are kept by their content.")] = None,
    patience: Annotated[float, time_option("Time without a sign of life after which a run counts as lost.")] = 10.0,
    once: Annotated[bool, option("End after the first run.")] = False,
    json_: Json = False,
) -> None:
    """Serve FMUs to runs on other hosts, whose scenario says host = "NAME"; until interrupted.

    Every FMU runs in a process of its own; with --trust-units in the worker's.
    """
    from cosimo.execution.serving import Serving, serve
    from cosimo.units.fmi.isolation import Isolation
    from cosimo.units.remote import TOKEN, Hosts

    if {*(isolation.isolate or ())} - {ALL}:
        raise ConfigurationError("a worker isolates all FMUs; give --isolate without a name, or leave it out.")
    if isolation.trust_units and (isolation.unit_timeout or isolation.unit_memory):
        raise ConfigurationError("--unit-timeout and --unit-memory limit isolated FMUs; leave --trust-units out.")
    if token is not None:
        if token_file is not None:
            raise ConfigurationError("--token and --token-file contradict each other; give only one.")
        os.environ[TOKEN] = token
    apart = None if isolation.trust_units else isolation.refine(Isolation())
    hosts = Hosts(broker=broker, core=core, token_file=token_file, patience=patience)
    serve(Serving(hosts, name, apart=apart, folder=cache, once=once, say=_say))
    if json_:
        say({"name": name, "broker": broker})


@app.command()
def federate(
    system: SystemName,
    master: MasterChoice,
    recording: Recording,
    isolation: IsolationOptions,
    broker: Broker = ...,  # type: ignore[assignment]
    core: CoreType = "zmq",
    name: Annotated[str | None, option("The federate's name; default: that of the system.")] = None,
    subscribe: Annotated[Texts, many("UNIT.INPUT=KEY: an input takes what is published under the key.")] = None,
    publish: Annotated[
        Texts, many("UNIT.OUTPUT or UNIT.OUTPUT=KEY: publish an output; default: all, under NAME/UNIT.OUTPUT.")
    ] = None,
    period: Annotated[float | None, time_option("Time between two exchanges; default: the macro step.")] = None,
    offset: Annotated[float, time_option("Time of the first exchange.")] = 0.0,
    wait_for_current_time: Annotated[bool, option("See what others publish at the same time.")] = False,
    iterations: Annotated[
        int | None, option("Iterate with the federation: repeat the steps up to an exchange at most N times.")
    ] = None,
    iteration_tolerance: Annotated[float, option("Publish again only what changed by more than this.")] = 0.0,
    patience: Annotated[float, time_option("Time without an answer after which the broker counts as lost.")] = 10.0,
    start_time: StartTime = None,
    stop_time: StopTime = None,
    json_: Json = False,
) -> None:
    """Run the system as one federate of a HELICS federation: inputs come from it, outputs are published to it.

    Whether the federation can be trusted is a question to 'cosimo analyse federation.json'.
    """
    from cosimo.execution.federate import Membership, SystemFederate
    from cosimo.execution.options import EngineOptions, RunOptions
    from cosimo.units.remote import Hosts, require_helics

    require_helics()
    scenario = master.scenario(system)
    start, stop = scenario.start if start_time is None else start_time, stop_of(scenario, stop_time)
    scenario = scenario.changed(start=start, stop=stop)
    called = name or scenario.system.name
    wanted = publish or list(scenario.system.outputs)
    keys = {out: key or f"{called}/{out}" for out, _, key in (text.partition("=") for text in wanted)}
    how = Membership(
        hosts=Hosts(broker=broker, core=core, patience=patience),
        name=called,
        inputs=pairs("--subscribe", subscribe, "UNIT.INPUT=KEY"),
        outputs=keys,
        period=period,
        offset=offset,
        waits=wait_for_current_time,
        iterations=iterations,
        tolerance=iteration_tolerance,
    )
    member = SystemFederate(how, scenario.system, scenario.master.step, start)
    output = recording.build(scenario, system)
    # The plain engine: the compiled one takes external inputs of many macro steps at once.
    engine = EngineOptions(kind="reference")
    options = RunOptions(engine=engine, start=start, stop=stop, record="all", output=output, progress=member)
    _take_part(member, scenario, options, json_)


def _take_part(member: SystemFederate, scenario: Scenario, options: RunOptions, json_: bool) -> None:
    from cosimo.execution.running import execute

    member.join()
    try:
        times = (options.start, options.stop, scenario.master.step)
        run_and_report(
            lambda _: execute(member.system, scenario.master, options),
            times, options.path, json_, metadata=scenario.provenance,
        )  # fmt: skip
    finally:
        member.leave()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
