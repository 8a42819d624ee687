#!/usr/bin/env python3
"""Sends a start and a stop to Sampler in one batch, until each has a final answer.

Only the standard library is needed:

    SAMPLER_URL=http://localhost:7070 [SAMPLER_TOKEN=…] python3 send.py INSTANCE
"""

import json
import os
import sys
import time
import urllib.error
import urllib.request

URL = os.environ.get("SAMPLER_URL", "http://localhost:7070")
HOUR = 3_600_000


def events_of(instance):
    """A broker stores events in its own database before it sends them: a repeat sends the same.

    These are of the last full hour, so that running this twice within an hour is a repeat."""
    ended = int(time.time() * 1000) // HOUR * HOUR
    target = {
        "organization_id": "org-1",
        "space_id": "space-1",
        "consumer_id": f"service:{instance}",
        "resource_id": "postgres",
        "plan_id": "large",
        "resource_instance_id": instance,
    }
    start = {"type": "start", "id": f"start-{ended - HOUR}", "timestamp": ended - HOUR, **target}
    start["measured_usage"] = [{"measure": "memory", "quantity": 512}]
    return [start, {"type": "stop", "id": f"stop-{ended}", "timestamp": ended, **target}]


def post(events):
    """Posts a batch; None if there is no answer that says what became of each event."""
    headers = {"content-type": "application/json"}
    if token := os.environ.get("SAMPLER_TOKEN"):
        headers["authorization"] = f"Bearer {token}"
    body = json.dumps(events).encode()
    request = urllib.request.Request(f"{URL}/v1/events", data=body, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        problem = error.read().decode(errors="replace")
        if error.code in (408, 429) or error.code >= 500:
            print(f"{error.code}: {problem}", file=sys.stderr)
            return None
        # The batch as a whole is wrong, or the token is: a repeat would be answered the same.
        sys.exit(f"{error.code}: {problem}")
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return None


def send(events):
    """Sends events until each is kept (201) or refused (4xx); says whether all are kept."""
    pause = 1
    while pause <= 60:
        answer = post(events)
        wait = pause
        if answer is not None:
            for result in answer["results"]:
                why = result.get("problem", {}).get("type", "")
                print(f'{result["index"]}: {result["status"]} {result.get("span", why)}')
            if answer["failed"] == 0:
                return answer["refused"] == 0
            wait = max(pause, *(result.get("retry_after", 0) for result in answer["results"]))
        time.sleep(wait)
        pause *= 2
    sys.exit("no final answer: send the same events again later")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(0 if send(events_of(sys.argv[1])) else 1)
