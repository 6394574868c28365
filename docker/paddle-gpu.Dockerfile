# Paddle for NVIDIA GPUs: the base for docker/Dockerfile. Build it in the repository's root:
#   docker build -f docker/paddle-gpu.Dockerfile --build-arg INDEX=... -t paddle:gpu .
# INDEX is Paddle's package index for one version of CUDA. Paddle's installation page shows it after `pip install ... -i`.
# The wheels for GPUs are not on PyPI, so no hashes are known here. No test builds this image.
ARG BASE=python:3.11-slim
FROM ${BASE}
ARG BASE
ARG ALLOW_LATEST=0
COPY docker/check_base.sh /tmp/
RUN /tmp/check_base.sh BASE "${BASE}" && rm /tmp/check_base.sh
ARG PADDLE=3.3.1
ARG INDEX
ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility
RUN apt-get update -q && apt-get install -yq --no-install-recommends libgomp1 && rm -rf /var/lib/apt/lists/*
RUN pip install --no-cache-dir --disable-pip-version-check \
    --index-url "${INDEX:?set it to the package index of Paddle: --build-arg INDEX=...}" "paddlepaddle-gpu==${PADDLE}"
