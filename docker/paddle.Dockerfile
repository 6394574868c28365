# Paddle for CPUs, with the packages of requirements/: the base for docker/Dockerfile. Build it in the repository's root:
#   docker build -f docker/paddle.Dockerfile -t paddle:3.3.1 .
# For parameter servers add --build-arg PADDLE=2.6.2: later versions have none (docs/paddle.md).
ARG BASE=python:3.11-slim
FROM ${BASE}
ARG BASE
ARG ALLOW_LATEST=0
COPY docker/check_base.sh /tmp/
RUN /tmp/check_base.sh BASE "${BASE}" && rm /tmp/check_base.sh
ARG PADDLE=3.3.1
RUN apt-get update -q && apt-get install -yq --no-install-recommends libgomp1 && rm -rf /var/lib/apt/lists/*
COPY requirements/paddle-${PADDLE}.txt /tmp/paddle.txt
RUN pip install --no-cache-dir --disable-pip-version-check --require-hashes -r /tmp/paddle.txt && rm /tmp/paddle.txt
RUN python3 -c "import paddle; print(paddle.__version__)"
