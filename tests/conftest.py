"""What holds for all tests."""

from __future__ import annotations

import signal

# A shell that starts a program in the background has it ignore Ctrl-C, and so would every program that tests start;
# those that interrupt a run would then wait for it in vain.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
