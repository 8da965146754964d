"""An environment of their own for the peers: each is installed by itself, and what does not install is noted.

python -m benchmarks.peers_install      makes build/peers; does nothing when it is newer than requirements.txt
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import venv
from pathlib import Path

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
FOLDER = Path(__file__).parents[1] / "build" / "peers"
PYTHON = FOLDER / "bin" / "python"
NOTES = FOLDER / "not-installed.json"
PATIENCE = 300


def install() -> dict[str, str]:
    """The packages that did not install, with the reason."""
    if NOTES.exists() and NOTES.stat().st_mtime >= REQUIREMENTS.stat().st_mtime:
        return failures()
    if not PYTHON.exists():
        venv.create(FOLDER, with_pip=True)
    failed = {}
    for line in REQUIREMENTS.read_text(encoding="utf-8").splitlines():
        package = line.split("#")[0].strip()
        if package:
            print(f"installing {package}", flush=True)
            reason = _install(package)
            if reason:
                failed[package] = reason
                print(f"  not installed: {reason}", flush=True)
    NOTES.write_text(json.dumps(failed, indent=2) + "\n", encoding="utf-8")
    return failed


def failures() -> dict[str, str]:
    """What an earlier call noted; everything, when there was none."""
    if not NOTES.exists():
        names = (line.split("#")[0].strip() for line in REQUIREMENTS.read_text(encoding="utf-8").splitlines())
        return {name: "the peers' environment was not made" for name in names if name}
    noted: dict[str, str] = json.loads(NOTES.read_text(encoding="utf-8"))
    return noted


def versions(*packages: str) -> dict[str, str]:
    """The versions in the peers' environment."""
    code = "import sys; from importlib.metadata import version; print(*map(version, sys.argv[1:]))"
    done = subprocess.run([PYTHON, "-c", code, *packages], capture_output=True, text=True, check=True)
    return dict(zip(packages, done.stdout.split(), strict=True))


def _install(package: str) -> str:
    """Nothing, or why not. Without a wheel the source is built with what the environment already holds."""
    output = ""
    for how in ([], ["--no-build-isolation"]):
        command = [PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *how, package]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
        except subprocess.TimeoutExpired:
            return f"pip did not end within {PATIENCE} s"
        if done.returncode == 0:
            return ""
        output += done.stdout + done.stderr
    return _reason(output)


def _reason(output: str) -> str:
    """The line of pip's output that says why."""
    if "Max retries exceeded" in output or "NameResolutionError" in output:
        return "its build downloads a library from a host that cannot be reached"
    said = [line.strip() for line in output.splitlines() if re.match(r"\s*\w*(Error|Exception|error): ", line)]
    wanted = [line for line in said if "subprocess-exited" not in line and "metadata-generation" not in line]
    return wanted[-1].split(". ")[0] if wanted else "pip failed without a reason"


if __name__ == "__main__":
    install()
    sys.exit(0)
