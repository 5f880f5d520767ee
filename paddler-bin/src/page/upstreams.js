// How is each upstream, and which of thousands does somebody want to see?
//
// The router finds and sorts them, and tells of no more than are shown.

import { bar, chip, fill, h, keep, one, row, say, table } from "./dom.js";
import { STATES, many, percent, plural, time } from "./words.js";

/** A browser lays out so many rows in no time. */
const PAGE = 25;
const NAMED = 3;
/** After the last key, somebody may have written what he looks for. */
const WRITTEN = 150;

const COLUMNS = [
  { head: "Upstream", by: "id" },
  { head: "State", by: "state" },
  { head: "Open / limit", bars: true, by: "load" },
  { head: "Running", n: true, by: "running" },
  { head: "Waiting", n: true, by: "waiting" },
  { head: "KV cache", bars: true, by: "kv_cache" },
  { head: "Models" },
  { head: "Report", n: true, by: "report_age" },
  { head: "Change" },
];

let app = null;
let list = null;
let page = 0;
let sorted = 0;
const opened = new Set();

const labels = (upstream) => Object.entries(upstream.labels ?? {}).map(([name, value]) => `${name}=${value}`);

/** What is asked of the router: those that are shown, with all that is shown of them. */
export function path() {
  const query = new URLSearchParams({ sort: COLUMNS[sorted].by, offset: page * PAGE, limit: PAGE, details: true });
  const [find, state] = [one("filter").value.trim(), one("filter-state").value];
  if (find) query.set("find", find);
  if (state) query.set("state", state);
  // The router takes a + for a +.
  return `upstreams?${query.toString().replaceAll("+", "%20")}`;
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
  const { details: serves } = upstream;
  fill(cells[6], [serves.serves_any, serves.models, serves.adapters], () => names(serves));
  say(cells[7], time(upstream.report_age_seconds));
  const button = cells[8].firstElementChild;
  say(button, upstream.draining ? "Undrain" : "Drain");
  button.setAttribute("aria-label", `${upstream.draining ? "Undrain" : "Drain"} ${upstream.id}`);
}

function names(serves) {
  const all = [...serves.models.map((name) => chip(name, "")), ...serves.adapters.map(adapter)];
  const more = all.length - NAMED;
  return [serves.serves_any ? chip("any", "") : null, ...all.slice(0, NAMED), more > 0 ? h("span", { class: "quiet" }, ` and ${more} more`) : null];
}

const adapter = ({ name, active }) => h("span", { class: `chip adapter ${active ? "good" : ""}`, title: active ? "adapter, in use" : "adapter" }, name);

/** All that is known of an upstream. */
function details(upstream) {
  const { details: serves } = upstream;
  const lease = serves.leases;
  const service = upstream.service ?? {};
  const pair = (name, value) => value === undefined || value === null || value.length === 0
    ? [] : [h("div", {}, h("dt", {}, name), h("dd", {}, value))];
  const mend = ({ signal, expected, found }) => h("li", {}, `${signal.replaceAll("_", " ")}: looked for ${expected}, found ${found}`);
  return h("dl", { class: "details" },
    pair("Address", upstream.url), pair("Labels", labels(upstream).map((label) => chip(label, ""))),
    pair("Gets", { named: "requests that name a model", fallback: "fallbacks alone" }[upstream.traffic]),
    pair("It said of itself", upstream.health),
    pair("By what became of its requests", service.state && `${service.state}, ${plural(service.faults, "fault")} in a row, ejected ${many(service.ejections)} times`),
    pair("Our requests there", many(upstream.in_flight)),
    pair("Their weight", `${many(upstream.open_weight)}${lease.settling_weight ? `, of which ${many(lease.settling_weight)} settles` : ""}`),
    pair("We may have open", lease.own_limit_weight === undefined ? "no limit" : many(lease.own_limit_weight)),
    pair("Prompt tokens not answered yet", many(lease.prefill_tokens)),
    pair("Requests with an adapter", many(lease.adapter_requests)),
    pair("Models", serves.models.map((name) => chip(name, ""))), pair("Adapters", serves.adapters.map(adapter)),
    pair("Failed polls", upstream.failed_polls ? `${many(upstream.failed_polls)}: ${upstream.last_failure ?? ""}` : null),
    pair("Does not tell", upstream.degraded?.length ? h("ul", {}, upstream.degraded.map(mend)) : null));
}

function pairUp(shown) {
  return shown.flatMap((upstream) => opened.has(upstream.id) ? [{ upstream }, { upstream, more: true }] : [{ upstream }]);
}

export function start(context) {
  app = context;
  let timer = null;
  const again = (after) => {
    page = 0;
    clearTimeout(timer);
    timer = setTimeout(() => app.soon(0, true), after);
  };
  const turn = (pages) => { page += pages; app.soon(0, true); };
  const head = (column, index) => {
    const sort = () => { sorted = index; again(0); };
    return column.by === undefined ? column : { ...column, head: h("button", { type: "button", click: sort }, column.head) };
  };
  list = table("rows", COLUMNS.map(head));
  one("filter-state").append(...Object.keys(STATES).map((state) => h("option", { value: state }, state)));
  one("filter").addEventListener("input", () => again(WRITTEN));
  one("filter-state").addEventListener("change", () => again(0));
  one("page-back").addEventListener("click", () => turn(-1));
  one("page-on").addEventListener("click", () => turn(1));
}

export function show() {
  const { upstreams: shown, found, totals } = app.upstreams;
  const pages = Math.max(1, Math.ceil(found / PAGE));
  if (page >= pages) {
    // There were more of them.
    page = pages - 1;
    app.soon(0, true);
  }
  [...list.heads.cells].forEach((cell, index) => cell.setAttribute("aria-sort", index === sorted ? "ascending" : "none"));
  const key = ({ upstream, more }) => `${more ? "+" : "="}${upstream.id}`;
  const build = ({ upstream, more }) => more ? h("tr", { role: "row", class: "more" }, h("td", { role: "cell", colspan: COLUMNS.length })) : make(upstream);
  keep(list.rows, pairUp(shown), key, build, (element, { upstream, more }) => {
    if (more) fill(element.cells[0], upstream, () => details(upstream));
    else update(element, upstream);
  });
  say(one("found"), found === totals.upstreams ? plural(found, "upstream") : `${many(found)} of ${plural(totals.upstreams, "upstream")}`);
  say(one("page-at"), `Page ${many(page + 1)} of ${many(pages)}`);
  one("page-back").disabled = page === 0;
  one("page-on").disabled = page >= pages - 1;
  one("page-at").parentElement.hidden = pages === 1;
}
