// Which models and adapters can be asked for, and who serves them?

import { chip, fill, keep, one, row, say, table } from "./dom.js";
import { STATES, many, plural } from "./words.js";

/** So many rows are shown; a filter finds the others. */
const MOST = 200;
const NAMED = 12;
const COLUMNS = [{ head: "Model" }, { head: "Kind" }, { head: "Served by" }];

let list = null;

export function start(app) {
  list = table("models", COLUMNS);
  one("filter-models").addEventListener("input", () => { if (app.models) show(app); });
}

function kind({ adapter, parent, name, stands_for: stands }) {
  const others = stands.filter(({ model }) => model !== name);
  if (others.length) return `alias of ${others.map(({ model, base }) => (base ? `${model} on ${base}` : model)).join(", ")}`;
  return adapter ? `adapter${parent ? ` of ${parent}` : ""}` : "model";
}

const served = ({ upstream, state, active }) => chip(`${upstream}${state === "healthy" ? "" : `: ${state}`}${active ? ", in use" : ""}`, STATES[state] ?? "");

export function show({ models }) {
  if (!models) return;
  const words = one("filter-models").value.toLowerCase().split(/\s+/).filter(Boolean);
  const any = models.serving_any.length ? [{ name: "whatever is asked for", stands_for: [], upstreams: models.serving_any }] : [];
  const text = (model) => [model.name, ...model.upstreams.map(({ upstream }) => upstream)].join(" ").toLowerCase();
  const all = [...models.models, ...any].filter((model) => words.every((word) => text(model).includes(word)));
  keep(list.rows, all.slice(0, MOST), ({ name }) => name, () => row(COLUMNS), (element, model) => {
    say(element.cells[0], model.name);
    say(element.cells[1], kind(model));
    fill(element.cells[2], model.upstreams, () => [
      ...model.upstreams.slice(0, NAMED).map(served), model.upstreams.length > NAMED ? ` and ${many(model.upstreams.length - NAMED)} more` : null]);
  });
  const told = models.complete ? "" : "; not every upstream has told its models";
  say(one("models-found"), `${plural(all.length, "name")}${all.length > MOST ? `, of which ${MOST} are shown` : ""}${told}`);
}
