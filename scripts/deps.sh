#!/usr/bin/env bash
# Installs what building and testing need on Debian and Ubuntu; elsewhere says what is missing.
# Usage: scripts/deps.sh build|test
set -euo pipefail

need() { # command package
    command -v "$1" >/dev/null 2>&1 || packages+=("$2")
}

packages=()
need cc gcc
need protoc protobuf-compiler
[ -e /usr/include/google/protobuf/empty.proto ] || packages+=(libprotobuf-dev)
if [ "${1:-build}" = test ]; then
    need redis-server redis-server
    need redis-cli redis-tools
    need etcd etcd-server
    need setpriv util-linux
    need iptables iptables
    need promtool prometheus
    need python3 python3
    python3 -c 'import ensurepip' >/dev/null 2>&1 || packages+=(python3-venv)
fi
if ! command -v cargo >/dev/null 2>&1; then
    echo "missing: cargo. Install the Rust toolchain (rustup.rs) and try again." >&2
    exit 1
fi
[ ${#packages[@]} -eq 0 ] && exit 0

if ! command -v apt-get >/dev/null 2>&1; then
    echo "missing: ${packages[*]} (Debian's names). Install them with your package manager." >&2
    exit 1
fi
sudo=()
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then
        echo "missing: ${packages[*]}. Install them as root: apt-get install ${packages[*]}" >&2
        exit 1
    fi
    sudo=(sudo)
fi
echo "installing ${packages[*]}"
export DEBIAN_FRONTEND=noninteractive
"${sudo[@]}" apt-get update -qq
# The services that these packages bring are not wanted: tests start their own.
"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
    apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
