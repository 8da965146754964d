"""What is drawn is what was computed: every curve, marker and bar carries the data its label promises."""

from __future__ import annotations

import json
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.image
import numpy as np
import pytest
import scipy.linalg
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from typer.testing import CliRunner

import processes
from cosimo.cli import app
from cosimo.core.errors import ConfigurationError, OutputError, UnknownNameError
from cosimo.papers import (
    PAPERS,
    Picture,
    draw,
    gomes2018,
    mechanics_figures,
    richiedei2024,
    tamellin2022_figures,
    without_figures,
)  # fmt: skip
from cosimo.papers.gomes2018 import parameter_sets
from cosimo.papers.mechanics import nrms
from cosimo.papers.tamellin2022 import RandomOutcome, random_study
from cosimo.reporting.pictures import look, write

DOCS = Path(__file__).parents[2] / "docs"
WITHOUT, WITH = "co-simulated without compensation", "co-simulated with compensation"
# Figs. 1, 2, 6, 10 and 19 of tamellin2022 are sketches, 13 and 23 CPU times.
TAMELLIN = {3, 4, 5, 7, 8, 9, 11, 12, 14, 15, 16, 17, 18, 20, 21, 22}
RICHIEDEI = {3, 4, 5, 6}
SYSTEMS = 6


@pytest.fixture(scope="module")
def tamellin() -> Iterator[dict[str, Picture]]:
    with look():
        yield {_short(picture): picture for picture in tamellin2022_figures.pictures(count=SYSTEMS)}


@pytest.fixture(scope="module")
def richiedei() -> Iterator[dict[str, Picture]]:
    with look():
        yield {_short(picture): picture for picture in richiedei2024.pictures()}


def _short(picture: Picture) -> str:
    return "-".join(picture.name.split("-")[:2])


def panels(picture: Picture) -> list[Axes]:
    return [axes for axes in picture.figure.axes if axes.get_label() != "<colorbar>"]


def curves(axes: Axes) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """x and y by label; each label once."""
    labelled = [line for line in axes.lines if not str(line.get_label()).startswith("_")]
    found = {str(line.get_label()): (np.asarray(line.get_xdata()), np.asarray(line.get_ydata())) for line in labelled}
    assert len(found) == len(labelled)
    return found


def poles(axes: Axes) -> dict[str, np.ndarray]:
    """Markers in the upper half of the plane by label, slowest first."""
    found = {}
    for name, (x, y) in curves(axes).items():
        upper = (x + 1j * y)[y > 0]
        found[name] = upper[np.argsort(upper.imag)]
    return found


def written(pictures: dict[str, Picture], folder: Path) -> list[Path]:
    with look():
        return [write(picture.figure, folder / f"paper-{picture.name}.png", "") for picture in pictures.values()]


def test_there_is_every_figure(tamellin: dict[str, Picture], richiedei: dict[str, Picture]) -> None:
    assert {*tamellin} == {f"fig-{number:02d}" for number in TAMELLIN} | {"beyond-discrete"}
    assert {*richiedei} == {f"fig-{number:02d}" for number in RICHIEDEI}


@pytest.mark.parametrize("several", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_every_figure_becomes_a_picture(
    several: bool, tamellin: dict[str, Picture], richiedei: dict[str, Picture], tmp_path: Path
) -> None:
    """One of every kind in `make test`: poles, roots, a history, energies, bars."""
    kinds = ("fig-03", "fig-04", "fig-11", "fig-12", "fig-18") if several else tuple(tamellin)
    motor = richiedei if not several else {}
    for path in [*written({kind: tamellin[kind] for kind in kinds}, tmp_path), *written(motor, tmp_path)]:
        content = path.read_bytes()
        assert content[:8] == b"\x89PNG\r\n\x1a\n"
        width, height = struct.unpack(">II", content[16:24])
        assert 800 <= width <= 2000, path.name
        assert 400 <= height <= 900, path.name
        assert 20_000 < len(content) < 400_000, path.name
        assert matplotlib.image.imread(path).std() > 0.03, f"{path.name} is empty"


def test_equal_data_give_an_equal_file(richiedei: dict[str, Picture], tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        written({"fig-03": richiedei["fig-03"]}, tmp_path / folder)
    first, second = sorted(tmp_path.glob("*/*.png"))
    assert first.read_bytes() == second.read_bytes()


# Uncompensated poles as recomputed independently (see the numbers that hold).
@pytest.mark.parametrize(
    ("key", "panel", "uncompensated", "tolerance"),
    [
        ("fig-03", 0, [-0.0044554 + 10.0000202j, 0.0544375 + 33.3155760j], 1e-6),
        ("fig-07", 0, [-0.0044554 + 10.0000202j, 0.0544375 + 33.3155760j], 1e-6),
        ("fig-09", 0, [-0.0945541 + 9.9995392j, -0.0554300 + 33.3173561j], 1e-6),
        ("fig-09", 1, [-0.1079223 + 9.9994741j, 0.1074965 + 33.3074331j], 1e-6),
        (
            "fig-20",
            0,
            [-0.0117749 + 6.5856339j, 0.0304522 + 13.1195557j, 0.0174930 + 18.2060295j, 0.0632292 + 21.4746642j],
            1e-6,
        ),
        ("richiedei", 0, [0.1644385 + 59.6769542j, 1.4718320 + 746.1759282j], 1e-5),
    ],
)
def test_compensated_poles_coincide_with_the_monolithic_ones(
    tamellin: dict[str, Picture],
    richiedei: dict[str, Picture],
    key: str,
    panel: int,
    uncompensated: list[complex],
    tolerance: float,
) -> None:
    axes = panels(richiedei["fig-03"] if key == "richiedei" else tamellin[key])[panel]
    found = poles(axes)
    assert found[WITHOUT] == pytest.approx(np.array(uncompensated), abs=tolerance)
    assert np.abs(found["monolithic"] - found[WITHOUT]).min() > 3e-3
    if key == "fig-03":
        assert WITH not in found
    else:
        assert found[WITH] == pytest.approx(found["monolithic"], abs=tolerance)
    inside = np.concatenate(list(found.values()))
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    assert left < inside.real.min() <= inside.real.max() < right
    assert bottom < -inside.imag.max() < inside.imag.max() < top
    assert left < 0 < right


def test_loci_lead_from_the_monolithic_pole_to_the_uncompensated_one(tamellin: dict[str, Picture]) -> None:
    (axes,) = panels(tamellin["fig-07"])
    found = poles(axes)
    paths = [line for line in axes.lines if len(line.get_xdata()) > 5]
    ends = [(complex(*line.get_xydata()[0]), complex(*line.get_xydata()[-1])) for line in paths]
    upper = sorted((pair for pair in ends if pair[0].imag > 0), key=lambda pair: pair[0].imag)
    assert len(paths) == 4
    assert np.array([start for start, _ in upper]) == pytest.approx(found["monolithic"], abs=1e-12)
    assert np.array([end for _, end in upper]) == pytest.approx(found[WITHOUT], abs=1e-9)


def test_latent_roots_lie_left(tamellin: dict[str, Picture]) -> None:
    (before,), (after,) = panels(tamellin["fig-04"]), panels(tamellin["fig-08"])
    assert {*curves(before)} == {"monolithic", WITHOUT}
    for axes, name in ((before, WITHOUT), (after, WITHOUT), (after, WITH)):
        x, y = curves(axes)[name]
        roots = 1e-3 * (x + 1j * y)
        latent = roots[np.abs(roots) > 1]
        assert len(latent) == len(roots) - 4
        assert len(latent) >= 16
        assert latent.real.max() < -9
        if name == WITHOUT:
            rightmost = latent[latent.real.argmax()]
            assert (rightmost.real, abs(rightmost.imag)) == pytest.approx((-9.061, 2.007), abs=1e-3)
    x, _ = curves(after)[WITH]
    # The undamped poles lie on the axis with compensation, and one pair right of it without.
    assert x.max() < 1e-6
    assert curves(after)[WITHOUT][0].max() == pytest.approx(0.0544375, abs=1e-6)


def test_pole_sweep_from_0_to_5_ms(tamellin: dict[str, Picture]) -> None:
    slow, fast = panels(tamellin["fig-05"])
    marked = {1.0: (-0.0945541, -0.0554300), 4.0: (-0.1079223, 0.1074965)}
    for mode, axes in enumerate((slow, fast)):
        (points,) = axes.collections
        steps = np.asarray(points.get_array())
        assert (steps[0], steps[-1]) == (0.0, 5.0)
        real = points.get_offsets()[:, 0]
        assert real[0] == pytest.approx(curves(axes)["monolithic, 0 ms"][0][0], abs=1e-12)
        for step, expected in marked.items():
            at = int(np.abs(steps - step).argmin())
            assert steps[at] == pytest.approx(step)
            assert real[at] == pytest.approx(expected[mode], abs=1e-6)
    text = next(text.get_text() for text in fast.texts if "unstable" in text.get_text())
    critical = float(re.findall(r"[\d.]+", text)[0])
    (points,) = fast.collections
    crossing = np.interp(0.0, points.get_offsets()[:, 0], np.asarray(points.get_array()))
    assert critical == pytest.approx(crossing, abs=0.01)


@pytest.mark.parametrize(
    ("key", "without", "monolithic", "tolerance"),
    [
        ("fig-11", (0.2745, 0.1090), (0.00496, 0.00196), 0.02),
        ("fig-14", (0.0609, 0.0257), (0.00271, 0.00122), 0.02),
        ("fig-16", (1.158, 0.484), (0.0256, 0.0109), 0.02),
        ("fig-22", (0.0755, 0.126), (0.0034, 0.0047), 0.03),
    ],
)
def test_histories_have_the_errors_that_hold(
    tamellin: dict[str, Picture],
    key: str,
    without: tuple[float, float],
    monolithic: tuple[float, float],
    tolerance: float,
) -> None:
    whole, magnified = panels(tamellin[key])[:2], panels(tamellin[key])[2:]
    for column in (0, 1):
        found = curves(whole[column])
        exact = found["exact"][1]
        assert nrms(found[WITHOUT][1], exact) == pytest.approx(without[column], rel=tolerance)
        # The papers' compensator comes near the monolithic run, whose own error is the integrator's.
        assert nrms(found[WITH][1], exact) < max(2.2 * monolithic[column], 0.1 * without[column])
        near = curves(magnified[column])
        assert {*near} == {"exact", "monolithic", WITHOUT, WITH}
        for name, (time, values) in found.items():
            inside = time >= near[name][0][0] - 1e-9
            assert near[name][1] == pytest.approx(values[inside], abs=0), name
        size = np.abs(near["exact"][1]).max()
        distance = {name: np.abs(near[name][1] - near["exact"][1]).max() / size for name in near}
        assert distance["monolithic"] < distance[WITHOUT] / 5
        assert distance[WITH] < distance[WITHOUT] / 5


def chain_end(masses: list[float], k: list[float], c: list[float], v0: list[float], time: float) -> np.ndarray:
    """[x; v] of masses between walls at a time, from matrices written down here."""
    n = len(masses)

    def between_walls(values: list[float]) -> np.ndarray:
        return np.diag(np.add(values[:-1], values[1:])) - np.diag(values[1:-1], 1) - np.diag(values[1:-1], -1)

    lower = -np.hstack([between_walls(k), between_walls(c)]) / np.array(masses)[:, None]
    A = np.vstack([np.hstack([np.zeros((n, n)), np.eye(n)]), lower])
    return scipy.linalg.expm(A * time) @ np.concatenate([np.zeros(n), v0])


@pytest.mark.parametrize(
    ("key", "damping", "left"), [("fig-11", 0.0, 0), ("fig-14", 0.1, 0), ("fig-16", 0.1, 0), ("fig-22", 0.01, 1)]
)
def test_exact_histories_are_exact(tamellin: dict[str, Picture], key: str, damping: float, left: int) -> None:
    k, v0, factors = [10.0, 100.0, 1000.0], [100.0, -100.0], [1.0, 1.0, 1.0]
    masses = [1.0, 1.0]
    if key == "fig-22":
        masses, factors, v0 = [1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0, 5.0], [1.0, -2.0, 3.0, -4.0]
        k = [100 * factor for factor in factors]
    c = [damping * factor for factor in factors]
    displacement, force = (curves(axes)["exact"] for axes in panels(tamellin[key])[:2])
    x, v = np.split(chain_end(masses, k, c, v0, float(displacement[0][-1])), 2)
    assert displacement[1][-1] == pytest.approx(x[left + 1], rel=1e-8)
    pulled = -k[left + 1] * (x[left] - x[left + 1]) - c[left + 1] * (v[left] - v[left + 1])
    assert force[1][-1] == pytest.approx(pulled, rel=1e-8)


def test_views_are_cut_only_where_a_run_explodes_and_say_so(tamellin: dict[str, Picture]) -> None:
    cut = {
        (key, number)
        for key in ("fig-11", "fig-14", "fig-16", "fig-22")
        for number, axes in enumerate(panels(tamellin[key]))
        if any("view cut" in text.get_text() for text in axes.texts)
    }
    assert cut == {("fig-16", 2), ("fig-16", 3)}
    for key in ("fig-11", "fig-14", "fig-16", "fig-22"):
        for number, axes in enumerate(panels(tamellin[key])):
            top = axes.get_ylim()[1]
            largest = {name: np.abs(y).max() for name, (_, y) in curves(axes).items()}
            assert (largest.pop(WITHOUT) > top) == ((key, number) in cut)
            assert max(largest.values()) < top


def test_energies(tamellin: dict[str, Picture]) -> None:
    scales = {}
    for key in ("fig-12", "fig-15", "fig-17", "fig-21"):
        for number, axes in enumerate(panels(tamellin[key])):
            found = {name: y for name, (_, y) in curves(axes).items()}
            assert {*found} == {"exact", WITHOUT, WITH}
            errors = [nrms(found[name], found["exact"]) for name in (WITH, WITHOUT)]
            # The undamped system keeps its energy: relative to its range every error is large.
            assert errors[0] < errors[1] / 5, (key, number)
            scales[key, number] = axes.get_yscale()
    assert [name for name, scale in scales.items() if scale == "log"] == [("fig-15", 1)]
    undamped = {name: y for name, (_, y) in curves(panels(tamellin["fig-12"])[0]).items()}
    assert undamped["exact"] == pytest.approx(10_000.0, rel=1e-9)
    chirp = {name: y for name, (_, y) in curves(panels(tamellin["fig-17"])[0]).items()}
    assert chirp["exact"][0] == 0.0, "starts at rest"


def test_motor_energies_and_speeds(richiedei: dict[str, Picture]) -> None:
    (axes,) = panels(richiedei["fig-06"])
    ratios = {name: y[-1] / y[0] for name, (_, y) in curves(axes).items()}
    expected = {"monolithic": 0.974, WITHOUT: 4.19, WITH: 0.971}
    assert ratios == pytest.approx(expected, rel=0.01)
    motor, load = (curves(panels(richiedei[key])[0]) for key in ("fig-04", "fig-05"))
    # The load turns by up to π/6 with the slow mode; the motor, behind the gearbox, more than a hundred times faster.
    assert np.abs(motor["monolithic"][1]).max() > 100 * np.abs(load["monolithic"][1]).max()
    for found in (motor, load):
        assert nrms(found[WITH][1], found["monolithic"][1]) < nrms(found[WITHOUT][1], found["monolithic"][1]) / 5


def outcome(plain: float, repaired: float, radius: float) -> RandomOutcome:
    return RandomOutcome(radius, 0.99, 0.99, plain, repaired, 1e-9)


def test_bars_of_random_systems() -> None:
    study = [outcome(0.02, 0.004, 0.999), outcome(30.0, 0.005, 1.001), outcome(4e7, 0.006, 1.01)]
    study.append(outcome(np.inf, 0.007, 1.5))
    axes, summary = tamellin2022_figures.random_systems(study).axes
    without, repaired = (np.array([bar.get_height() for bar in bars]) for bars in axes.containers)
    assert without.tolist() == [0.02, 30.0, tamellin2022_figures.CUT, tamellin2022_figures.CUT]
    assert repaired.tolist() == [0.004, 0.005, 0.006, 0.007]
    places = [bar.get_x() + bar.get_width() / 2 for bar in axes.containers[0]]
    stars = {round(text.xy[0], 6): text.get_text() for text in axes.texts}
    assert stars == {
        round(places[1], 6): "*",
        round(places[2], 6): r"* $4{\cdot}10^{7}$",
        round(places[3], 6): "* ∞",
    }
    labels = [str(bars.get_label()) for bars in axes.containers]
    assert labels == [f"{WITHOUT}: 3 of 4 unstable", f"{WITH}: 0 of 4 unstable"]
    heights = [[bar.get_height() for bar in bars] for bars in summary.containers]
    assert heights[1] == pytest.approx([0.0055, 0.0055])
    assert next(text.get_text() for text in summary.texts) == "∞"
    assert axes.get_yscale() == summary.get_yscale() == "log"


def test_random_systems_are_those_of_the_study(tamellin: dict[str, Picture]) -> None:
    study = random_study(count=SYSTEMS)
    axes = panels(tamellin["fig-18"])[0]
    heights = [[bar.get_height() for bar in bars] for bars in axes.containers]
    assert heights[0] == pytest.approx([min(one.plain_error, tamellin2022_figures.CUT) for one in study])
    assert heights[1] == pytest.approx([one.feedback_error for one in study])
    assert len(axes.texts) == sum(one.plain_radius > 1 for one in study)


def test_discrete_design_beside_the_papers_compensator(tamellin: dict[str, Picture]) -> None:
    axes = panels(tamellin["beyond-discrete"])
    assert len(axes) == 6
    for number, panel in enumerate(axes):
        assert panel.get_yscale() == "log"
        largest = {name: y.max() for name, (_, y) in curves(panel).items()}
        design = mechanics_figures.DISCRETE_MONOLITHIC if number < 3 else mechanics_figures.DISCRETE_EXACT
        assert 0 < largest[design] < 1e-9
        assert 1e-3 < largest["with the papers' compensator"] < largest["without compensation"] / 5
        assert ("monolithic run" in largest) == (number >= 3)


def test_a_solution_has_one_colour_in_all_figures(tamellin: dict[str, Picture], richiedei: dict[str, Picture]) -> None:
    colours: dict[str, set[Any]] = {}
    for picture in (*tamellin.values(), *richiedei.values()):
        for axes in panels(picture):
            for line in axes.lines:
                colours.setdefault(str(line.get_label()), set()).add(line.get_color())
    names = ("exact", "monolithic", WITHOUT, WITH)
    assert {name: len(colours[name]) for name in names} == dict.fromkeys(names, 1)
    assert len(set().union(*(colours[name] for name in names))) == 4


def test_axes_are_labelled_with_units(tamellin: dict[str, Picture], richiedei: dict[str, Picture]) -> None:
    for picture in (*tamellin.values(), *richiedei.values()):
        for axes in panels(picture):
            if axes.get_subplotspec().is_last_row() and picture.name != "fig-18-random-systems":
                assert " / " in axes.get_xlabel(), picture.name
        legends = picture.figure.legends
        assert len(legends) == 1, picture.name
        # Above the panels and inside the page: a legend never covers data and is never cut.
        box = legends[0].get_window_extent()
        assert box.y0 >= max(axes.get_window_extent().y1 for axes in picture.figure.axes) - 1, picture.name
        assert box.x0 >= 0, picture.name
        assert box.x1 <= picture.figure.bbox.x1, picture.name


def test_draw_leaves_the_users_style_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(mpl.rcParams, "lines.linewidth", 7.5)
    seen = []

    def pictures() -> Iterator[Picture]:
        seen.append(mpl.rcParams["lines.linewidth"])
        yield Picture("empty", Figure())

    monkeypatch.setattr("cosimo.papers.pictures", lambda paper: pictures())
    (path,) = draw(["gomes2018"], tmp_path / "new" / "folder")
    assert path == tmp_path / "new" / "folder" / "gomes2018-empty.png"
    assert path.exists()
    assert seen == [1.5]
    assert mpl.rcParams["lines.linewidth"] == 7.5


def test_unknown_papers_and_papers_without_figures(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'tamellin2022'"):
        draw(["tamellin2021"], tmp_path / "none")
    assert not (tmp_path / "none").exists()
    assert draw(["gomes2018"], tmp_path) == []
    assert [paper for paper, module in PAPERS.items() if module is None] == without_figures([])
    assert without_figures(["gomes2018", "tamellin2022"]) == ["gomes2018"]


def test_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigurationError, match=r"pip install cosimo\[plot\]"):
        draw(["richiedei2024"], tmp_path)


def test_a_folder_or_file_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot create the folder"):
        draw(["richiedei2024"], tmp_path / "file")
    (tmp_path / "gomes2018-empty.png").mkdir()
    monkeypatch.setattr("cosimo.papers.pictures", lambda paper: iter([Picture("empty", Figure())]))
    with pytest.raises(OutputError, match=r"gomes2018-empty\.png'"):
        draw(["gomes2018"], tmp_path)


def test_importing_loads_no_matplotlib() -> None:
    modules = "cosimo.papers.tamellin2022_figures, cosimo.papers.richiedei2024"
    code = f"import {modules}, sys; print('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "figures"
    command = ["reproduce", "richiedei2024", "gomes2018", "--json", "--figures"]
    monkeypatch.setattr(gomes2018, "parameter_sets", lambda: parameter_sets(count=10))
    done = CliRunner().invoke(app, [*command, str(folder)])
    document = json.loads(done.stdout)
    assert {item["paper"] for item in document["items"]} == {"richiedei2024", "gomes2018"}
    assert len(document["figures"]) == len(RICHIEDEI)
    assert {Path(file) for file in document["figures"]} == {*folder.glob("*.png")}
    assert done.stderr == "no figures are drawn for gomes2018\n"
    (tmp_path / "file").write_text("")
    command.remove("gomes2018")
    failed = processes.run([*processes.COSIMO, *command, str(tmp_path / "file")], capture_output=True, text=True)
    assert failed.returncode == 7
    assert json.loads(failed.stdout)["exit_code"] == 7


def test_figures_are_drawn_only_when_asked_for() -> None:
    assert "figures" not in json.loads(CliRunner().invoke(app, ["reproduce", "richiedei2024", "--json"]).stdout)


def test_the_page_names_every_file(tamellin: dict[str, Picture], richiedei: dict[str, Picture]) -> None:
    text = (DOCS / "figures.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:tamellin2022|richiedei2024)-[\w-]+\.png)`", text))
    assert named == {f"tamellin2022-{picture.name}.png" for picture in tamellin.values()} | {
        f"richiedei2024-{picture.name}.png" for picture in richiedei.values()
    }


@pytest.mark.parametrize(("key", "name"), [("fig-07", "eigenloci"), ("beyond-discrete", "discrete-design")])
def test_pictures_of_the_page_are_the_ones_drawn(
    tamellin: dict[str, Picture], key: str, name: str, tmp_path: Path
) -> None:
    kept = DOCS / "images" / f"{name}.png"
    assert kept.stat().st_size < 120_000
    tamellin[key].figure.savefig(tmp_path / "drawn.png", dpi=80)
    images = [matplotlib.image.imread(path)[..., :3] for path in (kept, tmp_path / "drawn.png")]
    assert images[0].shape == images[1].shape
    # Fonts and renderers differ a little between versions.
    assert np.abs(images[0] - images[1]).mean() < 0.02
