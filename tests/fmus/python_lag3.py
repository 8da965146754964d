"""x' = rate (u - x) by forward Euler, for pythonfmu3 (FMI 3.0)."""

from pythonfmu3 import CoSimulation, Float64, Fmi3Causality, Fmi3SlaveBase, Fmi3Variability


class Lag3(Fmi3SlaveBase, CoSimulation):
    def __init__(self, **options: object) -> None:
        super().__init__(**options)
        self.time, self.x, self.u, self.rate = 0.0, 0.0, 1.0, 2.0
        continuous, fixed = Fmi3Variability.continuous, Fmi3Variability.fixed
        self.register_variable(Float64("time", causality=Fmi3Causality.independent, variability=continuous))
        self.register_variable(Float64("x", causality=Fmi3Causality.output))
        self.register_variable(Float64("u", causality=Fmi3Causality.input))
        self.register_variable(Float64("rate", causality=Fmi3Causality.parameter, variability=fixed))

    def do_step(self, current_time: float, step_size: float) -> bool:
        self.x += step_size * self.rate * (self.u - self.x)
        return True
