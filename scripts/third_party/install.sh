#!/usr/bin/env bash
# Makes a Python environment with clients that are not ours. Exit code 3: it can't be made here.
# Usage: install.sh FOLDER
set -euo pipefail

folder=$1
here=$(cd "$(dirname "$0")" && pwd)
stamp=$folder/installed

if [ -e "$stamp" ] && cmp -s "$here/requirements.txt" "$stamp"; then
    exit 0
fi
if ! python3 -m venv "$folder"; then
    echo "python3 can't make an environment: scripts/deps.sh test installs python3-venv" >&2
    exit 3
fi
if ! "$folder/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt"; then
    echo "pip can't install the clients: is there a network?" >&2
    exit 3
fi
cp "$here/requirements.txt" "$stamp"
