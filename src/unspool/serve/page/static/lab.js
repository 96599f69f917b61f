// View Lab: the claims of the documentation, with measurements and figures.

import { shortened } from "./address.js";
import { get } from "./api.js";
import { el } from "./dom.js";
import { curl, python } from "./snippets.js";

const MARKS = { supported: "✔", contradicted: "✘", "cannot tell": "?", holds: "✔", fails: "✘" };
const mark = (claim) => MARKS[claim.verdict] ?? "–";
const markClass = (claim) => `mark ${claim.verdict.replaceAll(" ", "-")}`;

export const view = {
  id: "lab",
  title: "Lab",
  alone: true,
  defaults: {},
  shown: (about) => about.lab,

  mount(root, page) {
    let address = null;
    const list = el("ol", { class: "claims" });
    const one = el("article", { class: "claim", "aria-live": "polite" });
    root.append(el("div", { class: "columns" }, el("section", { "aria-label": "Claims" }, page.heading("Claims"), list), el("section", { "aria-label": "Claim" }, one)));
    const forget = () => address && URL.revokeObjectURL(address);

    async function show(claims) {
      const given = page.values.get("claim");
      if (given && !claims.some(({ name }) => name === given)) page.correct({ claim: [] }, `there is no claim “${shortened(given)}”`);
      const claim = claims.find(({ name }) => name === page.values.get("claim")) ?? claims.find(({ seeds }) => seeds.length) ?? claims[0];
      list.replaceChildren(...claims.map((each) => el("li", {}, el("button", { type: "button", class: "quiet claim-name", "aria-pressed": String(each === claim), onclick: () => { page.set({ claim: [each.name] }); show(claims).catch(page.failed); } },
        el("span", { class: markClass(each), title: each.verdict }, mark(each)), ` ${each.statement}`))));
      const figure = el("figure");
      one.replaceChildren(
        el("h2", {}, claim.statement), el("p", { class: "note" }, claim.source),
        el("p", { class: markClass(claim) }, `${mark(claim)} ${claim.verdict}`, claim.stale ? el("span", { class: "note" }, " (stale: the code or the plan has changed)") : ""),
        claim.effect ? el("p", { class: "effect" }, effectLine(claim)) : "",
        figure, el("p", {}, claim.plan.measured), claim.limits ? el("p", { class: "note" }, claim.limits) : "",
        claim.parts.length ? el("h3", {}, "Holds if") : "", el("ul", { class: "parts" }, claim.parts.map(({ words, held, of }) => el("li", {}, words, el("span", { class: "note" }, ` ${held} of ${of} seeds`)))),
        el("h3", {}, "Measured"), el("dl", { class: "facts" }, Object.entries(claim.numbers).map(([name, number]) => el("div", {}, el("dt", {}, name), el("dd", {}, withInterval(number))))));
      page.fresh();
      if (!claim.seeds.length) return;
      const { svg } = await get(`/playground/lab/${encodeURIComponent(claim.name)}`);
      forget();
      address = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
      figure.replaceChildren(el("img", { src: address, alt: `Figure: ${claim.statement}` }));
    }

    get("/playground/lab").then(show).catch(page.failed);
    return { refresh() {}, unmount: forget, python: () => asPython(page), curl: () => curl("/playground/lab") };
  },
};

const rounded = (number) => Number(number.toPrecision(3));

function withInterval({ mean, low, high }) {
  return low === null || low === high ? `${rounded(mean)}` : `${rounded(mean)} (${rounded(low)} to ${rounded(high)})`;
}

function effectLine({ plan, effect }) {
  return `${plan.primary}: ${withInterval(effect)}, 95 % interval; matters from ${plan.matters}; ${effect.seeds} seeds`;
}

function asPython(page) {
  const name = page.values.get("claim");
  return `from unspool.lab.claims import CLAIMS

for claim in CLAIMS:
    if ${name ? `claim.name == ${python(name)}` : "True"}:
        print(claim.statement, claim.source, claim.plan(), sep="\\n", end="\\n\\n")
`;
}
