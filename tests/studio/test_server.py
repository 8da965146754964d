"""The server: it answers its own page on this machine alone, and survives what it refuses."""

from __future__ import annotations

import base64
import http.client
import json
import os
import socket
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

import cosimo as co
from cosimo.formats.export import SuggestedExperiment, export_system
from cosimo.formats.results import read_result
from cosimo.studio import page_state
from cosimo.studio.page_state import State
from processes import COSIMO, run

from .conftest import PATIENCE, Served, receive, served


@pytest.fixture(scope="module")
def two_mass(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("studio")
    (folder.parent / "secret.toml").write_text('problem = "two-mass"\n')
    with served(folder, "two-mass") as found:
        yield found


def get(studio: Served, path: str, **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(studio.host, timeout=PATIENCE)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_the_page_is_served(two_mass: Served) -> None:
    for name, holds in (("", "<title>"), ("studio.js", "import"), ("report.css", "--page"), ("plot.js", "canvas")):
        status, text = get(two_mass, f"/{two_mass.token}/{name}")
        assert status == 200
        assert holds in text


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},  # a name that was made to point here
        {"Host": "127.0.0.1"},
        {"Host": "127.0.0.1:1"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
    ],
)
def test_other_hosts_and_origins_are_refused(two_mass: Served, headers: dict[str, str]) -> None:
    status, text = get(two_mass, f"/{two_mass.token}/", **headers)
    assert (status, "the address that it printed" in text) == (403, True)


@pytest.mark.parametrize("path", ["/", "/wrong/", "/wrong/live", "//", "/{token}x/", "/%00/"])
def test_without_the_token_nothing_is_answered(two_mass: Served, path: str) -> None:
    status, text = get(two_mass, path.replace("{token}", two_mass.token))
    assert (status, two_mass.token in text) == (403, False)


@pytest.mark.parametrize("path", ["server.py", "../page_state.py", "..%2fpage_state.py", "page/page.html", "etc"])
def test_only_files_of_the_page_are_served(two_mass: Served, path: str) -> None:
    assert get(two_mass, f"/{two_mass.token}/{path}")[0] == 404


@pytest.mark.parametrize(
    "changed",
    [
        {"origin": "http://evil.example"},
        {"origin": None},
        {"address": "ws://{host}/wrong/live"},
        {"address": "ws://evil.example/{token}/live", "origin": "http://evil.example"},  # a name that points here
    ],
)
def test_sockets_of_others_are_refused(two_mass: Served, changed: dict[str, Any]) -> None:
    name, port = two_mass.host.split(":")
    if "address" in changed:
        address = changed["address"].replace("{host}", two_mass.host).replace("{token}", two_mass.token)
        changed = {**changed, "address": address, "sock": socket.create_connection((name, int(port)), PATIENCE)}
    with pytest.raises(InvalidStatus) as refused, two_mass.socket(**changed):
        pass
    assert refused.value.response.status_code == 403


def test_a_large_message_ends_its_own_connection_alone(two_mass: Served) -> None:
    with two_mass.socket() as large, two_mass.socket() as other:
        receive(large, "hello")
        with pytest.raises(ConnectionClosed):  # noqa: PT012
            large.send("x" * 100_000_000)
            while True:
                large.recv(timeout=PATIENCE)
        assert receive(other, "hello")["state"] == {"system": "two-mass"}


def test_a_thousand_connections_are_survived(two_mass: Served) -> None:
    name, port = two_mass.host.split(":")
    opened = [socket.create_connection((name, int(port)), PATIENCE) for _ in range(1000)]
    for one in opened:
        one.close()
    with two_mass.socket() as page:
        assert receive(page, "hello")


@pytest.mark.parametrize(
    "system",
    ["../secret.toml", "/etc/passwd", "secret.toml", "quarter-truck"],
    ids=["above", "root", "beside", "other"],
)
@pytest.mark.parametrize("kind", ["look", "apply", "run", "freeze"])
def test_other_systems_and_paths_are_refused(two_mass: Served, system: str, kind: str) -> None:
    with two_mass.socket() as page:
        page.send(json.dumps({"kind": kind, "key": 1, "state": {"system": system}}))
        while (message := json.loads(page.recv(timeout=PATIENCE)))["kind"] == "hello":
            pass
        assert message["kind"] == "error"
        assert "this studio shows 'two-mass'" in message["text"]


@pytest.mark.parametrize(
    "text", ["", "[]", "3", "{}", '{"kind": "look"}', '{"kind": "stop"}', '{"kind": "watch"}', "{"]
)
def test_what_is_no_request_is_said_and_survived(two_mass: Served, text: str) -> None:
    with two_mass.socket() as page:
        receive(page, "hello")
        page.send(text)
        assert json.loads(page.recv(timeout=PATIENCE))["kind"] == "error"
        page.send(json.dumps({"kind": "look", "key": 1, "state": {"system": "two-mass"}}))
        assert receive(page, "description")["name"] == "two-mass"


def test_a_state_is_shown_and_judged(two_mass: Served) -> None:
    with two_mass.socket() as page:
        page.send(json.dumps({"kind": "look", "key": 7, "state": {"system": "two-mass", "step": 0.004}}))
        assert receive(page, "frame", key=7)["frame"]["headline"] == "Do not trust: unstable"
        verdict = receive(page, "verdict", key=7)["verdict"]
        assert verdict["headline"] == "Do not trust: unstable"
        page.send(
            json.dumps(
                {"kind": "take", "state": {"system": "two-mass"}, "options": verdict["recommendation"]["options"]}
            )
        )
        taken = receive(page, "taken")["state"]
        page.send(json.dumps({"kind": "look", "key": 8, "state": taken}))
        assert receive(page, "frame", key=8)["frame"]["trust"] == "yes"


def test_a_run_goes_on_without_a_page(studio: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "pair.toml").write_text('problem = "two-mass"\nstep-size = 0.001\nstop-time = 2\n')
    with studio("pair.toml") as found:
        with found.socket() as page:
            page.send(json.dumps({"kind": "run", "state": {"system": "pair.toml"}}))
            receive(page, "runs")
        with found.socket() as page:
            while (run := receive(page, "runs")["runs"][0])["state"] == "running":
                pass
            page.send(json.dumps({"kind": "watch", "names": ["two.x"]}))
            while isinstance(data := page.recv(timeout=PATIENCE), str):
                pass
    assert (run["state"], run["rows"], run["file"]) == ("done", 2001, "pair-run-1.parquet")
    result = read_result(tmp_path / "pair-run-1.parquet")
    assert (result.values == co.load(tmp_path / "pair.toml").run(record="all").values).all()
    # The samples are those of the run: number of the run and of the signal, then times and values.
    values = np.frombuffer(data[8:])
    assert run["names"][int.from_bytes(data[4:8], "little")] == "two.x"
    assert (values[2001:] == result["two.x"]).all()


def test_a_run_is_paused_goes_on_and_keeps_its_rows_when_stopped(studio: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "pair.toml").write_text('problem = "two-mass"\nstep-size = 1e-7\nstop-time = 1000\n')
    with studio("pair.toml") as found, found.socket() as page:
        page.send(json.dumps({"kind": "run", "state": {"system": "pair.toml"}}))
        while not (run := receive(page, "runs")["runs"][0])["rows"]:
            pass
        page.send(json.dumps({"kind": "pause", "run": run["number"], "wanted": True}))
        while (run := receive(page, "runs")["runs"][0])["state"] != "paused":
            pass
        page.send(json.dumps({"kind": "pause", "run": run["number"], "wanted": False}))
        while (later := receive(page, "runs")["runs"][0])["rows"] <= run["rows"] or later["state"] != "running":
            pass
        page.send(json.dumps({"kind": "pause", "run": run["number"], "wanted": True}))
        page.send(json.dumps({"kind": "stop", "run": run["number"]}))  # also while it is paused
        while (run := receive(page, "runs")["runs"][0])["state"] in ("running", "paused"):
            pass
    assert run["state"] == "stopped"
    assert list(tmp_path.glob("pair-run-1.parquet*"))


TANK = """
import os

class Tank:
    inputs, outputs = {"inflow": 1.0}, ("outflow",)
    def __init__(self, rate=0.5):
        self.rate, self.outflow = rate, 0.0
    def step(self, time, duration):
        if self.rate > 1:
            os.abort()
        self.outflow += duration * self.rate * (self.inflow - self.outflow)
"""
TANKS = """
step-size = 0.1
stop-time = 5
connections = ["first.outflow -> second.inflow"]
[units]
first = { kind = "python", class = "tanks.py:Tank" }
second = { kind = "python", class = "tanks.py:Tank" }
"""


def test_a_unit_that_crashes_is_survived(studio: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "tanks.py").write_text(TANK)
    (tmp_path / "tanks.toml").write_text(TANKS)
    crashing = {"system": "tanks.toml", "settings": {"first.rate": 2.0}}
    with studio("tanks.toml") as found, found.socket() as page:
        page.send(json.dumps({"kind": "look", "key": 1, "state": crashing}))
        assert ("SIGABRT" if os.name == "posix" else "aborted") in receive_error(page)
        page.send(json.dumps({"kind": "run", "state": crashing}))
        assert (run := ended(page))["state"] == "failed"
        assert "first" in run["said"]
        page.send(json.dumps({"kind": "look", "key": 2, "state": {"system": "tanks.toml"}}))
        assert "tanks.toml" in receive(page, "text", key=2)["command"]


def ended(page: Any) -> dict[str, Any]:
    """The first run when it has ended."""
    while (run := receive(page, "runs")["runs"][0])["state"] == "running":
        pass
    return dict(run)


def test_a_file_that_cannot_be_read_is_said(studio: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "pair.toml").write_text('problem = "two-mass"\n')
    with studio("pair.toml") as found, found.socket() as page:
        (tmp_path / "pair.toml").write_text("not a scenario [")
        page.send(json.dumps({"kind": "look", "key": 1, "state": {"system": "pair.toml"}}))
        assert "pair.toml" in receive_error(page)


def test_what_an_editor_writes_is_shown(studio: Callable[..., Any], tmp_path: Path) -> None:
    """Every page is told; nothing that was answered, or is still computed, of the file as it was is shown for it."""
    file = tmp_path / "pair.toml"
    file.write_text('problem = "two-mass"\nstep-size = 0.004\n')
    look = {"kind": "look", "state": {"system": "pair.toml"}}
    with studio("pair.toml") as found, found.socket() as page, found.socket() as other:
        page.send(json.dumps({**look, "key": 1}))
        assert receive(page, "frame", key=1)["frame"]["headline"] == "Do not trust: unstable"
        receive(page, "judging", key=1)
        file.write_text('problem = "two-mass"\nstep-size = 0.0001\n')
        receive(other, "changed")
        receive(page, "changed")
        page.send(json.dumps({**look, "key": 2}))
        assert receive(page, "frame", key=2)["frame"]["step"] == 0.0001
        assert receive(page, "verdict", key=2)["verdict"]["step_size"] == 0.0001


def receive_error(page: Any) -> str:
    while (message := json.loads(page.recv(timeout=PATIENCE)))["kind"] != "error":
        pass
    return str(message["text"])


def test_a_port_that_is_taken_is_said(two_mass: Served, tmp_path: Path) -> None:

    port = two_mass.host.split(":")[1]
    answer = run([*COSIMO, "studio", "--no-browser", "--port", port], cwd=tmp_path, capture_output=True, text=True)
    assert answer.returncode == 2
    assert f"port {port} cannot be used" in answer.stderr


def test_the_page_begins_with_what_the_command_line_says(studio: Callable[..., Any], tmp_path: Path) -> None:
    words = ("--set", "kc=120", "--master", "gauss-seidel", "--order", "two,one", "--step-size", "2ms")
    with studio("two-mass", *words, "--target-error", "0.02", "--stop-time", "5") as found, found.socket() as page:
        state = receive(page, "hello")["state"]
        page.send(json.dumps({"kind": "look", "key": 1, "state": {**state, "fixed": {"input_file": "/etc/passwd"}}}))
        command = receive(page, "text", key=1)["command"]
    expected = (
        "--set kc=120 --target-error 0.02 --stop-time 5.0 --master gauss-seidel --order two,one --step-size 0.002"
    )
    assert command == f"cosimo analyse two-mass {expected}"


def put(studio: Served, name: str, data: bytes) -> tuple[int, str]:
    connection = http.client.HTTPConnection(studio.host, timeout=PATIENCE)
    try:
        connection.request("PUT", f"/{studio.token}/fmus/{name}", body=data)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_fmus_are_dropped_and_coupled(tmp_path: Path) -> None:
    made = tmp_path / "elsewhere"
    files = list(
        export_system(
            co.problems.quarter_truck(), made, fmi=2, experiment=SuggestedExperiment(step=1e-3, stop=3.0)
        ).values()
    )
    folder = tmp_path / "studio"
    folder.mkdir()
    with served(folder, "two-mass", "--isolate") as found, found.socket() as page:
        for file in files:
            assert put(found, file.name, file.read_bytes())[0] == 200
        assert put(found, files[0].name, files[0].read_bytes())[0] == 200  # the same again
        assert put(found, files[0].name, b"another") == (
            409,
            f"another '{files[0].name}' is in the folder already; rename one.",
        )
        for name in ("..%2fabove.fmu", "above.toml", ".hidden.fmu", "a%00.fmu"):
            assert put(found, name, b"x")[0] in (400, 404)
        assert {path.name for path in folder.iterdir()} == {file.name for file in files}
        assert (folder / files[0].name).read_bytes() == files[0].read_bytes()
        page.send(json.dumps({"kind": "couple", "files": ["../elsewhere/wheel.fmu"]}))
        assert "not the name of an FMU in the folder" in receive_error(page)
        page.send(json.dumps({"kind": "couple", "files": [file.name for file in files]}))
        opened = receive(page, "opened")
        assert opened["state"] == {"system": "system.toml", "fixed": {"isolate": ["*"]}}
        assert {one["target"] for one in opened["proposals"]["connections"]} >= {"wheel.force"}
        page.send(json.dumps({"kind": "look", "key": 5, "state": opened["state"]}))
        assert receive(page, "frame", key=5)["frame"]["trust"] == "not assessed"
        assert receive(page, "text", key=5)["command"].startswith("cosimo analyse system.toml --isolate --master")


@pytest.mark.slow
def test_the_report_is_interactive(tmp_path: Path) -> None:
    words = ["report", "quarter-truck", "--interactive", "-o", "page.html", "--json"]
    done = run([*COSIMO, *words], cwd=tmp_path, capture_output=True, text=True)
    assert json.loads(done.stdout)["bytes"] == (tmp_path / "page.html").stat().st_size
    text = (tmp_path / "page.html").read_text()
    data = unpacked(text)
    for entry in data["entries"]:  # every master at every step, as `analyse` says it
        frames = [message["frame"] for message in entry["messages"] if message["kind"] == "frame"]
        assert [frame["step"] for frame in frames] == data["description"]["steps"]
        assert {frame["stable"] for frame in frames} == {True, False}
    entry = next(one for one in data["entries"] if (one["master"]["name"], one["coupling"]) == ("strang", "hold1"))
    told = next(message["frame"] for message in entry["messages"][40:] if message["kind"] == "frame")
    state = State.read({"system": "quarter-truck", "step": told["step"], "master": entry["master"]})
    assert told == json.loads(json.dumps(page_state.frame(state)))
    assert "src=" not in text.partition('id="frozen">')[0]


def unpacked(page: str) -> Any:
    """What lies inside a frozen page."""
    return json.loads(zlib.decompress(base64.b64decode(page.partition('id="frozen">')[2].partition("</script>")[0])))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("report two-mass --interactive --tune", "--interactive writes the page of the studio, without --tune"),
        ("report two-mass rows.csv --interactive", "--interactive shows one system"),
        ("studio two-mass quarter-truck --no-browser", "'two-mass' is not the only system"),
        ("studio a.fmu b.fmu --no-browser", "'a.fmu'"),
        ("studio three-mass --no-browser", "unknown system"),
        ("studio --port 99999 --no-browser", "port 99999 cannot be used"),
    ],
)
def test_words_that_do_not_fit_are_said(tmp_path: Path, words: str, why: str) -> None:
    done = run([*COSIMO, *words.split()], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, why in done.stderr) == (2, True), done.stderr
    assert "Traceback" not in done.stderr
