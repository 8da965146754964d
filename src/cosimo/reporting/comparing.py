"""What `cosimo compare` shows: one row per master and coupling, and one picture of error against cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cosimo.core.errors import OutputError
from cosimo.reporting.fields import number
from cosimo.reporting.figures.style import BLUE, DOTS_PER_INCH, GREEN, GREY, PURPLE, VERMILION, look, panels, require
from cosimo.trials import Reference, Trial

COLOURS = (BLUE, VERMILION, GREEN, PURPLE, "#e69f00", "#56b4e9")
MARKERS = ("o", "s", "^", "D", "v", "P")


def comparison_fields(wanted: Reference, trials: list[Trial], figure: str | None) -> dict[str, Any]:
    """What `compare --json` prints."""
    return {
        "reference": wanted.kind,
        "reference_error": number(wanted.own_error),
        "figure": figure,
        "trials": [
            {
                "master": trial.master,
                "coupling": trial.coupling,
                "stable": trial.stable,
                "spectral_radius": number(trial.radius),
                "diverged_at": number(trial.diverged),
                "error": number(trial.worst),
                "errors": {name: number(value) for name, value in trial.errors.items()},
                "seconds_per_step": trial.seconds_per_step,
                "reason": trial.reason,
            }
            for trial in trials
        ],
    }


def comparison_lines(wanted: Reference, trials: list[Trial]) -> list[str]:
    """A table, best first; what could not be tried comes last with its reason."""
    own = f", itself wrong by about {wanted.own_error:.1e}" if wanted.own_error else ""
    lines = [f"error: largest NRMS of any output against the {wanted.kind} solution{own}", ""]
    lines.append(f"{'master':22}{'coupling':16}{'error':>10}{'stable':>8}{'radius':>13}{'per step':>12}")
    for trial in sorted(trials, key=lambda t: (bool(t.reason), not t.stable, t.worst)):
        name = f"{trial.master:22}{trial.coupling:16}"
        if trial.reason:
            lines.append(f"{name}not tried: {trial.reason}")
            continue
        error = "diverged" if trial.diverged is not None else f"{trial.worst:.2e}"
        radius = "–" if trial.radius is None else f"{trial.radius:.7f}"
        cost = f"{trial.seconds_per_step * 1e6:.3g} µs" if trial.seconds_per_step else "–"
        lines.append(f"{name}{error:>10}{'yes' if trial.stable else 'NO':>8}{radius:>13}{cost:>12}")
    return lines


def draw_comparison(title: str, wanted: Reference, trials: list[Trial], path: Path) -> Path:
    """Error against cost per macro step; colour: coupling, marker: master; hollow: unstable."""
    require()
    with look():
        figure, (axes,) = panels(1, 1, size=(7.2, 4.4))
        couplings = list(dict.fromkeys(trial.coupling for trial in trials))
        names = list(dict.fromkeys(trial.master for trial in trials))
        for trial in trials:
            if trial.reason or trial.diverged is not None:
                continue
            colour = COLOURS[couplings.index(trial.coupling) % len(COLOURS)]
            marker = MARKERS[names.index(trial.master) % len(MARKERS)]
            axes.plot(
                [trial.seconds_per_step * 1e6],
                [max(trial.worst, 1e-16)],
                marker=marker,
                color=colour,
                fillstyle="full" if trial.stable else "none",
                markersize=8,
                linestyle="none",
            )
        for place, coupling in enumerate(couplings):
            axes.plot([], [], "o", color=COLOURS[place % len(COLOURS)], label=coupling)
        for place, name in enumerate(names):
            axes.plot([], [], MARKERS[place % len(MARKERS)], color=GREY, label=name)
        missing = [f"{t.master}, {t.coupling}" for t in trials if t.diverged is not None]
        if missing:
            axes.text(0.01, 0.01, f"diverged: {'; '.join(missing)}", transform=axes.transAxes, fontsize=7)
        if wanted.own_error:
            axes.axhline(wanted.own_error, color=GREY, linestyle=":")
        axes.set(
            xscale="log", yscale="log", title=title, xlabel="time per macro step / µs", ylabel="largest NRMS error"
        )
        axes.margins(0.15)
        figure.legend(loc="outside right upper")
        try:
            figure.savefig(path, dpi=DOTS_PER_INCH, metadata={"Software": None})
        except (OSError, ValueError) as error:
            raise OutputError(f"cannot write '{path}': {error}; choose another file, such as compare.png.") from None
    return path
