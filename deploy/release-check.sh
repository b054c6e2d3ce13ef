#!/usr/bin/env bash
# Does outside of Docker what the Dockerfile does inside, and looks at what comes out: the binary
# starts, and needs no library that the base image has not got.
# Usage: deploy/release-check.sh
set -euo pipefail
cd "$(dirname "$0")/.."

# What gcr.io/distroless/cc-debian12 has: glibc and libgcc.
base='linux-vdso.so.1 libc.so.6 libm.so.6 libgcc_s.so.1 libpthread.so.0 libdl.so.2 librt.so.1 ld-linux-x86-64.so.2 ld-linux-aarch64.so.1'

fail() {
    echo "release-check: $*" >&2
    exit 1
}

# Everything that is copied exists, and is not ignored.
while read -r from; do
    [ -e "$from" ] || fail "the Dockerfile copies $from, which is not there"
    top=${from%/}
    grep -qxF -e "!$top" -e "!${top%%/*}" .dockerignore || fail ".dockerignore leaves out $from"
done < <(awk '$1 == "COPY" && $2 !~ /^--from/ {for (i = 2; i < NF; i++) if ($i != ".") print $i}' deploy/Dockerfile)

# And so does every part of the workspace: cargo reads the manifests of all.
while read -r member; do
    grep -qxF "!${member%%/*}" .dockerignore || fail ".dockerignore leaves out $member"
done < <(sed -n '/^members = \[/,/^]/s/^ *"\(.*\)",$/\1/p' Cargo.toml)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
scripts/deps.sh build
deploy/build.sh "$work/adsum"

ldd "$work/adsum" | awk '{print $1}' | while read -r library; do
    library=$(basename "$library")
    case " $base " in
    *" $library "*) ;;
    *) fail "the base image has no $library" ;;
    esac
done
# No newer glibc than Debian 12's is asked for.
newest=$(objdump -T "$work/adsum" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -1)
[ "$(printf '%s\n' "$newest" GLIBC_2.36 | sort -V | tail -1)" = GLIBC_2.36 ] ||
    fail "$newest is newer than Debian 12's"

env -i "$work/adsum" --version
env -i "$work/adsum" check-config --dev
echo "libraries: $(ldd "$work/adsum" | awk '{print $1}' | xargs -n1 basename | tr '\n' ' ')"
echo "newest glibc symbol: $newest"
echo "size: $(stat -c %s "$work/adsum") bytes"
