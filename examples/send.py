#!/usr/bin/env python3
"""Sends a start and a stop to Sampler in one batch, until each has a final answer.

Only the standard library is needed:

    SAMPLER_URL=http://localhost:7070 [SAMPLER_TOKEN=…] python3 send.py INSTANCE
"""

import http.client
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
            said = json.load(answer)
        if isinstance(said, dict) and len(said.get("results", [])) == len(events):
            return said
        print("the answer does not say what became of each event", file=sys.stderr)
    except urllib.error.HTTPError as error:
        problem = f"{error.code}: {text_of(error)}"
        if error.code not in (408, 429) and error.code < 500:
            # The batch as a whole is wrong, or the token is: a repeat would be answered the same.
            sys.exit(problem)
        print(problem, file=sys.stderr)
    except (OSError, ValueError, http.client.HTTPException) as error:
        # An answer that is cut short, or no JSON, as from a router on the way, says nothing, either.
        print(repr(error), file=sys.stderr)
    return None


def text_of(error):
    try:
        return error.read().decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return error.reason


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
