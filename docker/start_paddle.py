#!/bin/sh
# For users' start.sh files that call `/root/start_paddle.py FLAGS`. In 2016 it was a Python script; now it calls `run`.
exec paddle-launcher run "$@"
