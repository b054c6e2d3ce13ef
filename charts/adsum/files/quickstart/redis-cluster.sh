#!/bin/sh
# Makes single Redis servers one cluster, and keeps them one. Every step looks first whether it is
# done, so each command may be run again at any time, also after a run that broke off.
#
# Usage: redis-cluster.sh create|keep|once|wait
#   create  joins the nodes, shares out the slots, gives every master a replica; ends when all is well
#   keep    beside one node, for ever: meets peers whose address changed, follows a master if it is empty
#   once    one round of `keep`
#   wait    ends when the cluster serves all slots
# Environment: NODES (hosts), PORT, SELF (the node of `keep`), REDISCLI_AUTH (the password).
set -eu

SLOTS=16384
PORT=${PORT:-6379}

say() { echo "redis-cluster: $*"; }

cli() { # host, command …
    host=$1
    shift
    # Time-outs: an address without a machine must not hold everybody up.
    timeout 5 redis-cli --no-auth-warning -h "$host" -p "$PORT" "$@" 2>/dev/null
}

alive() { [ "$(cli "$1" PING)" = PONG ]; }

address() { getent ahosts "$1" | awk 'NR == 1 {print $1}'; }

info() { cli "$1" CLUSTER INFO | tr -d '\r' | awk -F: -v key="$2" '$1 == key {print $2}'; }

# Lines of CLUSTER NODES: id address flags master ping pong epoch link slots…
table() { cli "$1" CLUSTER NODES | tr -d '\r'; }

until_so() { # what, command …
    what=$1
    shift
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        if [ $tries -ge "${TRIES:-300}" ]; then
            say "gave up: $what"
            exit 1
        fi
        sleep "${PAUSE:-1}"
    done
}

# $1 meets all nodes that it does not know at their present address.
meet() {
    for peer in $NODES; do
        id=$(cli "$peer" CLUSTER MYID) || continue
        at=$(address "$peer")
        [ -n "$at" ] || continue
        table "$1" | awk -v id="$id" -v at="$at:$PORT@" '
            $1 == id && ($3 ~ /myself/ || (index($2, at) == 1 && $8 == "connected")) {found = 1}
            END {exit !found}' && continue
        say "$1 meets $peer at $at"
        cli "$1" CLUSTER MEET "$at" "$PORT" >/dev/null || true
    done
}

knows_all() {
    for node in $NODES; do
        [ "$(info "$node" cluster_known_nodes)" -ge "$(echo "$NODES" | wc -w)" ] || return 1
    done
}

# A number of its own for each from the start: masters with equal ones would first have to agree.
give_epochs() {
    epoch=0
    for node in $NODES; do
        epoch=$((epoch + 1))
        if [ "$(info "$node" cluster_known_nodes)" = 1 ]; then
            cli "$node" CLUSTER SET-CONFIG-EPOCH $epoch >/dev/null || true
        fi
    done
}

# The first half are masters. Slots that have an owner are left alone.
give_slots() {
    masters=$(($(echo "$NODES" | wc -w) / 2))
    n=0
    for node in $NODES; do
        [ $n -lt $masters ] || break
        from=$((n * SLOTS / masters)) to=$(((n + 1) * SLOTS / masters - 1))
        n=$((n + 1))
        is_empty "$node" || continue
        said=$(cli "$node" CLUSTER ADDSLOTSRANGE $from $to)
        say "$node takes slots $from to $to: $said"
    done
}

has_slots() { [ "$(info "$1" cluster_slots_assigned)" = $SLOTS ]; }

# What every node says of itself, which it knows before the others do: host id role master.
selves() {
    for peer in $NODES; do
        table "$peer" | awk -v host="$peer" '$3 ~ /myself/ {
            role = $3 ~ /master/ ? (NF > 8 ? "owner" : "empty") : "replica"
            print host, $1, role, $4
        }'
    done
}

is_empty() { table "$1" | awk '$3 ~ /myself/ && $3 ~ /master/ && NF <= 8 {found = 1} END {exit !found}'; }

# An empty master follows the one with the fewest replicas: at the first start, and when a node
# has lost its disk.
follow() {
    { has_slots "$1" && is_empty "$1"; } || return 0
    master=$(selves | awk '
        $3 == "owner" {owner[$2] = 1}
        $3 == "replica" {replicas[$4] += 1}
        END {
            for (id in owner) if (best == "" || replicas[id] + 0 < replicas[best] + 0) best = id
            print best
        }')
    [ -n "$master" ] || return 0
    say "$1 follows $master"
    [ "$(cli "$1" CLUSTER REPLICATE "$master")" != OK ] || return 0
    # Refused while it has keys. They are of slots that others own now, so they are nobody's.
    if [ "$(info "$1" cluster_state)" = ok ]; then
        cli "$1" FLUSHALL >/dev/null || true
        cli "$1" CLUSTER REPLICATE "$master" >/dev/null || true
    fi
}

# A master without a replica gets one from a master that has two.
even_out() {
    selves | awk '
        $3 == "owner" {replicas[$2] += 0}
        $3 == "replica" {replicas[$4] += 1; one[$4] = $1}
        END {
            for (id in replicas) {
                if (replicas[id] == 0) poor = id
                if (replicas[id] > 1) rich = id
            }
            if (poor != "" && rich != "") print one[rich], poor
        }' | while read -r replica master; do
        say "$replica moves to $master"
        cli "$replica" CLUSTER REPLICATE "$master" >/dev/null || true
    done
}

# Every master that is there has a replica.
is_covered() {
    selves | awk '
        $3 == "owner" {owner[$2] = 1}
        $3 == "replica" {replicas[$4] += 1}
        END {for (id in owner) if (!replicas[id]) poor = 1; exit poor}'
}

# Everybody finds the cluster well, and nobody is an empty master.
is_well() {
    for node in $NODES; do
        [ "$(info "$node" cluster_state)" = ok ] || return 1
        ! is_empty "$node" || return 1
    done
    is_covered
}

settled() {
    for node in $NODES; do
        follow "$node"
    done
    even_out
    is_well
}

serves() {
    for node in $NODES; do
        if [ "$(info "$node" cluster_state)" = ok ] && has_slots "$node"; then
            return 0
        fi
    done
    return 1
}

create() {
    for node in $NODES; do
        until_so "$node answers" alive "$node"
    done
    first=${NODES%% *}
    give_epochs
    meet "$first"
    until_so "all nodes know each other" knows_all
    if has_slots "$first"; then
        say "the slots are shared out already"
        # It has been a cluster before: any node may have moved.
        for node in $NODES; do
            meet "$node"
        done
    else
        give_slots
        until_so "all slots are shared out" has_slots "$first"
    fi
    until_so "the cluster is well" settled
    say "the cluster is well"
}

case ${1:-} in
create) create ;;
once)
    meet "$SELF"
    follow "$SELF"
    ;;
keep)
    while true; do
        # The node may be starting: then the next round will do.
        if alive "$SELF"; then
            meet "$SELF"
            follow "$SELF"
        fi
        sleep "${PAUSE:-10}"
    done
    ;;
wait) until_so "the cluster serves" serves ;;
*)
    say "usage: redis-cluster.sh create|keep|once|wait"
    exit 2
    ;;
esac
