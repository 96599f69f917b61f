// View Lab: the claims of the documentation, with measurements and figures.

import { shortened } from "./address.js";
import { get } from "./api.js";
import { el } from "./dom.js";
import { curl, python } from "./snippets.js";

const MARKS = { reproduced: "✔", mixed: "≈", "not reproduced": "✘", "not run": "–" };

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
        el("span", { class: `mark ${each.verdict.replace(" ", "-")}`, title: each.verdict }, MARKS[each.verdict]), ` ${each.statement}`))));
      const figure = el("figure");
      one.replaceChildren(
        el("h2", {}, claim.statement), el("p", { class: "note" }, claim.source),
        el("p", { class: `mark ${claim.verdict.replace(" ", "-")}` }, `${MARKS[claim.verdict]} ${claim.verdict}`),
        figure, el("p", {}, claim.measured), claim.limits ? el("p", { class: "note" }, claim.limits) : "",
        el("h3", {}, "Counts as reproduced if"), el("ul", { class: "parts" }, claim.parts.map(({ words, held, of }) => el("li", {}, words, el("span", { class: "note" }, ` ${held} of ${of} seeds`)))),
        el("h3", {}, "Measured"), el("dl", { class: "facts" }, Object.entries(claim.numbers).map(([name, { mean, deviation }]) => el("div", {}, el("dt", {}, name), el("dd", {}, `${Number(mean.toPrecision(4))} ± ${Number(deviation.toPrecision(2))}`)))));
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

function asPython(page) {
  const name = page.values.get("claim");
  return `from unspool.lab.claims import CLAIMS

for claim in CLAIMS:
    if ${name ? `claim.name == ${python(name)}` : "True"}:
        print(claim.statement, claim.source, *claim.criterion, sep="\\n", end="\\n\\n")
`;
}
