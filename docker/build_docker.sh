#!/bin/bash
# Build a runtime image from a trainer package: build_docker.sh SRC DEST BASE RUNTIME
#   SRC      the trainer package on this machine, a folder
#   DEST     the folder for it in the image, an absolute path
#   BASE     the Paddle image to build on, with Python 3.10 or newer; with a tag or a digest, unless ALLOW_LATEST=1 is set
#   RUNTIME  the name of the new image, with BASE, the launcher and the package
set -euo pipefail

fail() { echo "build_docker.sh: $*" >&2; exit 64; }

[ $# = 4 ] || fail "expected SRC DEST BASE RUNTIME, got $# arguments"
src=$1 dest=$2 base=$3 runtime=$4
[ -d "$src" ] || fail "SRC: $src: expected a folder"
case $dest in /*) ;; *) fail "DEST: $dest: expected an absolute path" ;; esac

here=$(cd "$(dirname "$0")/.." && pwd)
"$here/docker/check_base.sh" BASE "$base"
builder=${BUILDER:-$(docker info >/dev/null 2>&1 && echo docker || echo buildah)}
launcher=localhost/paddle-launcher-base:$$

"$builder" build -f "$here/docker/Dockerfile" --build-arg "BASE=$base" --build-arg "ALLOW_LATEST=${ALLOW_LATEST-}" -t "$launcher" "$here"
printf 'FROM %s\nCOPY . %s\n' "$launcher" "$dest" | "$builder" build -f - -t "$runtime" "$src"
"$builder" rmi "$launcher" >/dev/null
