"""`python -m cosimo.cli` does what the command `cosimo` does."""

from cosimo.cli import main

main()
