"""A federate with HELICS alone, as a program: ẋ = A x + B u, y = C x, each step exact; nothing of the package is used.

    python federate.py FOLDER NAME STOP [BROKER]

NAME.json is its configuration, as HELICS reads it; under "model" stand A, B, C and the state at the start, and under
"program" what it does with a grant. NAME.rows gets the granted times with the outputs published there. With BROKER, the
options of one, it starts the broker.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import helics as h
import numpy as np
from scipy.linalg import expm


class Model:
    def __init__(self, A: list, B: list, C: list, x: list) -> None:
        self.A, self.B, self.C, self.x = (np.array(part, dtype=float) for part in (A, B, C, x))

    def step(self, duration: float, u: np.ndarray) -> None:
        n, m = self.B.shape
        both = expm(duration * np.block([[self.A, self.B], [np.zeros((m, n + m))]]))
        self.x = both[:n, :n] @ self.x + both[:n, n:] @ u


def main(folder: Path, name: str, stop: float, broker: str = "") -> None:
    settings = json.loads((folder / f"{name}.json").read_text())
    if broker:
        started = h.helicsCreateBroker(settings["core_type"], "", broker)
    federate = h.helicsCreateValueFederateFromConfig(str(folder / f"{name}.json"))
    model, rows = Model(**settings["model"]), []
    publications = [h.helicsFederateGetPublicationByIndex(federate, i) for i in range(len(model.C))]
    subscriptions = [h.helicsFederateGetInputByIndex(federate, i) for i in range(model.B.shape[1])]

    def publish(time: float) -> None:
        values = model.C @ model.x
        for publication, value in zip(publications, values, strict=True):
            h.helicsPublicationPublishDouble(publication, float(value))
        rows.append([time, *map(float, values)])

    def inputs() -> np.ndarray:
        return np.array([h.helicsInputGetDouble(one) for one in subscriptions])

    h.helicsFederateEnterInitializingMode(federate)
    publish(0.0)
    h.helicsFederateEnterExecutingMode(federate)
    loop = iterate if "iterations" in settings else advance
    loop(federate, model, publish, inputs, settings, stop)
    (folder / f"{name}.rows").write_text(json.dumps(rows))
    h.helicsFederateDisconnect(federate)
    if broker:
        h.helicsBrokerWaitForDisconnect(started, 60_000)
    h.helicsCloseLibrary()


def advance(federate: object, model: Model, publish: Callable, inputs: Callable, settings: dict, stop: float) -> None:
    """One computation at each granted time."""
    time, u = 0.0, inputs()
    while time < stop - 1e-9:
        granted = h.helicsFederateRequestNextStep(federate)
        if settings["program"] == "FGH":
            u = inputs()
            model.step(granted - time, u)
            publish(granted)
        else:
            model.step(granted - time, u)
            if settings["program"] == "HFG":
                publish(granted)
            u = inputs()
            if settings["program"] == "FHG":
                publish(granted)
        time = granted


def iterate(federate: object, model: Model, publish: Callable, inputs: Callable, settings: dict, stop: float) -> None:
    """The step that ends at a granted time, so many times with newer inputs; then it publishes nothing more."""
    time, before, period, count = 0.0, model.x, settings["period"], 0
    while True:
        granted, result = h.helicsFederateRequestTimeIterative(
            federate, time + period, h.HELICS_ITERATION_REQUEST_ITERATE_IF_NEEDED
        )
        if result == h.HELICS_ITERATION_RESULT_NEXT_STEP:
            if time >= stop - 1e-9:
                return
            time, before, count = granted, model.x, 0
        if count < settings["iterations"]:
            model.x, count = before, count + 1
            model.step(period, inputs())
            publish(time)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), *sys.argv[4:])
