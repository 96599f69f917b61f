// View Attention: small maps of all heads of a layer, a large map of one, and the attention of one token.

import { Refused, ask, newest } from "./api.js";
import { el, percent, slider, visible } from "./dom.js";
import { curl, python } from "./snippets.js";

const TOKENS = [0, 40];
const NAMES = { self: "the text at itself", source: "the answer at its source", encoder: "the source at itself", decoder: "the answer at itself" };

export const view = {
  id: "attention",
  title: "Attention",
  defaults: { layer: ["0"], head: ["0"], tokens: ["8"] },
  ofPrompt: ["kind", "layer", "head", "from"],
  limits: () => ({ layer: [0, 1000], head: [0, 1000], from: [0, 1000], tokens: TOKENS }),

  mount(root, page) {
    let seen = null;
    let place = null;
    const whole = (name) => Number(page.values.get(name));
    const kinds = el("select", { onchange: () => { page.set({ kind: [kinds.value], layer: ["0"], head: ["0"], from: [] }); refresh(); } });
    const layers = el("div");
    const length = slider("New tokens", whole("tokens"), { min: TOKENS[0], max: TOKENS[1], step: 1 }, (value) => { page.set({ tokens: [value], from: [] }); refresh(); });
    const heads = el("div", { class: "heads answer", role: "group", "aria-label": "Heads" });
    const map = el("canvas", { class: "map answer", role: "img" });
    const title = el("h2", {}, "Head 1");
    const about = el("p", { class: "about answer" });
    const from = el("p", { class: "strip answer", role: "group", "aria-label": "Looking from" });
    const to = el("p", { class: "strip answer", "aria-label": "Looking at" });
    const top = el("ol", { class: "top answer" });
    root.append(
      el("div", { class: "columns" },
        el("section", { "aria-label": "Layers and heads" }, el("h2", {}, "Layers and heads"),
          el("div", { class: "panel" }, el("label", { class: "field" }, "Attention of ", kinds), layers, length), heads),
        el("section", { "aria-label": "Map" }, page.heading(title), about, map,
          el("h3", {}, "From a token …"), from, el("h3", {}, "… to these"), to, top)));
    map.addEventListener("pointermove", (event) => seen && point(event));
    map.addEventListener("click", (event) => seen && choose(point(event).row));

    const row = () => (page.values.has("from") ? whole("from") : seen.queries.length - 1);
    const choose = (number) => { page.set({ from: [number] }); show(); };
    const point = (event) => {
      const at = (offset, count) => Math.max(0, Math.min(count - 1, Math.floor(offset / place.size)));
      const found = { row: at(event.offsetY - place.top, seen.queries.length), column: at(event.offsetX - place.left, seen.keys.length) };
      const weight = seen.weights[whole("head")][found.row][found.column];
      about.textContent = `${visible(seen.queries[found.row])} attends to ${visible(seen.keys[found.column])} with ${percent(weight)}`;
      return found;
    };

    // The numbers of layers and heads are known from the first response, so a link is checked here.
    async function answered(signal) {
      let found;
      try {
        found = await ask("/playground/attention", question(page), signal);
      } catch (error) {
        if (seen || !(error instanceof Refused) || !(whole("layer") || page.values.has("kind"))) throw error;
        page.correct({ kind: [], layer: ["0"] }, `${error.message}; layer 0 is used`);
        found = await ask("/playground/attention", question(page), signal);
      }
      for (const [name, count, used] of [["head", found.heads, ["0"]], ["from", found.queries.length, []]]) {
        const given = whole(name);
        if (given >= count) page.correct({ [name]: used }, `${name} ${given} is not there, the last is ${count - 1}; ${used[0] ?? count - 1} is used`);
      }
      return found;
    }

    function show() {
      const head = whole("head");
      const weights = seen.weights[head];
      title.textContent = `Layer ${seen.layer + 1}, head ${head + 1}`;
      place = paint(map, seen, weights, row());
      map.setAttribute("aria-label", `Attention of head ${head + 1}: ${seen.queries.length} tokens attend to ${seen.keys.length}`);
      heads.replaceChildren(...seen.weights.map((each, place) => {
        const small = el("canvas", { "aria-hidden": "true" });
        paintSmall(small, each, getComputedStyle(map).color);
        return el("button", { type: "button", class: "head", "aria-pressed": String(place === head), onclick: () => { page.set({ head: [place] }); show(); heads.children[place].focus(); } }, small, `Head ${place + 1}`);
      }));
      from.replaceChildren(...seen.queries.map((text, place) =>
        el("button", { type: "button", class: "token", "aria-pressed": String(place === row()), onclick: () => { choose(place); from.children[place].focus(); } }, visible(text))));
      to.replaceChildren(...seen.keys.map((text, place) => {
        const token = el("span", { class: "lit", title: percent(weights[row()][place]) }, visible(text));
        token.style.setProperty("--weight", weights[row()][place]);
        return token;
      }));
      const best = seen.keys.map((text, place) => [weights[row()][place], text]).sort((a, b) => b[0] - a[0]).slice(0, 5);
      top.replaceChildren(...best.map(([weight, text]) => el("li", {}, `${visible(text)} ${percent(weight)}`)));
    }

    const refresh = newest(page, async (signal) => {
      seen = await answered(signal);
      about.textContent = `Each row is a token and shows what it attends to; ${seen.heads} heads, ${seen.layers} layers.`;
      kinds.replaceChildren(...seen.kinds.map((kind) => el("option", { value: kind }, NAMES[kind])));
      kinds.value = seen.kind;
      if (!layers.children.length || layers.dataset.count !== String(seen.layers)) {
        layers.dataset.count = seen.layers;
        layers.replaceChildren(slider("Layer", seen.layer + 1, { min: 1, max: seen.layers, step: 1 }, (value) => { page.set({ layer: [value - 1] }); refresh(); }));
      }
      show();
    });

    const dark = matchMedia("(prefers-color-scheme: dark)");
    const recolour = () => seen && show();
    dark.addEventListener("change", recolour);
    document.addEventListener("recolour", recolour);
    addEventListener("resize", recolour);
    refresh();
    return {
      refresh: () => { layers.replaceChildren(); refresh(); },
      stop: refresh.stop,
      unmount: () => { dark.removeEventListener("change", recolour); document.removeEventListener("recolour", recolour); removeEventListener("resize", recolour); },
      python: () => asPython(page),
      curl: () => curl("/playground/attention", question(page)),
    };
  },
};

const question = (page) => ({
  model: page.model,
  prompt: page.prompt,
  max_tokens: Number(page.values.get("tokens")),
  ...(page.values.get("kind") ? { kind: page.values.get("kind") } : {}),
  layer: Number(page.values.get("layer")),
});

// A small map: one square for each weight.
function paintSmall(canvas, weights, colour) {
  const size = Math.max(1, Math.floor(96 / Math.max(weights.length, weights[0].length)));
  canvas.width = weights[0].length * size;
  canvas.height = weights.length * size;
  squares(canvas.getContext("2d"), weights, { left: 0, top: 0, size }, colour);
}

function squares(context, weights, { left, top, size }, colour) {
  context.fillStyle = colour;
  weights.forEach((row, y) => row.forEach((weight, x) => {
    context.globalAlpha = Math.sqrt(weight);
    context.fillRect(left + x * size, top + y * size, size, size);
  }));
  context.globalAlpha = 1;
}

// Draws the large map, with token labels if they fit; returns the position of its squares.
function paint(canvas, { queries, keys }, weights, chosen) {
  const style = getComputedStyle(canvas);
  const width = canvas.clientWidth;
  const context = canvas.getContext("2d");
  context.font = style.font;
  const room = (texts) => 10 + Math.max(...texts.map((text) => context.measureText(short(text)).width));
  const labelled = (width - room(queries)) / keys.length >= 10;
  const [left, top] = labelled ? [room(queries), room(keys)] : [0, 0];
  const size = Math.min(34, (width - left) / keys.length);
  const height = top + size * queries.length + 1;
  const scale = devicePixelRatio;
  canvas.style.height = `${height}px`;
  [canvas.width, canvas.height] = [width * scale, height * scale];
  context.scale(scale, scale);
  context.strokeStyle = style.caretColor;
  context.globalAlpha = 0.4;
  context.strokeRect(left + 0.5, top + 0.5, size * keys.length - 1, size * queries.length - 1);
  squares(context, weights, { left, top, size }, style.color);
  context.strokeStyle = style.outlineColor;
  context.lineWidth = 2;
  context.strokeRect(left + 1, top + chosen * size + 1, size * keys.length - 2, Math.max(2, size - 2));
  if (labelled) {
    context.font = style.font;
    context.fillStyle = style.caretColor;
    context.textBaseline = "middle";
    context.textAlign = "right";
    queries.forEach((text, row) => context.fillText(short(text), left - 6, top + (row + 0.5) * size));
    context.textAlign = "left";
    keys.forEach((text, column) => {
      context.save();
      context.translate(left + (column + 0.5) * size, top - 6);
      context.rotate(-Math.PI / 2);
      context.fillText(short(text), 0, 0);
      context.restore();
    });
  }
  return { left, top, size };
}

const short = (text) => (visible(text).length > 10 ? `${visible(text).slice(0, 9)}…` : visible(text));

function asPython(page) {
  const { model, prompt, max_tokens, kind, layer } = question(page);
  return `import unspool as us
from unspool.diagnose.decoding_views import attention_map

model = us.load(${python(model)})
seen = attention_map(model, ${python(prompt)}, us.Greedy(), ${max_tokens}, ${kind ? python(kind) : "None"}, layer=${layer})
for token, row in zip(seen.queries, seen.weights[${Number(page.values.get("head"))}]):
    print(f"{token!r:14}", " ".join(f"{weight:.2f}" for weight in row))
`;
}
