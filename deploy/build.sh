#!/usr/bin/env bash
# Builds the release binary, in the image and outside of it (`make release-check`), with the same
# commands. Usage: deploy/build.sh FILE, where FILE is where the binary goes.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --locked --release -p adsum --bin adsum
install -D -m 0755 "${CARGO_TARGET_DIR:-target}/release/adsum" "$1"
