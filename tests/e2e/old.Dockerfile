# An image of an older Debian: a libc older than the launcher's own, a Python too old for it, and the stand-in for Paddle,
# which that Python runs. Its variables are those of Paddle images: whoever heeds them with another libc or Python breaks.
FROM python:3.11-slim AS build
ARG SUITE=bullseye
ARG PACKAGES="libc6 libgcc-s1 libcrypt1 libtinfo6 libexpat1 zlib1g bash busybox-static \
              python3.9-minimal libpython3.9-minimal libpython3.9-stdlib"
RUN . /etc/os-release \
 && sed -i "s/$VERSION_CODENAME/$SUITE/g" $(find /etc/apt -name '*.list' -o -name '*.sources') \
 && apt-get update -q \
 && mkdir /packages /old && cd /packages \
 && apt-get download -q $(for name in $PACKAGES; do echo $name/$SUITE; done) \
 && for package in *.deb; do dpkg -x "$package" /old || exit 1; done \
 && chroot /old /bin/busybox --install -s /bin \
 && ln -s python3.9 /old/usr/bin/python3 \
 && ln -s /opt/standin/paddle /old/usr/bin/paddle \
 && mkdir -p /old/opt/broken /old/tmp && echo 'raise SystemExit("not for this Python")' >/old/opt/broken/asyncio.py

FROM scratch
COPY --from=build /old /
COPY tests/standin /opt/standin
ENV PATH=/usr/bin:/bin \
    LD_LIBRARY_PATH=/lib/x86_64-linux-gnu:/usr/lib/x86_64-linux-gnu \
    PYTHONHOME=/usr \
    PYTHONPATH=/opt/broken
