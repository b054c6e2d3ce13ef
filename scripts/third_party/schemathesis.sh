#!/usr/bin/env bash
# Tries the OpenAPI document against what is served: no 5xx, nothing that the document does not say.
# Usage: schemathesis.sh ENVIRONMENT HOST:PORT EXAMPLES   (the token comes from SERVICE)
# The same cases every time, so that a failure is somebody's change; SEED=2 tries others.
set -euo pipefail

environment=$1 address=$2 examples=$3
# Events never end, so what reads whole answers can't try them; the suite does.
exec "$environment/bin/schemathesis" run "http://$address/v1/openapi.json" \
    --url "http://$address" \
    --header "Authorization: Bearer $SERVICE" \
    --exclude-path /v1/events \
    --max-examples "$examples" \
    --phases examples,coverage,fuzzing \
    --checks all \
    --exclude-checks use_after_free,ensure_resource_availability \
    --request-timeout 10 \
    --workers 2 \
    --seed "${SEED:-1}" \
    --no-color \
    --generation-database none
