"""The command line: arguments in, objects out. Everything heavy is imported inside the verbs."""

from cosimo.cli import analyse, files, papers, report, run, studies, tune  # noqa: F401  each adds its verbs
from cosimo.cli.application import app, main

__all__ = ["app", "main"]

_VERBS = "new analyse run resume plot compensate compare tune sweep report info validate export problems reproduce"
app.registered_commands.sort(key=lambda command: _VERBS.split().index(command.callback.__name__))  # type: ignore[union-attr]
