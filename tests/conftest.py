"""What all tests need of the process that they run in."""

from __future__ import annotations

import signal

# A shell starts background jobs with Ctrl-C ignored, and what is ignored stays so in every child:
# the programs that tests interrupt would never notice.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
