// What do the counters say, and how fast do they grow?
//
// They are the router's own page of figures, in the text that Prometheus reads; two looks at it make a rate.

/** Families that are looked at: everything else of that page is told elsewhere. */
const LOOKED_AT = [
  "paddler_requests_total", "paddler_refusals_total", "paddler_retries_total", "paddler_retries_denied_total",
  "paddler_truncations_total", "paddler_cancellations_total", "paddler_ejections_total", "paddler_in_flight_requests",
  "paddler_tree_node_walks_total",
];

export const PATH = `metrics?${LOOKED_AT.map((name) => `name=${name}`).join("&")}`;

const LINE = /^(\w+)(?:\{(.*)\})? (\S+)/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;
const ESCAPED = { n: "\n" };

/** The series of a page, by family: [{labels, value}]. */
export function read(page) {
  const families = new Map();
  for (const line of page.split("\n")) {
    const [, name, labels, value] = LINE.exec(line) ?? [];
    if (!LOOKED_AT.includes(name)) continue;
    const told = {};
    for (const [, label, said] of (labels ?? "").matchAll(LABEL)) {
      told[label] = said.replace(/\\(.)/g, (_, letter) => ESCAPED[letter] ?? letter);
    }
    if (!families.has(name)) families.set(name, []);
    families.get(name).push({ labels: told, value: Number(value) });
  }
  return families;
}

/** Remembers two looks, and says what has grown between them. */
export class Figures {
  #now = null;
  #before = null;

  look(page, at) {
    this.#before = this.#now;
    this.#now = { at, families: read(page) };
  }

  /** The series of a family, each with how much it grew in a second; undefined while there was only one look. */
  series(name) {
    return (this.#now?.families.get(name) ?? []).map(({ labels, value }) => ({ labels, value, rate: this.#rate(name, labels, value) }));
  }

  #rate(name, labels, value) {
    if (!this.#before) return undefined;
    const same = (one) => Object.entries(labels).every(([label, said]) => one.labels[label] === said);
    const before = this.#before.families.get(name)?.find(same)?.value ?? 0;
    // What is less than before has begun anew.
    return (value < before ? value : value - before) / ((this.#now.at - this.#before.at) / 1000);
  }

  sum(name, which = () => true) {
    const all = this.series(name).filter(({ labels }) => which(labels));
    const add = (field) => all.reduce((sum, one) => sum + one[field], 0);
    return { value: add("value"), rate: this.#before ? add("rate") : undefined };
  }
}
