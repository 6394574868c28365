#!/usr/bin/env bash
# Build the images of the launcher for arm64 on another processor, and run them: `make test-arm64`, as root, on Debian.
# QEMU runs the programs for arm64. The base image is made from Debian's packages, so no registry is needed. It takes about 15 minutes.
set -euo pipefail
cd "$(dirname "$0")/../.."
made=$(mktemp -d)
format=/proc/sys/fs/binfmt_misc/qemu-aarch64

say() { printf '== %s\n' "$*"; }
end() {
  [ ! -e "$made/storage.conf" ] || { buildah rm --all && buildah rmi --all --force; } >/dev/null || true
  rm -rf "$made"
  [ ! -e "$made-format" ] || { echo -1 >"$format" && rm "$made-format"; }
}
trap end EXIT

for tool in buildah debootstrap qemu-aarch64-static; do
  command -v "$tool" >/dev/null || { echo "arm64.sh: no $tool: apt-get install buildah debootstrap qemu-user-static" >&2; exit 69; }
done
if [ ! -e "$format" ]; then # what runs a program for arm64; systemd does this at boot
  cat /usr/lib/binfmt.d/qemu-aarch64.conf >"$(dirname "$format")/register"
  touch "$made-format"
fi
printf '[storage]\ndriver = "overlay"\nrunroot = "%s/run"\ngraphroot = "%s/graph"\n' "$made" "$made" >"$made/storage.conf"
export CONTAINERS_STORAGE_CONF=$made/storage.conf

say "a base image for arm64 with the Python of Debian 12"
debootstrap --arch=arm64 --variant=minbase --include=ca-certificates,python3,python3-pip,python3-venv bookworm "$made/base" >"$made/log" ||
  { tail -20 "$made/log" >&2; exit 69; }
cp /usr/local/share/ca-certificates/*.crt "$made/base/usr/local/share/ca-certificates/" 2>/dev/null || true
chroot "$made/base" update-ca-certificates >/dev/null 2>&1
container=$(buildah from --arch arm64 scratch)
tar -C "$made/base" --numeric-owner -cf - . | tar -C "$(buildah mount "$container")" -xf -
buildah config --arch arm64 --env PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin --cmd python3 "$container"
buildah commit -q --rm "$container" localhost/base-arm64:1 >/dev/null

build() { buildah build -q --pull=never --platform linux/arm64 --network host --build-arg BASE=localhost/base-arm64:1 -f "$1" -t "$2" . >/dev/null; }
run() { buildah run "$container" -- "$@"; }
say "docker/Dockerfile"
build docker/Dockerfile localhost/launcher-arm64:1
container=$(buildah from --pull=never --arch arm64 localhost/launcher-arm64:1)
run paddle-launcher version
run paddle-launcher run -- python3 -c 'import platform; print("trained on", platform.machine())' | tee "$made/log"
grep -q 'trained on aarch64' "$made/log"

say "docker/inject.Dockerfile: the launcher with its own Python"
build docker/inject.Dockerfile localhost/inject-arm64:1
container=$(buildah from --pull=never --arch arm64 localhost/inject-arm64:1)
run /launcher/paddle-launcher version
run /launcher/bin/python3 -c 'import platform; print(platform.machine())' | tee "$made/log"
grep -q aarch64 "$made/log"
say "the launcher runs on arm64"
