// Parses requests with the official SDK: a list of { headers, body } on standard input, a list of events on
// standard output. An event that is not valid ends it.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const { HTTP } = createRequire(`${process.cwd()}/`)("cloudevents");
const requests = JSON.parse(readFileSync(0, "utf8"));
const events = requests.map(({ headers, body }) => {
  const event = HTTP.toEvent({ headers, body });
  event.validate();
  return { id: event.id, source: event.source, type: event.type, subject: event.subject, time: event.time, data: event.data };
});
process.stdout.write(JSON.stringify(events));
