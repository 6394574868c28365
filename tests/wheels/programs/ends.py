"""A worker without Paddle that ends in the given way: `ends.py RANK HOW`. HOW: a number (exit code), kill, stubborn.

The others sleep until they are ended; `stubborn` makes all ignore SIGTERM.
"""

import os
import signal
import sys
import time

rank, how = sys.argv[1:3]
if how == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(f"rank {os.environ['PADDLE_TRAINER_ID']} is worker {os.getpid()}", flush=True)
if os.environ["PADDLE_TRAINER_ID"] == rank and how != "stubborn":
    for number in range(int(os.environ.get("LINES", "0"))):
        print(f"line {number} of a worker that has much to say before it ends", flush=True)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    sys.exit(int(how))
time.sleep(300)
