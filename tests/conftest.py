"""What holds for all tests: Ctrl-C as at a terminal, no limits of time, and programs that a machine may lack.

Tests with a marker of `NEEDS` are left out where their program is missing or cannot start; the end of the run names the
marker, the number of tests, the reason and the remedy. Nothing else is ever left out.
"""

from __future__ import annotations

import functools
import os
import pickle
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, settings

from thinning import ALL, examples

# A shell that starts a program in the background has it ignore Ctrl-C, nohup has it ignore the end of its terminal, and
# so would every program that tests start; those that interrupt a run would then wait for it in vain.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# How long examples take says something about the machine only. In `make test` they are always the same.
slow_machine = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}
settings.register_profile("all", max_examples=100, **slow_machine)
settings.register_profile("quick", max_examples=examples(100), derandomize=True, **slow_machine)
settings.load_profile("all" if ALL else "quick")

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# The kinds of mounts that the sandbox of cosimo makes, without any of its code: a fault in there must fail its tests.
SANDBOX = "bwrap --unshare-all --ro-bind / / --proc /proc --dev /dev --size 1048576 --tmpfs /tmp true"
MOUNT = "unshare -rm mount -t tmpfs none /mnt"
TUN = "unshare -n dd if=/dev/net/tun count=0 status=none"


class Need(NamedTuple):
    """A command that succeeds where the tests can run, the package that brings it, and what else it takes."""

    command: str
    package: str
    permission: str

    def lacking(self) -> str | None:
        """Why the command does not succeed, with the remedy; None where it does."""
        program, *words = self.command.split()
        if shutil.which(program) is None:
            return f"there is no program '{program}', install the package {self.package}"
        done = subprocess.run([program, *words], capture_output=True, text=True, check=False, timeout=120)
        said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return f"'{program}' cannot start here ({said}), {self.permission}" if done.returncode else None


def find_browser() -> str:
    """The first of `BROWSERS` that is there."""
    return next(filter(shutil.which, BROWSERS), BROWSERS[0])


NEEDS = {
    "browser": Need(f"{find_browser()} --version", "chromium", "install the package chromium"),
    "sandbox": Need(SANDBOX, "bubblewrap", "allow user namespaces"),
    "mounts": Need(MOUNT, "util-linux", "allow user namespaces"),
    "network": Need(TUN, "util-linux", "run as root where there is /dev/net/tun"),
}
LEFT_OUT = "cosimo_left_out"
"""Under which a worker of pytest-xdist hands its lines to the process that prints them."""
LINES = pytest.StashKey[Sequence[str]]()


SEEN = Counter[tuple[str, str]]()
"""Cases collected so far, by module and test."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark all but every n-th of the quick cases of a test with the marker `one_in(n)` as slow (see `thinning.py`)."""
    marker = item.get_closest_marker("one_in")
    if marker and isinstance(item, pytest.Function) and not item.get_closest_marker("slow"):
        test = (str(item.path), item.originalname)
        if SEEN[test] % marker.args[0]:
            item.add_marker(pytest.mark.slow)
        SEEN[test] += 1


@pytest.hookimpl(trylast=True)  # what -m and -k leave out is not missing here
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    lines = []
    for marker, need in NEEDS.items():
        marked = [item for item in items if item.get_closest_marker(marker)]
        if marked and (reason := need.lacking()):
            lines.append(f"{len(marked)} test{'s' * (len(marked) > 1)} marked '{marker}': {reason}")
            items[:] = [item for item in items if item not in marked]
            config.hook.pytest_deselected(items=marked)
    config.stash[LINES] = lines
    if hasattr(config, "workeroutput"):
        config.workeroutput[LEFT_OUT] = lines


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist, which collects tests in other processes
def pytest_testnodedown(node: Any, error: object) -> None:
    if lines := getattr(node, "workeroutput", {}).get(LEFT_OUT):
        node.config.stash[LINES] = lines


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if lines := config.stash.get(LINES, ()):
        terminalreporter.write_line(f"LEFT OUT: {'; '.join(lines)}", red=True, bold=True)


def _wait_for(descriptor: int) -> None:
    """Hold a file as soon as nobody else does."""
    from cosimo.core.storage import hold

    while True:
        try:
            return hold(descriptor)
        except BlockingIOError:
            time.sleep(0.01)


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache of this run's own: an earlier run's decides nothing here, and nothing is left in the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COSIMO_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def browser() -> str:
    """The program for tests that are marked 'browser'."""
    return find_browser()


@pytest.fixture(scope="session")
def reproduced(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[Any]]:
    """The items of a paper, computed once for all tests and processes of a run: some take ten seconds."""
    alone = "PYTEST_XDIST_WORKER" not in os.environ
    folder = tmp_path_factory.getbasetemp() if alone else tmp_path_factory.getbasetemp().parent

    @functools.cache
    def items(paper: str) -> list[Any]:
        from cosimo.papers import reproduce

        with open(folder / f"{paper}.items", "a+b") as file:
            _wait_for(file.fileno())  # whoever comes second waits for the first
            file.seek(0)
            if kept := file.read():
                return pickle.loads(kept)  # type: ignore[no-any-return]
            found = list(reproduce([paper]))
            file.write(pickle.dumps(found))
            return found

    return items
