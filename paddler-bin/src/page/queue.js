// Who waits, and who was refused, for what?

import { keep, one, row, say, table } from "./dom.js";
import { many, plural, rate, time } from "./words.js";

const counted = (head) => [{ head }, { head: "In all", n: true }, { head: "A second", n: true }];
const WAITS = [{ head: "Waiting", n: true }, { head: "Longest", n: true }];
const TABLES = {
  priorities: [{ head: "Priority" }, ...WAITS, { head: "Evicted", n: true }],
  "waiting-models": [{ head: "Model" }, ...WAITS],
  refusals: counted("Reason"), answered: counted("Requests"), mended: counted("What"),
};
const rowsOf = {};

export function start() {
  for (const [id, columns] of Object.entries(TABLES)) rowsOf[id] = table(id, columns).rows;
}

/** Rows of texts, the first of which names the row. `none`: what is said where there are none. */
function fillIn(id, rows, none) {
  const said = rows.length ? rows : [[none, ...TABLES[id].slice(1).map(() => "")]];
  keep(rowsOf[id], said, ([name]) => name, () => row(TABLES[id]), (element, texts) => {
    texts.forEach((text, index) => say(element.cells[index], text));
    element.classList.toggle("quiet", rows.length === 0);
  });
}

const counts = (series, name) => series.sort((a, b) => b.value - a.value).map((one) => [name(one.labels), many(one.value), rate(one.rate)]);

export function show({ queue, figures }) {
  const held = queue.held_back.length ? ` Held back for who needs more than is free: ${queue.held_back.join(", ")}.` : "";
  say(one("queue-limits"), `${many(queue.waiting)} of ${plural(queue.max_requests, "request")} at most, each for ${time(queue.max_wait_seconds)} at most.${held}`);
  fillIn("priorities", queue.priorities.map(({ priority, waiting, oldest_wait_seconds: oldest, evicted }) =>
    [priority, many(waiting), time(oldest), many(evicted)]), "nobody");
  fillIn("waiting-models", queue.models.map(({ model, waiting, oldest_wait_seconds: oldest }) =>
    [model ?? "any, or one that nobody has", many(waiting), time(oldest)]), "Nobody waits.");
  fillIn("refusals", counts(figures.series("paddler_refusals_total"), ({ reason }) => reason), "Nobody was refused.");
  fillIn("answered", counts(figures.series("paddler_requests_total"), (labels) => `${labels.class}, ${labels.status}`), "Nobody has asked.");
  const mended = [
    ["paddler_retries_total", "sent again"], ["paddler_retries_denied_total", "not sent again"],
    ["paddler_truncations_total", "answer cut short"], ["paddler_cancellations_total", "client left"], ["paddler_ejections_total", "upstream left out"],
  ];
  const rows = mended.flatMap(([family, word]) => counts(figures.series(family).filter(({ value }) => value),
    ({ reason, cause }) => [word, reason ?? cause].filter(Boolean).join(": ").replaceAll("_", " ")));
  fillIn("mended", rows, "Nothing.");
}
