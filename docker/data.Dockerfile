# The data image of the seeds: OUT_DIR and SPLIT_COUNT, no arguments; a small quick_start data set is inside.
ARG LAUNCHER=paddle-launcher:latest
FROM ${LAUNCHER}
COPY tests/standin/dataset.py /tmp/dataset.py
RUN python3 /tmp/dataset.py /quick_start_data --lines 3000 --seed 1 && rm /tmp/dataset.py
ENTRYPOINT ["paddle-launcher", "shard", "--data", "/quick_start_data/data", "--config", "/quick_start_data/quick_start"]
CMD []
