"""Each Python below a launcher with LAUNCHER_STALL_TIMEOUT imports this. A signal then makes it write its stacks.

The handler is in C and needs no lock of Python, so it works while the program hangs in C code. It writes to a memory
file. The launcher finds this file among the open files of the process; its name contains the number of the signal.
This must also run without an error in Python 2, which Paddle v0 embeds. There it does nothing.
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
        else:  # this Python was built with an older libc, as that of conda
            import ctypes

            memory = ctypes.CDLL(None).memfd_create(name.encode(), 1)
        if memory >= 0:
            faulthandler.register(SIGNAL, memory, all_threads=True)
except Exception:  # the program must not notice; the evidence then says that there are no stacks
    pass

# The image or the user may have a module of this name, too: import it now, as Python would have done.
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
