#!/bin/sh
# A worker with curl and jq: it runs one job after the other.
# DAYBELL_API_URL=… DAYBELL_API_KEY=… sh worker.sh
set -eu

send() {
    curl -sS --fail-with-body --retry 5 --retry-connrefused -X POST "$DAYBELL_API_URL/api/v1/leases$1" \
        -H "Authorization: Bearer $DAYBELL_API_KEY" -H "Content-Type: application/json" -d "$2"
}

worker=$(send "" '{"name": "curl", "lease": 60}' | jq -r .worker_id)
echo "worker $worker"
trap 'send "/$worker/drain" "{}" > /dev/null; exit 0' INT TERM

while true; do
    lease=$(cat /proc/sys/kernel/random/uuid)
    # The lease is longer than a wait, and renewed before each claim.
    send "/$worker/renew" '{"lease": 60}' > /dev/null
    claim=$(send "/$worker/claim" "{\"lease_id\": \"$lease\", \"wait\": 5}")
    fence=$(echo "$claim" | jq -c '.executions[0] // empty | {execution_id, attempt}')
    [ -n "$fence" ] || continue
    name=$(echo "$claim" | jq -r '.executions[0].args.name')
    result="Hello, $name, from curl"
    end=$(echo "$fence" | jq -c --arg lease "$lease" --arg result "$result" \
        '. + {lease_id: $lease, outcome: "succeeded", $result}')
    send "/$worker/reports" "{\"results\": [$end]}"
    echo
done
