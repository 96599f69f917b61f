// Decoder inputs: a text field per decoder, and a slider for every number in it.

import { el, slider } from "./dom.js";

export const LETTERS = "ABCDEFGH";

export const TOKEN_BY_TOKEN = [
  "Greedy()",
  "Sample()",
  "Sample(Temperature(0.7))",
  "Sample(TopK(40))",
  "Sample(TopP(0.9))",
  "Sample(MinP(0.05))",
  "Sample(Typical(0.9))",
  "Sample(Epsilon(0.001))",
  "Sample(Eta(0.001))",
  "Sample(TopNSigma(1.0))",
  "Sample(TopH(0.4))",
  "Sample(TailFree(0.95))",
  "Sample(Mirostat(5.0))",
  "Sample(BasisAware(0.1))",
  "Sample(BasisAware.eta(0.002))",
  "Sample(BasisAware.nucleus(0.9))",
  "Sample(Temperature(0.8), TopP(0.9))",
  "Sample(RepetitionPenalty(1.2), TopP(0.9))",
  "Sample(NoRepeatNgram(3), TopP(0.9))",
  "Greedy(NoRepeatNgram(3))",
];

export const BEAMS = ["Beam(4)", "Beam(4, length_penalty=GNMT(0.6))", "DiverseBeam(6, 3, 0.5)", "StochasticBeam(4)"];

export const ALL = [...TOKEN_BY_TOKEN, ...BEAMS, "ContrastiveSearch(4, 0.6)"];

const SHARE = { min: 0.01, max: 1, step: 0.01 };
const SMALL = { min: 0.00001, max: 0.5, log: true };
const RANGES = {
  Temperature: [{ min: 0.05, max: 3, step: 0.05 }],
  TopK: [{ min: 1, max: 200, step: 1 }],
  TopP: [SHARE],
  MinP: [{ min: 0.001, max: 1, log: true }],
  Typical: [SHARE],
  Epsilon: [SMALL],
  Eta: [SMALL],
  TopNSigma: [{ min: 0.1, max: 5, step: 0.1 }],
  TopH: [SHARE],
  TailFree: [SHARE],
  Mirostat: [{ min: 0.5, max: 10, step: 0.1 }, { min: 0.01, max: 1, step: 0.01 }],
  BasisAware: [{ min: 0.0001, max: 0.9, log: true }, { min: 1, max: 64, step: 1 }],
  "BasisAware.eta": [SMALL],
  "BasisAware.nucleus": [SHARE],
  RepetitionPenalty: [{ min: 1, max: 2, step: 0.05 }],
  NoRepeatNgram: [{ min: 1, max: 8, step: 1 }],
  Beam: [{ min: 1, max: 8, step: 1 }],
  StochasticBeam: [{ min: 1, max: 8, step: 1 }],
  DiverseBeam: [{ min: 2, max: 8, step: 1 }, { min: 1, max: 8, step: 1 }, { min: 0, max: 2, step: 0.1 }],
  ContrastiveSearch: [{ min: 2, max: 10, step: 1 }, { min: 0, max: 1, step: 0.05 }],
  GNMT: [{ min: 0, max: 2, step: 0.1 }],
};

// Every number of a decoder: its position, its class, and its index among the arguments.
export function numbers(written) {
  const found = [];
  const owners = [];
  for (const match of written.matchAll(/([A-Za-z_][\w.]*)\s*\(|(["'])(?:\\.|(?!\2).)*\2|(\w+)\s*=|(-?\d+\.?\d*(?:e-?\d+)?)|([,)])/gi)) {
    const [, opened, , named, number, closing] = match;
    const owner = owners.at(-1);
    if (opened) owners.push({ name: opened, place: 0, argument: null });
    else if (named && owner) owner.argument = named;
    else if (number && owner) {
      found.push({ start: match.index, end: match.index + number.length, value: Number(number), owner: owner.name, place: owner.place, argument: owner.argument });
    } else if (closing === ")") owners.pop();
    else if (closing && owner) Object.assign(owner, { place: owner.place + 1, argument: null });
  }
  return found;
}

function range({ owner, place, argument, value }) {
  const known = argument === null ? RANGES[owner]?.[place] : undefined;
  const guess = Number.isInteger(value) && value > 1
    ? { min: 0, max: 4 * value, step: 1 }
    : value > 0 && value <= 1 ? SHARE : { min: Math.min(0, 2 * value), max: Math.max(1, 2 * value), step: 0.05 };
  const { min, max, ...rest } = known ?? guess;
  return { min: Math.min(min, value), max: Math.max(max, value), ...rest };
}

const decimal = (value) => (Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(6))));

// One decoder to write: a field, and a slider for each of its numbers.
function editor(written, letter, alone, onchange, onremove) {
  const field = el("input", { type: "text", class: "decoder", value: written, spellcheck: "false", autocomplete: "off", "aria-label": `Decoder ${letter}` });
  const sliders = el("div", { class: "sliders" });
  const note = el("p", { class: "note answer" });
  const draw = () => {
    sliders.replaceChildren(...numbers(field.value).map((number, which) => {
      const whole = Number.isInteger(number.value) && !/\./.test(field.value.slice(number.start, number.end));
      return slider(number.argument ? `${number.owner} ${number.argument}` : number.owner, number.value, range(number), (value) => {
        const { start, end } = numbers(field.value)[which];
        const text = whole ? decimal(Math.round(value)) : /[.e]/.test(decimal(value)) ? decimal(value) : `${decimal(value)}.0`;
        field.value = field.value.slice(0, start) + text + field.value.slice(end);
        onchange(field.value);
      });
    }));
  };
  field.addEventListener("change", () => {
    draw();
    onchange(field.value);
  });
  draw();
  const badge = el("span", { class: `letter letter-${letter}`, "aria-hidden": "true" }, letter);
  const remove = onremove && el("button", { type: "button", class: "quiet", "aria-label": `Remove decoder ${letter}`, onclick: onremove }, "✕");
  const node = el("li", { class: "editor" }, el("div", { class: "line" }, alone ? null : badge, field, remove), sliders, note);
  return { node, tell: (text, wrong = false) => {
    note.textContent = text;
    note.classList.toggle("wrong", wrong);
    field.setAttribute("aria-invalid", String(wrong));
  } };
}

// The decoders of a view, up to eight of them; `onchange` is given them all.
export function decoderList(decoders, choices, onchange, most = LETTERS.length) {
  const items = el("ol", { class: "decoders" });
  const menu = el("select", { "aria-label": "Add a decoder", onchange: () => {
    decoders = [...decoders, menu.value];
    menu.value = "";
    draw();
    onchange(decoders);
  } }, el("option", { value: "" }, "Add a decoder …"), choices.map((choice) => el("option", { value: choice }, choice)));
  let editors = [];
  const draw = () => {
    editors = decoders.map((written, place) => editor(written, LETTERS[place], most === 1, (text) => {
      decoders = decoders.with(place, text);
      onchange(decoders);
    }, decoders.length > 1 ? () => {
      decoders = decoders.toSpliced(place, 1);
      draw();
      onchange(decoders);
      (items.querySelector("button") ?? menu).focus();
    } : null));
    items.replaceChildren(...editors.map(({ node }) => node));
    menu.hidden = decoders.length >= most;
  };
  draw();
  return { node: el("div", { class: "panel" }, items, most > 1 ? menu : null), tell: (place, text, wrong) => editors[place]?.tell(text, wrong) };
}
