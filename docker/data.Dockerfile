# The data image, used as in the 2016 manifests: OUT_DIR and SPLIT_COUNT, no arguments. It contains a small quick_start data set.
ARG LAUNCHER=paddle-launcher:0.1.0
FROM ${LAUNCHER}
ARG LAUNCHER
ARG ALLOW_LATEST=0
COPY docker/check_base.sh examples/quick_start/*.py /tmp/quick_start/
RUN /tmp/quick_start/check_base.sh LAUNCHER "${LAUNCHER}" \
 && python3 /tmp/quick_start/make_data.py /quick_start_data --examples 3000 --seed 1 && rm -r /tmp/quick_start
ENTRYPOINT ["paddle-launcher", "shard", "--data", "/quick_start_data/data", "--config", "/quick_start_data/quick_start"]
CMD []
