#!/usr/bin/env bash
# Installs the Debian package of the program on a bare Debian 12 (a folder made by debootstrap) and runs the demo there.
#   sudo scripts/check_package.sh FOLDER [PACKAGE]     needs debootstrap and root; downloads about 200 MB
# FOLDER is made, and is to be removed afterwards. PHX_DEMO_ITERS=4 makes the demo short.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$(realpath -m "${1:?usage: scripts/check_package.sh FOLDER [PACKAGE]}")
package=${2:-$(ls build/release/packages/phalanx_*.deb)}
sources=()
for file in /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources; do
  if [ -f "$file" ]; then sources+=("$file"); fi
done
mirror=$(sed -nE 's/^(deb|URIs:) +(\[[^]]*\] +)?(http[^ ]+).*/\3/p' "${sources[@]}" | head -1)
[ -d "$root/usr" ] || debootstrap --variant=minbase bookworm "$root" "$mirror" >"$root.log" 2>&1 || { tail -5 "$root.log"; exit 1; }
for file in "${sources[@]}" /etc/apt/apt.conf.d/*proxy* /etc/resolv.conf; do  # the way to the packages
  [ ! -e "$file" ] || install -D -m 644 "$file" "$root$file"
done
cp "$package" "$root/root/phalanx.deb"
mkdir -p "$root/root/scripts"
cp scripts/demo.sh "$root/root/scripts/"
inside() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive "$@"; }
inside apt-get update -qq
inside apt-get install -y -qq --no-install-recommends /root/phalanx.deb >"$root.install.log" 2>&1 ||
  { tail -20 "$root.install.log"; exit 1; }
inside phalanx --version
mountpoint -q "$root/proc" || mount -t proc proc "$root/proc"
trap 'umount "$root/proc"' EXIT
inside env PHX_PROGRAM=phalanx PHX_DEMO_OUT=/root/demo PHX_DEMO_ITERS="${PHX_DEMO_ITERS:-300}" bash /root/scripts/demo.sh
echo "check_package: $(basename "$package") runs on a bare Debian 12"
