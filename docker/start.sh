#!/bin/bash
# The 2016 manifests call this script. It trains in /root with the flags of the 2016 start.sh, plus its own arguments.
cd /root && exec paddle-launcher run --dot_period=10 --log_period=50 --num_passes=10 --saving_period=1 --use_gpu=0 "$@"
