// Which requests are under way, where did the last ones go, and why?

import { get, post } from "./api.js";
import { chip, fill, h, keep, one, row, say, table } from "./dom.js";
import { many, time } from "./words.js";
import { walk } from "./why.js";

const LAST = 100;
const LEVELS = { running: "warn", complete: "good", here: "warn", cut_short: "bad", left: "off" };
const STATES = { running: "running", complete: "answered", here: "answered here", cut_short: "cut short", left: "client left" };
const COLUMNS = [
  { head: "Request" }, { head: "State" }, { head: "Model" }, { head: "Sent to" },
  { head: "Wait", n: true }, { head: "First byte", n: true }, { head: "Took", n: true }, { head: "Ago", n: true },
];

let app = null;
let list = null;
let told = { decisions: [], seen: 0, recorded: 0 };
let chosen = null;

const wait = ({ attempts }) => attempts[0]?.sent_seconds;
const tries = ({ attempts }) => attempts.map(({ upstream }) => upstream).join(" → ") || "nobody";

function wanted() {
  const words = one("filter-requests").value.toLowerCase().split(/\s+/).filter(Boolean);
  const text = (one) => [one.id, one.model, one.state, one.status, one.reason, one.path, tries(one)].join(" ").toLowerCase();
  return told.decisions.filter((decision) => words.every((word) => text(decision).includes(word)));
}

function make(decision) {
  const element = row(COLUMNS);
  element.cells[0].append(h("button", { type: "button", class: "name", click: () => choose(element.decision) }, decision.id));
  return element;
}

function update(element, decision) {
  element.decision = decision;
  const { cells } = element;
  const is = isChosen(decision);
  element.classList.toggle("chosen", is);
  cells[0].firstElementChild.setAttribute("aria-pressed", is);
  const { state, status, reason, model } = decision;
  fill(cells[1], [state, status, reason], () => [
    chip(STATES[state] ?? state, `state ${status >= 400 ? "bad" : LEVELS[state] ?? ""}`), status ? ` ${status}` : null,
    reason ? h("span", { class: "why" }, reason) : null]);
  say(cells[2], model ?? "any");
  say(cells[3], tries(decision));
  say(cells[4], time(wait(decision)));
  say(cells[5], time(decision.first_byte_seconds));
  say(cells[6], time(decision.ended_seconds));
  say(cells[7], time(decision.age_seconds));
}

const isChosen = (decision) => chosen !== null && chosen.id === decision.id;

function choose(decision) {
  chosen = decision;
  explain(decision);
  show(app);
  // On a narrow screen it stands below the list.
  if (one("why").offsetTop > one("requests").offsetTop + 50) one("why").focus();
}

function explain(decision) {
  const attempt = ({ upstream, fallback, passed_over: passed = [], ended, sent_seconds: sent, why }, index) => [
    h("h4", {}, `${decision.attempts.length > 1 ? `${index + 1}. ` : ""}Sent to ${upstream}${fallback ? ` for ${fallback} instead of ${passed.map(({ model, reason }) => `${model} (${reason.replaceAll("_", " ")})`).join(", ")}` : ""} after ${time(sent)}: ${ended?.replaceAll("_", " ") ?? "not answered yet"}`),
    why ? walk(why, `${decision.id} to ${upstream}`, app.showWalk, upstream) : h("p", { class: "quiet" }, "Why was not recorded."),
  ];
  const { id, method, path, priority, weight, estimated_tokens: tokens, client, prompt_tokens: prompt, output_tokens: output } = decision;
  // It grows older without another word.
  fill(one("why-answer"), { ...decision, age_seconds: 0 }, () => [
    h("h3", {}, `Request ${id}`),
    h("p", { class: "quiet" }, [`${method} ${path}`, `${priority} priority`, `weight ${many(weight)}`, `about ${many(tokens)} tokens asked`,
      client ? `by ${client}` : null, prompt === undefined ? null : `${many(prompt)} tokens read`,
      output === undefined ? null : `${many(output)} tokens answered`].filter(Boolean).join(", ")),
    ...decision.attempts.flatMap(attempt),
    ...decision.unplaced ? [h("h4", {}, "Nobody was found"), ...walk(decision.unplaced, decision.id, app.showWalk)] : [],
  ].flat());
}

async function askWhy(event) {
  event.preventDefault();
  chosen = null;
  const model = one("why-model").value.trim();
  const body = { messages: [{ role: "user", content: "" }], ...(model ? { model } : {}) };
  try {
    const explained = await post("explain", body);
    fill(one("why-answer"), explained, () => [h("h3", {}, `A chat with ${model || "any model"}`),
      ...walk(explained, `A chat with ${model || "any model"}`, app.showWalk)]);
  } catch (error) {
    fill(one("why-answer"), error.message, () => h("p", { class: "why" }, error.message));
  }
  show(app);
}

export function start(context) {
  app = context;
  list = table("requests", COLUMNS);
  one("filter-requests").addEventListener("input", () => show(app));
  one("ask-why").addEventListener("submit", askWhy);
}

export async function look() {
  try {
    told = await get(`decisions?limit=${LAST}`);
    told.refused = null;
  } catch (error) {
    // Whoever may not see them may see the rest.
    if (error.status !== 403) throw error;
    told = { decisions: [], seen: 0, recorded: 0, refused: error.message };
  }
  const now = chosen && told.decisions.find(isChosen);
  if (now) explain(now);
  show(app);
}

export function show() {
  const all = wanted();
  const seen = new Map();
  // Clients choose ids, and may choose one twice.
  const key = (decision) => {
    const nth = (seen.get(decision.id) ?? 0) + 1;
    seen.set(decision.id, nth);
    return `${nth} ${decision.id}`;
  };
  keep(list.rows, all, key, make, update);
  one("no-requests").hidden = all.length > 0;
  say(one("no-requests"), told.refused ?? (told.decisions.length ? "None is like that." : "No request has been recorded yet."));
  say(one("recorded"), `${many(all.length)} shown; ${many(told.recorded)} of ${many(told.seen)} were recorded`);
  const names = app.models?.models.map(({ name }) => name) ?? [];
  fill(one("known-models"), names, () => names.slice(0, 200).map((name) => h("option", { value: name })));
}
