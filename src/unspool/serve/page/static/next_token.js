// View Next token: the model's distribution, and what each decoder keeps of it.

import { ask, newest } from "./api.js";
import { LETTERS, TOKEN_BY_TOKEN, decoderList } from "./decoders.js";
import { el, percent, spoken, visible } from "./dom.js";
import { curl, list, python } from "./snippets.js";

const ROWS = 40;
const SIGNS = {
  kept: ["●", "kept"],
  proved: ["◆", "kept below the threshold, by a proof"],
  cut: ["", "cut"],
  undecided: ["?", "undecided"],
};

export const view = {
  id: "next-token",
  title: "Next token",
  defaults: { decoder: ["Sample(TopP(0.9))", "Sample(MinP(0.05))", "Sample(BasisAware(0.1))"] },

  ofPrompt: ["token"],
  most: { decoder: LETTERS.length, token: 128 },
  limits: ({ vocabulary }) => ({ token: [0, vocabulary - 1] }),

  mount(root, page) {
    const chosen = () => page.values.getAll("token").map(Number);
    const go = async (tokens) => {
      page.set({ token: tokens });
      await refresh();
      // The pressed button was replaced: focus the first token.
      if (document.activeElement === document.body) body.querySelector("button")?.focus({ preventScroll: true });
    };
    const decoders = decoderList(page.values.getAll("decoder"), TOKEN_BY_TOKEN, (all) => {
      page.set({ decoder: all });
      refresh();
    });
    const text = el("p", { class: "so-far answer" });
    const back = el("button", { type: "button", id: "step-back", hidden: true, onclick: () => go(chosen().slice(0, -1)) }, "Step back");
    const about = el("p", { class: "about answer" });
    const body = el("tbody");
    const heads = el("tr");
    const table = el("table", { class: "tokens answer" }, el("caption", { class: "spoken" }, "The most probable next tokens, and what each decoder does with them"), el("thead", {}, heads), body);
    root.append(
      el("div", { class: "columns" },
        el("section", { "aria-label": "Decoders" }, el("h2", {}, "Decoders"), decoders.node, legend()),
        el("section", { "aria-label": "Distribution" }, page.heading("What may come next"), el("div", { class: "line" }, text, back), about, table),
      ),
    );
    table.addEventListener("keydown", walk);

    const asking = newest(page, async (signal) => {
      const seen = await ask("/playground/next-token", question(page), signal);
      text.replaceChildren(...seen.chosen.map(({ text, p }) => el("span", { class: "chosen", title: percent(p) }, visible(text))));
      if (!seen.chosen.length) text.textContent = "Choose a token to go on with it.";
      about.replaceChildren(...summary(seen));
      heads.replaceChildren(
        el("th", { scope: "col" }, "Token"), el("th", { scope: "col" }, "Probability"),
        ...seen.decoders.map((_, place) => el("th", { scope: "col", class: `letter letter-${LETTERS[place]}` }, LETTERS[place])),
      );
      body.replaceChildren(...(seen.ended ? [] : seen.tokens.map((token, row) => line(seen, token, row, () => go([...chosen(), token.id])))));
      seen.decoders.forEach((decoder, place) => decoders.tell(place, decoder.error ?? told(decoder), Boolean(decoder.error)));
    });

    const refresh = () => {
      back.hidden = chosen().length === 0;
      return asking();
    };

    refresh();
    return { refresh, stop: asking.stop, python: () => asPython(page), curl: () => curl("/playground/next-token", question(page)) };
  },
};

const question = (page) => ({
  model: page.model,
  prompt: page.prompt,
  tokens: page.values.getAll("token").map(Number),
  decoders: page.values.getAll("decoder"),
  count: ROWS,
});

function summary({ entropy, vocabulary, tokens, ended }) {
  if (ended) return ["The text has ended: step back to go on."];
  const most = Math.log2(vocabulary);
  const shown = tokens.reduce((sum, token) => sum + token.p, 0);
  return [
    "Entropy ", el("strong", { id: "entropy" }, `${entropy.toFixed(2)} bits`),
    ` of ${most.toFixed(1)}: as uncertain as among ${(2 ** entropy).toFixed(1)} tokens. `,
    `The ${tokens.length} shown hold ${percent(shown)}.`,
    el("meter", { min: 0, max: most, value: entropy, "aria-label": "Entropy" }),
  ];
}

function told({ kept, mass, threshold }) {
  if (threshold !== null) return `τ = ${percent(threshold)}; of those shown it keeps ${percent(mass)} of the mass`;
  return `keeps ${kept} ${kept === 1 ? "token" : "tokens"} with ${percent(mass)} of the mass`;
}

function line(seen, token, row, choose) {
  const bar = el("span", { class: "bar" });
  bar.style.width = `${100 * token.p / seen.tokens[0].p}%`;
  const proved = seen.decoders.some(({ statuses }) => statuses[row] === "proved");
  return el("tr", { class: proved ? "proved" : null },
    el("th", { scope: "row" }, el("button", { type: "button", class: "token", onclick: choose }, visible(token.text))),
    el("td", { class: "p" }, bar, el("span", { class: "number" }, percent(token.p))),
    seen.decoders.map(({ statuses, probabilities, error }, place) => {
      const [sign, meaning] = error ? ["", "not available"] : SIGNS[statuses[row]];
      const q = !error && probabilities[row] ? percent(probabilities[row]) : "";
      return el("td", { class: `token-status ${error ? "cut" : statuses[row]} letter-${LETTERS[place]}`, title: `${meaning} ${q}` },
        el("span", { "aria-hidden": "true" }, sign), el("span", { class: "q" }, q), spoken(meaning));
    }),
  );
}

const legend = () => el("ul", { class: "legend" },
  Object.entries(SIGNS).filter(([status]) => status !== "cut").map(([status, [sign, meaning]]) =>
    el("li", { class: status }, el("span", { "aria-hidden": "true" }, sign), ` ${meaning}`)),
  el("li", {}, "no sign: cut"));

// Arrow keys move between tokens.
function walk(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step) return;
  const buttons = [...event.currentTarget.querySelectorAll("button.token")];
  buttons[buttons.indexOf(document.activeElement) + step]?.focus();
  event.preventDefault();
}

function asPython(page) {
  const { model, prompt, tokens, decoders } = question(page);
  return `import unspool as us
from unspool.diagnose.decoding_views import next_token

model = us.load(${python(model)})
decoders = [us.parse(decoder) for decoder in ${list(decoders.map(python))}]
seen = next_token(model, ${python(prompt)}, ${list(tokens)}, decoders)
print(f"entropy: {seen.entropy:.2f} bits")
for row, token in enumerate(seen.tokens):
    print(f"{token.text!r:16} {token.p:8.4f}", *(each.statuses[row] for each in seen.decoders if each.statuses))
`;
}
