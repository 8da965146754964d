"""Repair a coupling without a smaller step and without iteration: corrected inputs keep it on a target.

Holding coupling signals moves the poles and shapes of the coupled system (tamellin2022). Instead of feeding back forces
designed in the Laplace domain, the correction is designed on the schedule that really runs. Let the target be ξ' = F ξ:

    target "monolithic": F is the units' own integrator applied to the whole coupled system
    target "exact":      F = exp(A_c h), followed by the positions (a symplectic unit's velocity is then a difference)
    target "converged":  F is the fixed point of the iteration at this step, with inputs held or straight lines

Units whose equations are not known are identified; the same design is made on their affine models, whose offsets the
corrections carry along as constants.

On the target's trajectories every unit state is X_i ξ, the input that keeps it there is U_i ξ, with
B_d U_i = X_i F − A_d X_i, and the samples that a unit's coupling sees, the present and L − 1 earlier ones, are Σ_i ξ.
The input u_i = K_i σ_i therefore stays on the target for every ξ if

    K_i Σ_i = U_i                                                        (as L k = n, tamellin2022, Eq. 22)

K_i is the plain hold plus the smallest change that solves this; what freedom is left makes the correction insensitive
to external forces. Only outputs that are connected are used: they cross the interface anyway.

Where units step at different rates, F is that of the smallest step that divides all of them, and a unit has one K_i for
each of its couplings in a macro step. Where a constant input cannot bring a unit to X_i F ξ (an exact integrator has
two states per mass), U_i also holds the input's slope, and if need be its bend, over the step.
"""

from cosimo.compensation.assessment import Change, CompensatedMode, Compensation
from cosimo.compensation.comparison import Comparison, Trajectory, compare
from cosimo.compensation.design import compensate

__all__ = ["Change", "Comparison", "CompensatedMode", "Compensation", "Trajectory", "compare", "compensate"]
