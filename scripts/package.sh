#!/usr/bin/env bash
# Debian packages of a built preset: build/PRESET/packages/phalanx_*.deb (the program) and libphalanx-dev_*.deb (for
# programs of others, docs/library.md).   scripts/package.sh [release|cuda]
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:-release}
scripts/build.sh "$preset"
(cd "build/$preset" && cpack -G DEB >packages.txt) || { tail -20 "build/$preset/packages.txt"; exit 1; }
ls -l "build/$preset"/packages/*.deb
