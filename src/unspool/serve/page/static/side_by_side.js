// View Side by side: several decoders on one prompt, streamed, with repetitions marked.

import { stream } from "./api.js";
import { ALL, LETTERS, decoderList } from "./decoders.js";
import { el, slider } from "./dom.js";
import { GRAM, distinctPairs, findLoop, repeated } from "./repeats.js";
import { curl, list, python } from "./snippets.js";

const CHANGED = new DOMException("the settings have changed", "AbortError");
const DECODERS = 6;
const SEED = [0, 2 ** 31];
const TOKENS = [1, 300];

export const view = {
  id: "side-by-side",
  title: "Side by side",
  defaults: { decoder: ["Greedy()", "Sample()", "Sample(TopP(0.9))", "Sample(BasisAware(0.1))"], seed: ["1"], tokens: ["80"] },
  most: { decoder: DECODERS },
  limits: () => ({ seed: SEED, tokens: TOKENS }),

  mount(root, page) {
    let stop = null;
    const set = (values) => {
      page.set(values);
      change();
    };
    // The texts belong to older settings.
    const change = () => {
      stop?.abort(CHANGED);
      if (page.isPromptEmpty) page.clear();
      else page.stale("Settings have changed: press Run.");
    };
    const decoders = decoderList(page.values.getAll("decoder"), ALL, (all) => set({ decoder: all }), DECODERS);
    const seed = el("input", { type: "number", min: SEED[0], max: SEED[1], value: page.values.get("seed"), onchange: () => set({ seed: [seed.value || "0"] }) });
    const length = slider("Tokens", Number(page.values.get("tokens")), { min: TOKENS[0], max: TOKENS[1], step: 1 }, (value) => set({ tokens: [value] }));
    const run = el("button", { type: "button", id: "run", class: "main", onclick: () => (stop ? stop.abort() : start()) }, "Run");
    const texts = el("div", { class: "texts answer" });
    root.append(
      el("div", { class: "columns" },
        el("section", { "aria-label": "Decoders" }, el("h2", {}, "Decoders"), decoders.node,
          el("div", { class: "panel" }, length, el("label", { class: "field" }, "Seed ", seed), run),
          el("ul", { class: "legend" },
            el("li", {}, el("span", { class: "repeat" }, "said before"), ` in a run of ${GRAM} tokens`),
            el("li", {}, el("span", { class: "loop" }, "a loop"), " that the text ends in"))),
        el("section", { "aria-label": "Texts" }, page.heading("What they say"), texts)));

    async function start() {
      if (page.isPromptEmpty) {
        page.clear();
        return;
      }
      const mine = (stop = new AbortController());
      run.textContent = "Stop";
      const bodies = questions(page);
      const cards = bodies.map((body, place) => card(body.decoder, LETTERS[place]));
      texts.replaceChildren(...cards.map(({ node }) => node));
      page.fresh("The decoders are writing …");
      await Promise.all(bodies.map((body, place) => follow(body, cards[place], AbortSignal.any([mine.signal, page.left]))));
      stop = null;
      run.textContent = "Run";
      if (mine.signal.reason !== CHANGED) page.say(mine.signal.aborted ? "Stopped." : "All texts have ended.");
    }

    start();
    return {
      refresh: change,
      stop: () => stop?.abort(CHANGED),
      python: () => asPython(page),
      curl: () => questions(page).map((body) => curl("/v1/completions", body)).join("\n"),
    };
  },
};

const questions = (page) => page.values.getAll("decoder").map((decoder) => ({
  model: page.model,
  prompt: page.prompt,
  max_tokens: Number(page.values.get("tokens")),
  seed: Number(page.values.get("seed")),
  decoder,
  logprobs: 0,
  stream: true,
}));

async function follow(body, into, signal) {
  try {
    for await (const record of stream("/v1/completions", body, signal)) record.choices.forEach(into.add);
  } catch (error) {
    if (error.name !== "AbortError") into.fail(error.message);
  } finally {
    into.end();
  }
}

function card(decoder, letter) {
  const text = el("p", { class: "text" });
  const facts = el("dl", { class: "facts" });
  const node = el("article", { class: "card", "aria-busy": "true", "aria-label": `Decoder ${letter}: ${decoder}` },
    el("h3", {}, el("span", { class: `letter letter-${letter}`, "aria-hidden": "true" }, letter), decoder), text, facts);
  const tokens = [];
  const logps = [];
  const spans = [];
  const began = performance.now();
  let finish = "";

  function add({ text: said, logprobs, finish_reason }) {
    const parts = logprobs.tokens.join("") === said ? logprobs.tokens : [said];
    parts.forEach((part, place) => {
      const span = el("span", {}, part);
      spans.push({ span, first: tokens.length + place, count: parts.length > 1 ? 1 : logprobs.tokens.length });
      text.append(span);
    });
    tokens.push(...logprobs.tokens);
    logps.push(...logprobs.token_logprobs);
    finish = finish_reason ?? finish;
    mark();
  }

  function mark() {
    const marks = repeated(tokens);
    const loop = findLoop(tokens);
    for (const { span, first, count } of spans) {
      span.className = loop && first >= loop.start ? "loop" : marks.slice(first, first + count).some(Boolean) ? "repeat" : "";
    }
    const mean = logps.reduce((sum, logp) => sum + logp, 0) / Math.max(1, logps.length);
    const share = marks.filter(Boolean).length / Math.max(1, marks.length);
    const facts_ = {
      tokens: tokens.length,
      "tokens a second": ((1000 * tokens.length) / (performance.now() - began)).toFixed(0),
      "mean log p": mean.toFixed(2),
      repeated: `${(100 * share).toFixed(0)} %`,
      "different pairs": `${(100 * distinctPairs(tokens)).toFixed(0)} %`,
      loop: loop ? `of ${loop.period} from token ${loop.start + 1}` : "none",
      ended: finish || "not yet",
    };
    facts.replaceChildren(...Object.entries(facts_).map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, String(value)))));
  }

  return {
    node,
    add,
    fail: (message) => node.append(el("p", { class: "note wrong", role: "alert" }, message)),
    end: () => node.setAttribute("aria-busy", "false"),
  };
}

function asPython(page) {
  const [{ model, prompt, max_tokens, seed }] = questions(page);
  return `import unspool as us

model = us.load(${python(model)})
for decoder in ${list(page.values.getAll("decoder").map(python))}:
    out = us.generate(model, ${python(prompt)}, us.parse(decoder), max_new_tokens=${max_tokens}, seed=${seed})
    loop = us.find_loop(out.tokens)
    print(f"{decoder}: {out.finish_reason}, mean log p {sum(out.logps) / len(out.logps):.2f}, {loop}\\n{out.text}\\n")
`;
}
