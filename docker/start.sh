#!/bin/bash
# The 2016 manifests call this script. It trains in /root with the flags of the 2016 start.sh, plus its own arguments.
# Half of these manifests do not set TRAINER_COUNT. Their trainers ran with --trainer_count=4.
export TRAINER_COUNT="${TRAINER_COUNT:-4}"
cd /root && exec paddle-launcher run --dot_period=10 --log_period=50 --num_passes=10 --saving_period=1 --use_gpu=0 "$@"
