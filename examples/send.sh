#!/bin/sh
# Sends a start and a stop to Sampler in one batch, until each has a final answer. Needs curl and jq.
#
#   SAMPLER_URL=http://localhost:7070 [SAMPLER_TOKEN=…] ./send.sh INSTANCE
set -eu
instance=${1:?"the instance is missing"}
url=${SAMPLER_URL:-http://localhost:7070}

# A broker stores events in its own database before it sends them. A repeat sends the same bytes.
# These are of the last full hour, so that running this twice within an hour is a repeat.
now=$(date +%s)
began=$(((now / 3600 - 1) * 3600))000
ended=$((now / 3600 * 3600))000
target='"organization_id": "org-1", "space_id": "space-1", "consumer_id": "service:'$instance'",
  "resource_id": "postgres", "plan_id": "large", "resource_instance_id": "'$instance'"'
events='[
{"type": "start", "id": "start-'$began'", "timestamp": '$began', '$target',
  "measured_usage": [{"measure": "memory", "quantity": 512}]},
{"type": "stop", "id": "stop-'$ended'", "timestamp": '$ended', '$target'}]'

for pause in 1 2 4 8 16 32 60; do
  wait=$pause
  # No answer, or one that is no JSON, as from a router on the way, says nothing: the whole batch is
  # sent again.
  answer=$(printf '%s' "$events" | curl -sS -m 60 "$url/v1/events" -H 'content-type: application/json' \
    ${SAMPLER_TOKEN:+-H "authorization: Bearer $SAMPLER_TOKEN"} --data-binary @-) || answer=
  said=$(printf '%s' "$answer" | jq -c 'objects' 2> /dev/null) || said=
  if [ -n "$said" ]; then
    printf '%s' "$said" | jq -r '.results[]? | "\(.index): \(.status) \(.span // .problem.type // "")"'
    # Final is what is kept (201) or refused (4xx); 5xx is to be sent again.
    if printf '%s' "$said" | jq -e '.failed == 0' > /dev/null; then
      printf '%s' "$said" | jq -e '.refused == 0' > /dev/null && exit 0
      exit 1
    fi
    printf '%s' "$said" | jq -c 'select(.status) | {type, detail}' >&2
    wait=$(printf '%s' "$said" | jq "[.results[]?.retry_after // 0, $pause] | max")
  else
    echo "no answer in JSON" >&2
  fi
  sleep "$wait"
done
echo "no final answer: send the same events again later" >&2
exit 1
