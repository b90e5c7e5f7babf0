#!/usr/bin/env bash
# Setup, build, and every test that needs no GPU. The same script runs in continuous integration.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:-release}
scripts/setup.sh
scripts/build.sh "$preset"
ctest --test-dir "build/$preset" -j "$(nproc)" --output-on-failure --no-tests=error
