"""Imported by each Python below a launcher whose watchdog is on: a signal makes it write its stacks to a memory file.

The handler is in C and waits for nobody, so that it answers while the program hangs in C code. The launcher finds the
file among the open ones of the process; its name says which signal it is for. Any Python may come by, also the one
that Paddle v0 embeds, so this is written for Python 2 as well: it has no stacks, and no error either.
"""

import os
import sys

SIGNAL = 50  # a real-time one, which neither Python nor Paddle nor glog uses

try:
    import faulthandler
    import signal

    if signal.getsignal(SIGNAL) == signal.SIG_DFL:
        name = "launcher-stacks-%d" % SIGNAL  # noqa: UP031
        if hasattr(os, "memfd_create"):
            memory = os.memfd_create(name)
        else:  # built for an older libc than the one that is here, as conda's is
            import ctypes

            memory = ctypes.CDLL(None).memfd_create(name.encode(), 1)
        if memory >= 0:
            faulthandler.register(SIGNAL, memory, all_threads=True)
except Exception:  # then there are no stacks, which the evidence says: it is nothing that the program should see
    pass

# This module stands before another one of its name, of the image or of the user, which is to be found as ever.
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
