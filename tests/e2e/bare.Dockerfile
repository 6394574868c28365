# An image without Python, shell or glibc: musl and a `paddle` of a few lines, nothing else.
FROM python:3.11-slim AS build
RUN apt-get update -q && apt-get install -y -q --no-install-recommends musl-tools
COPY tests/e2e/bare_paddle.c /src/
RUN mkdir -p /bare/lib /bare/bin \
 && musl-gcc -O2 -Wall -Wextra -Werror -s -o /bare/bin/paddle /src/bare_paddle.c \
 && cp -L /lib/ld-musl-*.so.1 /bare/lib/

FROM scratch
COPY --from=build /bare /
ENV PATH=/bin
