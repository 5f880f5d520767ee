// By which tree are requests routed, and how do they flow through it?

import { get } from "./api.js";
import { bar, fill, h, one, say } from "./dom.js";
import { many, percent } from "./words.js";

const EVENTS = { emptied: "left nobody", failed: "could not judge", picked: "picked here", ended: "ended here" };

let app = null;
let tree = null;

/** Another one is in force. */
export function stale() {
  tree = null;
}

export function start(context) {
  app = context;
  one("tree-forget").addEventListener("click", () => {
    app.walk = null;
    show(app);
  });
}

export async function look() {
  tree ??= await get("tree");
  show(app);
}

/** How often each node was entered, and what happened there. */
function flows() {
  const by = new Map();
  for (const { labels, value } of app.figures.series("paddler_tree_node_walks_total")) {
    const node = Number(labels.node);
    if (!by.has(node)) by.set(node, {});
    by.get(node)[labels.event] = value;
  }
  return by;
}

function item(node, children, flow, all, steps) {
  const { entered } = flow ?? {};
  const happened = Object.entries(EVENTS).filter(([event]) => flow?.[event]).map(([event, said]) => `${said} ${many(flow[event])}`);
  const here = steps.map(({ before, after }) => (before === undefined ? "came here" : `${many(before)} → ${many(after)}`));
  return h("li", { class: steps.length ? "walked" : null },
    h("div", { class: "node" },
      node.way ? h("span", { class: "way" }, node.way) : null,
      h("span", { class: "title" }, node.list && node.parent === undefined ? "a request" : node.list ? "all of these" : node.title),
      here.length ? h("span", { class: "here" }, here.join(", ")) : null,
      entered === undefined ? null : h("span", { class: "flow" }, bar(all ? entered / all : 0), ` ${many(entered)}`,
        all ? h("span", { class: "quiet" }, ` (${percent(entered / all)})`) : null,
        happened.length ? h("span", { class: "quiet" }, `, ${happened.join(", ")}`) : null)),
    children.length ? h("ul", {}, children) : null);
}

export function show() {
  if (!tree) return;
  const by = flows();
  const walked = app.walk?.nodes ?? [];
  const build = () => {
    const all = by.get(tree.nodes[0].node)?.entered ?? 0;
    const below = new Map(tree.nodes.map(({ node }) => [node, []]));
    for (const node of tree.nodes) if (node.parent !== undefined) below.get(node.parent).push(node);
    const grow = (node) => item(node, below.get(node.node).map(grow), by.get(node.node), all, walked.filter((step) => step.node === node.node));
    return h("ul", { class: "tree" }, grow(tree.nodes[0]));
  };
  fill(one("tree"), [tree.text, [...by], walked], build);
  const source = tree.source === "api" ? "put in force by the management API, until a reload" : "as the config has it";
  say(one("tree-source"), app.walk ? `With the way of ${app.walk.title}` : source);
  one("tree-forget").hidden = !app.walk;
  one("tree-flow").hidden = by.size === 0;
}
