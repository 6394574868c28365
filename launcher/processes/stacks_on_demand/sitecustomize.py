"""Make this Python process write its stacks when it gets a signal.

If LAUNCHER_STALL_TIMEOUT is set, each Python process that a launcher has started imports this module. The handler is
written in C and does not need the GIL, so it works while the program hangs in C code. The handler writes to a memory
file. The launcher reads this file among the open files of the process. The file's name contains the signal's number.
This module must run without an error in Python 2, too, which Paddle v0 embeds. In Python 2 the module does nothing.
"""

import os
import sys

SIGNAL = 50  # a real-time signal that neither Python, Paddle nor glog uses

try:
    import faulthandler
    import signal

    if signal.getsignal(SIGNAL) == signal.SIG_DFL:
        name = "launcher-stacks-%d" % SIGNAL  # noqa: UP031
        if hasattr(os, "memfd_create"):
            memory = os.memfd_create(name)
        else:  # this Python was built with an older libc, like conda's Python
            import ctypes

            memory = ctypes.CDLL(None).memfd_create(name.encode(), 1)
        if memory >= 0:
            faulthandler.register(SIGNAL, memory, all_threads=True)
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
