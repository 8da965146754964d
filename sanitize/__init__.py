"""The compiled parts under the compiler's sanitizers: `python -m sanitize`, `make sanitize`.

Each kind is a build of its own in `build/sanitize/<kind>`, and the tests of the kernel run on it, in Python, with the
sanitizer's library loaded first. What it reports is counted by whose code it is about: a report with a frame in our
code fails, one without (the interpreter keeps memory until the end of the process) is only counted.
"""
