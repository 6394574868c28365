#!/bin/sh
# Refuse an image to build on that may be another one tomorrow: check_base.sh NAME IMAGE
# IMAGE is pinned by a digest, or has a tag other than latest. ALLOW_LATEST=1 allows all. NAME says where the user gave it.
case ${2##*/} in
  *@sha256:*) exit 0 ;;
  *:latest) fault="has the tag latest" ;;
  *:*) exit 0 ;;
  *) fault="has no tag, which means latest" ;;
esac
[ "$ALLOW_LATEST" != 1 ] || exit 0
echo "$1: $2 $fault: the same build makes another image tomorrow. Give a tag, or a digest (name@sha256:...)." \
  "To build on it nevertheless, set ALLOW_LATEST=1 (docker build: --build-arg ALLOW_LATEST=1)." >&2
exit 64
