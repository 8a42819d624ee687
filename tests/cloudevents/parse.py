"""Parses requests with the official SDK: a list of { headers, body } on standard input, a list of events on
standard output. An event that is not valid ends it."""

import json
import sys

from cloudevents.http import from_http

events = []
for request in json.load(sys.stdin):
    event = from_http(request["headers"], request["body"])
    names = ["id", "source", "type", "subject", "time"]
    events.append({name: event[name] for name in names} | {"data": event.data})
json.dump(events, sys.stdout)
