// View Beam tree: time runs downwards, the hypotheses of a step are one row, and edges do not cross.

import { ask, newest } from "./api.js";
import { BEAMS, decoderList } from "./decoders.js";
import { el, slider, svg, visible } from "./dom.js";
import { curl, python } from "./snippets.js";

const ROW = 86;
const TOP = 30;
const TOKENS = [1, 40];
const MEANING = {
  grown: "continued", dropped: "dropped for better ones", open: "unfinished at the end of the search",
  eos: "ended", length: "ended at the limit", stop: "ended", loop: "ended in a loop",
};

export const view = {
  id: "beam-tree",
  title: "Beam tree",
  defaults: { decoder: ["Beam(4)"], tokens: ["10"] },
  most: { decoder: 1 },
  limits: () => ({ tokens: TOKENS }),

  mount(root, page) {
    let tree = null;
    const decoders = decoderList(page.values.getAll("decoder"), BEAMS, (all) => {
      page.set({ decoder: all });
      refresh();
    }, 1);
    const menu = el("select", { "aria-label": "Another beam", onchange: () => page.open(view.id, { decoder: [menu.value] }) },
      el("option", { value: "" }, "Another beam …"), BEAMS.map((beam) => el("option", { value: beam }, beam)));
    const length = slider("Tokens", Number(page.values.get("tokens")), { min: TOKENS[0], max: TOKENS[1], step: 1 }, (value) => {
      page.set({ tokens: [value] });
      refresh();
    });
    const detail = el("p", { class: "about answer", "aria-live": "polite" }, "Point at a hypothesis, or go to it by the keyboard.");
    const picture = el("div", { class: "tree answer" });
    const texts = el("ol", { class: "found answer" });
    root.append(
      el("div", { class: "columns" },
        el("section", { "aria-label": "Beam" }, el("h2", {}, "Beam"), decoders.node, el("div", { class: "panel" }, menu, length),
          el("h2", {}, "Texts it found"), texts,
          el("ul", { class: "legend" },
            el("li", { class: "node best" }, "● the best text"), el("li", { class: "node ended" }, "● ended"),
            el("li", { class: "node grown" }, "● continued"), el("li", { class: "node dropped" }, "○ dropped"))),
        el("section", { "aria-label": "Tree" }, page.heading("The search"), detail, picture)));

    const draw = () => tree && picture.replaceChildren(drawn(tree, picture.clientWidth, (text) => (detail.textContent = text)));
    const watcher = new ResizeObserver(draw);
    watcher.observe(picture);

    const refresh = newest(page, async (signal) => {
      tree = await ask("/playground/beam-tree", question(page), signal);
      decoders.tell(0, `looked at ${tree.nodes.length} hypotheses`);
      texts.replaceChildren(...tree.texts.map(({ text, total, finish_reason }) =>
        el("li", {}, el("span", { class: "text" }, text || "(empty)"), el("span", { class: "note" }, ` ${total.toFixed(2)}, ${MEANING[finish_reason]}`))));
      draw();
    }, (error) => {
      decoders.tell(0, error.message, true);
      page.failed(error);
    });

    refresh();
    return { refresh, stop: refresh.stop, unmount: () => watcher.disconnect(), python: () => asPython(page), curl: () => curl("/playground/beam-tree", question(page)) };
  },
};

const question = (page) => ({
  model: page.model,
  prompt: page.prompt,
  decoder: page.values.get("decoder"),
  max_tokens: Number(page.values.get("tokens")),
});

// The position of each node: in the order of the parents, siblings by score.
function laidOut(nodes, width) {
  const depths = [];
  nodes.forEach((node) => depths.push(node.parent < 0 ? 0 : depths[node.parent] + 1));
  const rows = Map.groupBy(nodes.keys(), (place) => depths[place]);
  const most = Math.max(...[...rows.values()].map((row) => row.length));
  const cell = width / most;
  const at = [];
  for (const [depth, row] of rows) {
    const left = (width - row.length * cell) / 2;
    const above = (node) => (nodes[node].parent < 0 ? 0 : at[nodes[node].parent].x);
    row.sort((a, b) => above(a) - above(b) || nodes[b].score - nodes[a].score)
      .forEach((node, place) => (at[node] = { x: left + (place + 0.5) * cell, y: TOP + depth * ROW + 50 }));
  }
  return { at, cell, height: TOP + rows.size * ROW + 10 };
}

const lineage = (nodes, node) => (node === null || node < 0 ? [] : [...lineage(nodes, nodes[node].parent), node]);

function drawn({ nodes, texts }, width, tell) {
  const { at, cell, height } = laidOut(nodes, width);
  const best = new Set(lineage(nodes, texts[0]?.node ?? null));
  const root = { x: width / 2, y: TOP };
  const fits = Math.max(2, Math.floor(cell / 7.5));
  const kind = (place) => (best.has(place) ? "best" : nodes[place].status in { grown: 1, dropped: 1, open: 1 } ? nodes[place].status : "ended");
  const edges = nodes.map(({ parent }, place) => {
    const from = parent < 0 ? { x: root.x, y: root.y + 6 } : { x: at[parent].x, y: at[parent].y + (cell >= 40 ? 37 : 24) };
    const to = at[place];
    const middle = (from.y + to.y) / 2;
    return svg("path", { class: `edge ${kind(place)}`, d: `M${from.x} ${from.y}C${from.x} ${middle} ${to.x} ${middle} ${to.x} ${to.y - 6}` });
  });
  const marks = nodes.map(({ text, logp, score, status }, place) => {
    const whole = lineage(nodes, place).map((node) => nodes[node].text).join("");
    const meaning = `“${whole}”: log p ${logp.toFixed(2)}, sum ${score.toFixed(2)}, ${MEANING[status]}`;
    const shown = visible(text);
    return svg("g", { class: `node ${kind(place)}`, tabindex: 0, role: "img", "aria-label": meaning, transform: `translate(${at[place].x} ${at[place].y})`, onmouseenter: () => tell(meaning), onfocus: () => tell(meaning), onclick: () => tell(meaning) },
      svg("title", {}, meaning),
      svg("circle", { r: 4.5 }),
      svg("text", { y: 19 }, shown.length > fits ? `${shown.slice(0, fits - 1)}…` : shown),
      cell >= 40 ? svg("text", { class: "score", y: 32 }, score.toFixed(cell >= 56 ? 2 : 1)) : null);
  });
  return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-label": "Tree of hypotheses" },
    edges, svg("circle", { class: "root", cx: root.x, cy: root.y, r: 5 }), svg("text", { class: "root", x: root.x, y: root.y - 12 }, "prompt"), marks);
}

function asPython(page) {
  const { model, prompt, decoder, max_tokens } = question(page);
  return `import unspool as us

model = us.load(${python(model)})
out = us.generate(model, ${python(prompt)}, us.parse(${python(decoder)}), max_new_tokens=${max_tokens}, seed=0)
print(out.total, out.text)
for place, node in enumerate(out.tree):
    print(f"{place:4} grew from {node.parent:4}  {model.tokenizer.show(node.token)!r:16} {node.score:9.3f}  {node.status}")
`;
}
