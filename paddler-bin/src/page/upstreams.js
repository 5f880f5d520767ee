// How is each upstream, and which of thousands does somebody want to see?

import { get } from "./api.js";
import { bar, chip, fill, h, keep, one, row, say, table } from "./dom.js";
import { STATES, many, percent, plural, time } from "./words.js";

/** A browser lays out so many rows in no time. */
const PAGE = 25;
const NAMED = 3;

const load = (upstream) => (upstream.limit_weight ? upstream.open_weight / upstream.limit_weight : upstream.open_weight / 1e6);
const order = Object.keys(STATES);
const COLUMNS = [
  { head: "Upstream", by: null },
  { head: "State", by: (upstream) => order.indexOf(upstream.state) },
  { head: "Open / limit", bars: true, by: (upstream) => -load(upstream) },
  { head: "Running", n: true, by: (upstream) => -(upstream.running ?? -1) },
  { head: "Waiting", n: true, by: (upstream) => -(upstream.waiting ?? -1) },
  { head: "KV cache", bars: true, by: (upstream) => -(upstream.kv_cache_usage ?? -1) },
  { head: "Models" },
  { head: "Report", n: true, by: (upstream) => -(upstream.report_age_seconds ?? Infinity) },
  { head: "Change" },
];

let app = null;
let list = null;
let page = 0;
let sorted = 0;
const opened = new Set();
let leases = new Map();
let served = { of: null, by: new Map() };

/** What each upstream serves, by its id. */
function models() {
  if (served.of === app.models || !app.models) return served.by;
  const by = new Map();
  const entry = (id) => by.get(id) ?? by.set(id, { any: false, models: [], adapters: [] }).get(id);
  for (const { name, adapter, upstreams } of app.models.models) {
    for (const { upstream, active } of upstreams) {
      if (adapter) entry(upstream).adapters.push({ name, active });
      else entry(upstream).models.push(name);
    }
  }
  for (const { upstream } of app.models.serving_any) entry(upstream).any = true;
  served = { of: app.models, by };
  return by;
}

const labels = (upstream) => Object.entries(upstream.labels ?? {}).map(([name, value]) => `${name}=${value}`);

function wanted() {
  const words = one("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const state = one("filter-state").value;
  const by = models();
  const has = (upstream) => {
    if (state && upstream.state !== state) return false;
    const serves = by.get(upstream.id);
    const names = serves ? [...serves.models, ...serves.adapters.map(({ name }) => name)] : [];
    const text = [upstream.id, upstream.url, ...labels(upstream), ...names].join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  };
  const all = app.upstreams.filter(words.length || state ? has : () => true);
  const key = COLUMNS[sorted].by;
  // They come in the order of their ids, which stays among equals.
  return key ? all.map((upstream) => [key(upstream), upstream]).sort(([a], [b]) => a - b).map(([, upstream]) => upstream) : all;
}

function make(upstream) {
  const element = row(COLUMNS);
  const open = h("button", {
    type: "button", class: "name", "aria-expanded": "false",
    click: () => {
      if (!opened.delete(upstream.id)) opened.add(upstream.id);
      show(app);
      app.soon();
    },
  }, upstream.id);
  element.cells[0].append(open, h("span", { class: "quiet url" }));
  element.cells[8].append(h("button", { type: "button", click: () => app.drain(element.upstream) }));
  return element;
}

function update(element, upstream) {
  element.upstream = upstream;
  const { state, why } = upstream;
  const { cells } = element;
  const [open, url] = cells[0].children;
  open.setAttribute("aria-expanded", opened.has(upstream.id));
  say(url, [upstream.url, ...labels(upstream)].join(" "));
  fill(cells[1], [state, why], () => [chip(state, `state ${STATES[state] ?? ""}`), why ? h("span", { class: "why" }, why) : null]);
  const { open_weight: weight, limit_weight: limit, kv_cache_usage: cache } = upstream;
  fill(cells[2], [weight, limit], () => limit === undefined
    ? `${many(weight)} / no limit`
    : [bar(weight / limit, weight < limit ? "" : "warn"), `${many(weight)} / ${many(limit)}`]);
  say(cells[3], upstream.running === undefined ? "–" : many(upstream.running));
  say(cells[4], upstream.waiting === undefined ? "–" : many(upstream.waiting));
  fill(cells[5], cache ?? null, () => cache === undefined ? "–" : [bar(cache, cache < 0.9 ? "" : "warn"), percent(cache)]);
  const serves = models().get(upstream.id);
  fill(cells[6], serves ?? null, () => names(serves));
  say(cells[7], time(upstream.report_age_seconds));
  const button = cells[8].firstElementChild;
  say(button, upstream.draining ? "Undrain" : "Drain");
  button.setAttribute("aria-label", `${upstream.draining ? "Undrain" : "Drain"} ${upstream.id}`);
}

function names(serves) {
  if (!serves) return "–";
  const all = [...serves.models.map((name) => chip(name, "")), ...serves.adapters.map(adapter)];
  const more = all.length - NAMED;
  return [serves.any ? chip("any", "") : null, ...all.slice(0, NAMED), more > 0 ? h("span", { class: "quiet" }, ` and ${more} more`) : null];
}

const adapter = ({ name, active }) => h("span", { class: `chip adapter ${active ? "good" : ""}`, title: active ? "adapter, in use" : "adapter" }, name);

/** All that is known of an upstream. */
function details(upstream) {
  const lease = leases.get(upstream.id);
  const serves = models().get(upstream.id);
  const service = upstream.service ?? {};
  const pair = (name, value) => value === undefined || value === null || value.length === 0
    ? [] : [h("div", {}, h("dt", {}, name), h("dd", {}, value))];
  const mend = ({ signal, expected, found }) => h("li", {}, `${signal.replaceAll("_", " ")}: looked for ${expected}, found ${found}`);
  return h("dl", { class: "details" },
    pair("Address", upstream.url), pair("Labels", labels(upstream).map((label) => chip(label, ""))),
    pair("It said of itself", upstream.health),
    pair("By what became of its requests", service.state && `${service.state}, ${plural(service.faults, "fault")} in a row, ejected ${many(service.ejections)} times`),
    pair("Our requests there", many(upstream.in_flight)),
    pair("Their weight", `${many(upstream.open_weight)}${lease?.settling_weight ? `, of which ${many(lease.settling_weight)} settles` : ""}`),
    pair("We may have open", lease && (lease.own_limit_weight === undefined ? "no limit" : many(lease.own_limit_weight))),
    pair("Prompt tokens not answered yet", lease && many(lease.prefill_tokens)),
    pair("Requests with an adapter", lease && many(lease.adapter_requests)),
    pair("Models", serves && serves.models.map((name) => chip(name, ""))), pair("Adapters", serves && serves.adapters.map(adapter)),
    pair("Failed polls", upstream.failed_polls ? `${many(upstream.failed_polls)}: ${upstream.last_failure ?? ""}` : null),
    pair("Does not tell", upstream.degraded?.length ? h("ul", {}, upstream.degraded.map(mend)) : null));
}

function pairUp(shown) {
  return shown.flatMap((upstream) => opened.has(upstream.id) ? [{ upstream }, { upstream, more: true }] : [{ upstream }]);
}

export function start(context) {
  app = context;
  const again = () => { page = 0; if (app.queue) show(app); };
  const head = (column, index) => {
    const sort = () => { sorted = index; again(); };
    return column.by === undefined ? column : { ...column, head: h("button", { type: "button", click: sort }, column.head) };
  };
  list = table("rows", COLUMNS.map(head));
  one("filter-state").append(...order.map((state) => h("option", { value: state }, state)));
  one("filter").addEventListener("input", again);
  one("filter-state").addEventListener("change", again);
  one("page-back").addEventListener("click", () => { page -= 1; show(app); });
  one("page-on").addEventListener("click", () => { page += 1; show(app); });
}

/** Leases are told of all at once: only somebody who has opened one asks. */
export async function look() {
  if (!opened.size) return;
  leases = new Map((await get("leases")).upstreams.map((lease) => [lease.id, lease]));
  show(app);
}

export function show() {
  const all = wanted();
  const pages = Math.max(1, Math.ceil(all.length / PAGE));
  page = Math.max(0, Math.min(page, pages - 1));
  const shown = all.slice(page * PAGE, (page + 1) * PAGE);
  [...list.heads.cells].forEach((cell, index) => cell.setAttribute("aria-sort", index === sorted ? "ascending" : "none"));
  const key = ({ upstream, more }) => `${more ? "+" : "="}${upstream.id}`;
  const build = ({ upstream, more }) => more ? h("tr", { role: "row", class: "more" }, h("td", { role: "cell", colspan: COLUMNS.length })) : make(upstream);
  keep(list.rows, pairUp(shown), key, build, (element, { upstream, more }) => {
    if (more) fill(element.cells[0], [upstream, leases.get(upstream.id), models().get(upstream.id)], () => details(upstream));
    else update(element, upstream);
  });
  say(one("found"), all.length === app.upstreams.length ? plural(all.length, "upstream") : `${many(all.length)} of ${plural(app.upstreams.length, "upstream")}`);
  say(one("page-at"), `Page ${many(page + 1)} of ${many(pages)}`);
  one("page-back").disabled = page === 0;
  one("page-on").disabled = page >= pages - 1;
  one("page-at").parentElement.hidden = pages === 1;
}
