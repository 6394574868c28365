#!/bin/bash
# What manifests in the field call: training in /root with the flags of the old start.sh; arguments add to them.
cd /root && exec paddle-launcher run --dot_period=10 --log_period=50 --num_passes=10 --saving_period=1 --use_gpu=0 "$@"
