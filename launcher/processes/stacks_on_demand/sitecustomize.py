"""Make this Python process write its stacks when it gets a signal: 50 for all threads, 51 for the main thread only.

Stacks of threads that run at this time may crash Python, so signal 50 is only for a job that hangs.

Each Python process that a launcher has started imports this module. The handler is written in C and does not need the
GIL, so it works while the program hangs in C code. The handler writes to a memory file. The launcher reads this file
among the open files of the process. The file's name contains the signal's number. This module must run without an error
in Python 2, too, which Paddle v0 embeds. In Python 2 the module does nothing.
"""

import os
import sys

ALL, MAIN = 50, 51  # real-time signals that neither Python, Paddle nor glog uses

try:
    import faulthandler
    import signal

    if signal.getsignal(ALL) == signal.getsignal(MAIN) == signal.SIG_DFL:
        name = "launcher-stacks-%d" % ALL  # noqa: UP031
        if hasattr(os, "memfd_create"):
            memory = os.memfd_create(name)
        else:  # this Python was built with an older libc, like conda's Python
            import ctypes

            memory = ctypes.CDLL(None).memfd_create(name.encode(), 1)
        if memory >= 0:
            for number in (ALL, MAIN):
                signal.signal(number, signal.SIG_IGN)  # when Python ends, faulthandler restores this
                faulthandler.register(number, memory, all_threads=number == ALL)
except Exception:  # an error must not disturb the program: the evidence then says that there are no stacks
    pass

# The image or the user may have another module of this name: import it now, as Python would have done.
here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [path for path in sys.path if os.path.abspath(path) != here]
ours = sys.modules.pop("sitecustomize", None)
try:
    import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
except ImportError as error:
    if ours is not None:
        sys.modules["sitecustomize"] = ours
    if getattr(error, "name", "sitecustomize") != "sitecustomize":
        raise
