#!/usr/bin/env bash
# Installs what a build needs on Debian 12 or Ubuntu 24.04, as root or with sudo. Says what it installs;
# does nothing where everything is there. With a CUDA compiler present it also fetches cudnn-frontend's
# headers into .deps/. scripts/setup.sh --gates also installs what the checks of the sources need.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(g++ cmake ninja-build ccache mold git ca-certificates python3
          libopenblas-dev libdnnl-dev libfmt-dev libspdlog-dev nlohmann-json3-dev libyaml-cpp-dev
          libpcre2-dev libsimdjson-dev libutf8proc-dev libsentencepiece-dev libxxhash-dev libzstd-dev
          zlib1g-dev libgtest-dev libgmock-dev libopenmpi-dev openmpi-bin iproute2)
if [ "${1:-}" = --gates ]; then packages+=(clang-format-14 python3); fi
cudnn_frontend=1.32.0

have_nvcc() { command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; }

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
if have_nvcc && [ ! -f .deps/cudnn-frontend/include/cudnn_frontend.h ]; then
  command -v pip3 >/dev/null || missing+=(python3-pip)
fi

if [ ${#missing[@]} -gt 0 ]; then
  echo "setup: installing ${missing[*]}"
  sudo=""
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "setup: run this as root, or install sudo" >&2; exit 1; }
    sudo="sudo"
  fi
  $sudo apt-get update -qq
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
else
  echo "setup: all packages are installed"
fi

if have_nvcc && [ ! -f .deps/cudnn-frontend/include/cudnn_frontend.h ]; then
  echo "setup: fetching the headers of nvidia-cudnn-frontend $cudnn_frontend into .deps/"
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  # Only the headers in the wheel are used, so any Python's wheel will do.
  python3 -m pip download -q --no-deps --only-binary=:all: --implementation cp --python-version 3.11 \
    --platform manylinux_2_28_x86_64 --dest "$folder" "nvidia-cudnn-frontend==$cudnn_frontend"
  python3 -m zipfile -e "$folder"/*.whl "$folder/wheel"
  mkdir -p .deps/cudnn-frontend
  rm -rf .deps/cudnn-frontend/include
  mv "$folder/wheel/include" .deps/cudnn-frontend/include
fi
