// What is looked at, how often, and where is it shown?
//
// Every two seconds, or at once when the router tells of a change. Of ten thousand upstreams a look brings those that are shown, and a
// look that takes long all the same is followed by a longer rest, so that the page burdens nobody.

import { Refused, follow, forgetKey, get, hasKey, keepKey, post, text } from "./api.js";
import { h, keep, one, say } from "./dom.js";
import * as events from "./events.js";
import { Figures, PATH } from "./figures.js";
import * as models from "./models.js";
import * as queue from "./queue.js";
import * as requests from "./requests.js";
import * as tree from "./tree.js";
import * as upstreams from "./upstreams.js";
import { many, plural, rate } from "./words.js";

const EVERY = 2_000;
/** A look may take this part of the time. */
const SHARE = 5;
const MODELS_EVERY = 10_000;
/** Several changes are often one: an engine that dies is ejected, and unable. */
const TOGETHER = 150;

const views = { upstreams, requests, tree, queue, models, events };
/** They are told of all at once, with all who serve them: not to whoever does not look. */
const WITH_MODELS = ["requests", "models"];

/** What is known, and what a view can have done. */
const app = {
  upstreams: null, queue: null, models: null, figures: new Figures(),
  /** The walk that the tree shows: {title, nodes}. */
  walk: null,
  drain, showWalk, notice, soon,
};

let view = "upstreams";
let modelsAt = -Infinity;
let timer = null;
let looking = false;
let again = false;
/** Somebody has asked for something else meanwhile: he is shown it also while all else is held. */
let asked = false;
let held = false;

function notice(said) {
  one("notice").hidden = !said;
  say(one("notice"), said ?? "");
}

function link(word, level) {
  say(one("link-word"), word);
  one("link").className = level;
}

function soon(after = 0, isAsked = false) {
  if (looking) {
    again = true;
    asked ||= isAsked;
  } else if ((!held || isAsked) && !document.hidden) {
    clearTimeout(timer);
    timer = setTimeout(look, after);
  }
}

async function look() {
  const began = performance.now();
  looking = true;
  again = false;
  try {
    await fetchAll(began);
    render();
    await views[view].look?.(app);
    if (held) link("held", "warn");
    else link("live", "good");
    document.body.dataset.looks = Number(document.body.dataset.looks ?? 0) + 1;
  } catch (error) {
    await failed(error);
  }
  looking = false;
  const took = performance.now() - began;
  const isAsked = asked;
  asked = false;
  soon(isAsked ? 0 : again ? TOGETHER : Math.max(EVERY, took * SHARE), isAsked);
}

async function fetchAll(now) {
  const wantsModels = WITH_MODELS.includes(view) && now - modelsAt > MODELS_EVERY;
  const [all, waits, page, known] = await Promise.all([
    get(upstreams.path()), get("queue"), text(PATH), wantsModels ? get("models") : app.models,
  ]);
  Object.assign(app, { upstreams: all, queue: waits, models: known });
  if (wantsModels) modelsAt = now;
  app.figures.look(page, performance.now());
}

async function failed(error) {
  if (!(error instanceof Refused)) {
    link("this page has a fault", "bad");
    notice(String(error));
    throw error;
  }
  if (error.status !== 401) return link(error.message, "bad");
  link("a key is needed", "warn");
  const title = hasKey() ? error.message : "A key is needed";
  forgetKey();
  if (await askKey(title)) again = true;
  else if (!held) one("hold").click();
}

function summary() {
  const { totals } = app.upstreams;
  const open = many(totals.open_weight);
  const refused = app.figures.sum("paddler_refusals_total");
  return [
    ["Upstreams serving", `${many(totals.serving)} / ${many(totals.upstreams)}`, totals.serving ? "" : "bad"],
    ["Open weight", totals.limit_weight === undefined ? open : `${open} / ${many(totals.limit_weight)}`, ""],
    ["Requests here", many(app.figures.sum("paddler_in_flight_requests").value), ""],
    ["Waiting", `${many(app.queue.waiting)} / ${many(app.queue.max_requests)}`, app.queue.waiting ? "warn" : ""],
    ["Answered a second", rate(app.figures.sum("paddler_requests_total").rate), ""],
    ["Refused a second", rate(refused.rate), refused.rate > 0 ? "bad" : ""],
  ];
}

function render() {
  const tile = ([name]) => h("div", {}, h("dt", {}, name), h("dd", {}));
  keep(one("summary"), summary(), ([name]) => name, tile, (element, [, value, level]) => {
    say(element.lastElementChild, value);
    element.className = level;
  });
  one("forget").hidden = !hasKey();
  views[view].show(app);
}

function turn() {
  const wanted = location.hash.slice(1);
  // The link to the content is no view.
  if (wanted in views) view = wanted;
  else if (wanted !== "" && wanted !== "main") return location.replace("#upstreams");
  notice();
  for (const name of Object.keys(views)) one(`view-${name}`).hidden = name !== view;
  for (const anchor of document.querySelectorAll("header nav a")) {
    if (anchor.hash === `#${view}`) anchor.setAttribute("aria-current", "page");
    else anchor.removeAttribute("aria-current");
  }
  if (app.queue) render();
  soon();
}

/** Opens a dialog, and waits for a yes or no. The browser says late that one was closed, maybe when it is open again: what was
 *  asked before is then a no. */
function opened(dialog) {
  dialog.pending?.(false);
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((done) => {
    dialog.pending = done;
    dialog.onclose = () => { if (!dialog.open) done(dialog.returnValue === "yes"); };
  });
}

/** Asks before something is done. */
function confirmed(title, question, yes) {
  say(one("confirm-title"), title);
  say(one("confirm-text"), question);
  say(one("confirm-yes"), yes);
  return opened(one("confirm"));
}

async function askKey(why) {
  say(one("key-title"), why);
  const given = await opened(one("ask-key"));
  if (given) keepKey(one("key").value.trim());
  one("key").value = "";
  return given;
}

async function drain({ id, draining, in_flight }) {
  const has = in_flight ? `What it has (${plural(in_flight, "request")}) comes to its end.` : "It has nothing under way.";
  const yes = draining
    ? await confirmed(`Let ${id} back in?`, "It gets requests again from now on.", "Let it back in")
    : await confirmed(`Drain ${id}?`, `It gets nothing new, until it is let back in. ${has}`, "Drain it");
  if (!yes) return;
  try {
    await post(`upstreams/${encodeURIComponent(id)}/${draining ? "undrain" : "drain"}`);
    notice(draining ? `${id} is back in.` : `${id} is drained.`);
  } catch (error) {
    notice(`${id} was not changed: ${error.message}`);
  }
  soon();
}

function showWalk(walk) {
  app.walk = walk;
  location.hash = "tree";
}

/** Follows the router's events for as long as the page is there. */
async function followEvents() {
  const tell = (kind, data) => {
    events.add(kind, data);
    // Who joins or leaves brings or takes models.
    if (/^(upstream\.(joined|left|changed)|config|gap)/.test(kind)) modelsAt = -Infinity;
    if (/^(config|tree|gap)/.test(kind)) tree.stale();
    soon(TOGETHER);
  };
  for (let rest = EVERY; ; rest = Math.min(rest * 2, 30_000)) {
    try {
      await follow(tell);
      rest = EVERY;
    } catch (error) {
      // It is looked again, by and by, and the looks say what is wrong; soon, while only a key is wanted.
      if (error.status === 401) rest = EVERY / 2;
    }
    await new Promise((done) => setTimeout(done, rest));
  }
}

one("hold").addEventListener("click", () => {
  held = !held;
  one("hold").setAttribute("aria-pressed", held);
  say(one("hold"), held ? "Go on" : "Hold");
  if (held) {
    clearTimeout(timer);
    link("held", "warn");
  } else soon();
});
one("forget").addEventListener("click", () => {
  forgetKey();
  location.reload();
});
document.addEventListener("visibilitychange", () => soon());
addEventListener("hashchange", turn);
for (const each of Object.values(views)) each.start(app);
turn();
followEvents();
