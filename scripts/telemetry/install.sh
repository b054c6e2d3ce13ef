#!/usr/bin/env bash
# Makes a Python environment with a collector that is not ours. Exit code 3: it can't be made here.
# Usage: install.sh FOLDER; prints where the collector is.
set -euo pipefail

folder=$1
here=$(cd "$(dirname "$0")" && pwd)
stamp=$folder/installed

if ! { [ -e "$stamp" ] && cmp -s "$here/requirements.txt" "$stamp"; }; then
    if ! python3 -m venv "$folder" >&2; then
        echo "python3 can't make an environment: scripts/deps.sh test installs python3-venv" >&2
        exit 3
    fi
    pip=("$folder/bin/pip" install --quiet --disable-pip-version-check)
    if ! "${pip[@]}" -r "$here/requirements.txt" >&2; then
        echo "pip can't install the collector: is there a network?" >&2
        exit 3
    fi
    cp "$here/requirements.txt" "$stamp"
fi
"$folder/bin/python3" -c 'import os, rotel; print(os.path.join(os.path.dirname(rotel.__file__), "rotel-agent"))'
