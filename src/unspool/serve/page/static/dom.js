// Creates elements. Strings become text nodes, never HTML, which the content security policy forbids, too.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked") node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

export const el = (name, properties = {}, ...children) =>
  fill(document.createElement(name), properties, children);

export const svg = (name, properties = {}, ...children) =>
  fill(document.createElementNS(SVG, name), properties, children);

// Makes spaces and line breaks of a token visible.
export const visible = (text) => text.replace(/^ /, "·").replaceAll("\n", "↵").replaceAll("\t", "⇥") || "∅";

// 12 %, 3.4 %, 0.04 %
export function percent(p) {
  if (p >= 0.0995) return `${(100 * p).toFixed(0)} %`;
  if (p >= 0.00095) return `${(100 * p).toFixed(1)} %`;
  if (p >= 0.00001) return `${Number((100 * p).toPrecision(1))} %`;
  return p === 0 ? "0 %" : "< 0.001 %";
}

export const spoken = (text) => el("span", { class: "spoken" }, text);

// A slider with its value beside it.
export function slider(label, value, { min, max, step, log = false }, onchange) {
  const shown = el("output", {}, written(value));
  const from = (place) => (log ? Number((10 ** place).toPrecision(2)) : Number(place));
  const input = el("input", {
    type: "range",
    min: log ? Math.log10(min) : min,
    max: log ? Math.log10(max) : max,
    step: log ? 0.05 : step,
    "aria-valuetext": written(value),
    oninput: () => {
      const found = from(input.value);
      shown.textContent = written(found);
      input.setAttribute("aria-valuetext", written(found));
      onchange(found);
    },
  });
  input.value = log ? Math.log10(value) : value;
  return el("label", { class: "slider" }, el("span", {}, label), input, shown);
}

export const written = (value) =>
  Math.abs(value) < 0.001 && value !== 0 ? value.toExponential(1).replace(/\.0e/, "e") : String(Number(value.toPrecision(4)));
