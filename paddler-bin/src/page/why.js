// Why did a request go where it went?
//
// The walk through the tree, as the router has recorded it: what each node left, and who went out by which value.

import { h } from "./dom.js";
import { many } from "./words.js";

const OUTCOMES = { picked: "picked", never: "nobody can serve it", later: "it waits", shed: "refused now" };

const value = (judged) => (judged === null ? "" : ` (${Number.isInteger(judged) ? many(judged) : Number(judged.toPrecision(3))})`);

function step({ title, before, after, removed, error }) {
  const left = before === undefined ? null : h("span", { class: before === after ? "quiet" : "strong" }, ` ${many(before)} → ${many(after)}`);
  const out = removed?.length
    ? h("details", {}, h("summary", {}, `${many(removed.length)} went out`),
      h("ul", {}, removed.map(([id, judged]) => h("li", {}, `${id}${value(judged)}`))))
    : null;
  return h("li", {}, h("span", {}, title), left, error ? h("p", { class: "why" }, error) : null, out);
}

/** A walk, and a way to see it in the tree. `to`: who is known to have been picked already. */
export function walk(explained, title, showWalk, to) {
  const { outcome, reason, error, picked, survivors, nodes, summary } = explained;
  const others = survivors.filter((id) => !picked.includes(id));
  return [
    picked.length === 1 && picked[0] === to ? null : h("p", {}, h("strong", {}, picked.length ? `To ${picked.join(", then ")}` : OUTCOMES[outcome] ?? outcome),
      reason ? `: ${reason}` : "", error ? `: ${error}` : ""),
    others.length ? h("p", { class: "quiet" }, `Chosen among ${many(survivors.length)}: ${survivors.slice(0, 8).join(", ")}${survivors.length > 8 ? ", …" : ""}`) : null,
    h("ol", { class: "steps" }, (nodes ?? []).filter((node) => node.title !== "list").map(step)),
    h("p", {}, h("button", { type: "button", click: () => showWalk({ title, nodes: nodes ?? [] }) }, "Show it in the tree")),
    h("details", {}, h("summary", {}, "In a line"), h("p", { class: "line" }, summary)),
  ];
}
