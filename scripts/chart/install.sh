#!/usr/bin/env bash
# Makes a Python environment with what checks the chart: Helm, the schemas of Kubernetes, checkov.
# Exit code 3: it can't be made here.
# Usage: install.sh FOLDER
set -euo pipefail

folder=$1
here=$(cd "$(dirname "$0")" && pwd)
stamp=$folder/installed

# Two test processes must not install into one folder at once.
mkdir -p "$folder"
exec 9>"$folder/lock"
flock 9
if [ -e "$stamp" ] && cmp -s "$here/requirements.txt" "$stamp"; then
    exit 0
fi
if ! python3 -m venv "$folder"; then
    echo "python3 can't make an environment: scripts/deps.sh test installs python3-venv" >&2
    exit 3
fi
if ! "$folder/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt"; then
    echo "pip can't install the tools: is there a network?" >&2
    exit 3
fi
cp "$here/requirements.txt" "$stamp"
