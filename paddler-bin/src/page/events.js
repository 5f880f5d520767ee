// What has happened since this page was opened?

import { chip, h, keep, one, say } from "./dom.js";
import { STATES, plural } from "./words.js";

const KEPT = 200;
const all = [];
let number = 0;

/** An event of the router's. */
export function add(kind, data) {
  all.unshift({ number: (number += 1), at: new Date(), kind, data });
  all.length = Math.min(all.length, KEPT);
}

function sentence({ kind, data }) {
  const id = data.upstream?.id ?? data.id;
  switch (kind) {
    case "upstream.joined": return `${id} has joined`;
    case "upstream.left": return `${id} has left`;
    case "upstream.changed": return `${id} is another one now, at ${data.upstream.url}`;
    case "upstream.state": return `${id} was ${data.before} and is ${data.state}`;
    case "upstream.ejected": return `${id} was left out for its faults${data.upstream.service?.cause ? `: ${data.upstream.service.cause}` : ""}`;
    case "config.reloaded": return data.result === "success" ? "the config was read again" : `the config was read again, with faults: ${data.faults.join("; ")}`;
    case "tree.replaced": return "another tree is in force";
    case "stopping": return "the router stops";
    case "gap": return data.missed === null ? "some events were missed" : `${plural(data.missed, "event")} missed`;
    default: return JSON.stringify(data);
  }
}

export function start() {}

export function show() {
  keep(one("events"), all, (event) => event.number, (event) => h("li", {},
    h("time", { datetime: event.at.toISOString() }, event.at.toLocaleTimeString("en-GB")), " ",
    chip(event.kind, STATES[event.data.state] ?? ""), " ", sentence(event)), () => {});
  say(one("events-found"), all.length ? plural(all.length, "event") : "nothing yet");
}
