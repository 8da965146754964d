"""x' = rate (u - x) by forward Euler, for pythonfmu (FMI 2.0)."""

from pythonfmu import Fmi2Causality, Fmi2Slave, Fmi2Variability, Real


class Lag2(Fmi2Slave):
    def __init__(self, **options: object) -> None:
        super().__init__(**options)
        self.x, self.u, self.rate = 0.0, 1.0, 2.0
        self.register_variable(Real("x", causality=Fmi2Causality.output))
        self.register_variable(Real("u", causality=Fmi2Causality.input))
        self.register_variable(Real("rate", causality=Fmi2Causality.parameter, variability=Fmi2Variability.fixed))

    def do_step(self, current_time: float, step_size: float) -> bool:
        if current_time > 0.95:
            raise ValueError("the tank is empty")
        self.x += step_size * self.rate * (self.u - self.x)
        return True
