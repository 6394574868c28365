#!/bin/sh
# For start.sh files of one's own: `/root/start_paddle.py FLAGS` was a Python script once, and is `run` now.
exec paddle-launcher run "$@"
