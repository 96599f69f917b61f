// View Rate: blinded items to rate, and the report.

import { ask, get, newest } from "./api.js";
import { el } from "./dom.js";
import { curl, python } from "./snippets.js";

export const view = {
  id: "rate",
  title: "Rate",
  alone: true,
  defaults: {},
  shown: (about) => about.ratings !== null,

  mount(root, page) {
    const rater = () => page.values.get("rater") ?? "";
    const name = el("input", { type: "text", maxlength: 80, autocomplete: "nickname", value: rater(), onchange: () => { page.set({ rater: [name.value.trim()] }); refresh(); } });
    const progress = el("progress", { max: 1, value: 0, "aria-label": "Answered" });
    const count = el("p", { class: "note" });
    const guide = el("p", { class: "text note" });
    const item = el("div", { class: "item answer" });
    const results = el("div", { class: "results answer" });
    const open = el("button", { type: "button", id: "results", onclick: () => show() }, "Show the results");
    root.append(
      el("div", { class: "columns" },
        el("section", { "aria-label": "Rater" }, el("h2", {}, "Who rates"),
          el("div", { class: "panel" }, el("label", { class: "field wide" }, "Your name ", name), progress, count),
          el("h2", {}, "What counts"), guide,
          el("h2", {}, "Results"), el("p", { class: "note" }, "They tell which system is which: answer first."), open),
        el("section", { "aria-label": "Texts to rate" }, page.heading("Texts"), item, results)));

    const tell = (told) => {
      progress.max = told.items;
      progress.value = told.answered;
      count.textContent = `${told.answered} of ${told.items} answered`;
      guide.textContent = told.scale.guide;
      item.replaceChildren(...(told.item ? form(told, answer) : [el("h2", {}, "All is answered: thank you.")]));
      page.fresh();  // nothing inside an inert element takes the focus
      item.querySelector("h2")?.focus();
    };
    const refresh = newest(page, async () => {
      if (!rater()) item.replaceChildren(el("p", { class: "note" }, "Write your name: answers are kept by rater."));
      else tell(await get(`/playground/rating?${new URLSearchParams({ rater: rater() })}`));
    });
    const answer = newest(page, async (signal, id, choice) => tell(await ask("/playground/rating", { rater: rater(), item: id, choice })));
    const show = newest(page, async () => {
      results.replaceChildren(...table(await get("/playground/rating-report")));
      page.set({ results: ["1"] });
    });

    // The keys of the scale answer, except while a field has the focus.
    const press = (event) => {
      if (item.inert || event.target.matches("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey) return;
      [...item.querySelectorAll("button")].find((button) => button.value === event.key)?.click();
    };
    document.addEventListener("keydown", press);
    refresh();
    if (page.values.has("results")) show();
    return {
      refresh,
      unmount: () => document.removeEventListener("keydown", press),
      python: () => asPython(page),
      curl: () => (page.values.has("results") ? curl("/playground/rating-report") : curl(`/playground/rating?${new URLSearchParams({ rater: rater() })}`)),
    };
  },
};

function form({ item: { id, prompt, texts }, scale: { question, choices } }, answer) {
  const pair = texts.length > 1;
  return [
    el("h2", { tabindex: -1 }, question),
    el("p", { class: "text asked" }, prompt),
    el("div", { class: "texts" }, texts.map((text, place) =>
      el("article", { class: "card" }, pair ? el("h3", {}, `Text ${"ab"[place]}`) : null, el("p", { class: "text" }, text || "(empty)")))),
    el("div", { class: "choices", role: "group", "aria-label": question }, Object.entries(choices).map(([key, meaning]) =>
      el("button", { type: "button", value: key, onclick: () => answer(id, key) }, el("kbd", {}, key), ` ${meaning}`))),
  ];
}

const shown = ({ value, low, high }) => `${value.toFixed(2)} [${low.toFixed(2)}, ${high.toFixed(2)}]`;

function table({ scale, answers, raters, systems, alphas, pairs }) {
  const most = Math.max(...systems.map(({ value }) => value.high), scale === "score" ? 2 : 0);
  const names = Object.keys(systems[0].counts);
  return [
    el("h2", {}, scale === "score" ? "Mean scores" : "Strengths (Bradley–Terry)"),
    el("p", { class: "note" }, `${answers} answers of ${Object.keys(raters).length} raters; intervals of 95 % over items.`),
    el("table", { class: "tokens" },
      el("thead", {}, el("tr", {}, ["System", scale === "score" ? "Mean" : "Strength", ...names].map((title) => el("th", { scope: "col" }, title)))),
      el("tbody", {}, systems.map(({ system, value, counts }) => {
        const bar = el("span", { class: "bar" });
        bar.style.width = `${(100 * value.value) / most}%`;
        return el("tr", {}, el("th", { scope: "row" }, system), el("td", { class: "p" }, bar, el("span", { class: "number" }, shown(value))), names.map((each) => el("td", {}, String(counts[each]))));
      }))),
    el("p", { class: "note" }, Object.keys(alphas).length
      ? `Krippendorff’s α: ${Object.entries(alphas).map(([level, alpha]) => `${level} ${shown(alpha)}`).join(", ")}`
      : "No item has two ratings that differ: agreement is not known."),
    el("ul", { class: "note" }, pairs.map(({ systems: [a, b], difference, p }) => el("li", {}, `${a} − ${b}: ${difference.toFixed(2)}, p = ${p.toFixed(3)}`))),
  ];
}

function asPython(page) {
  const load = `from unspool.evaluate.rating import RatingSet, report\n\nratings = RatingSet.load(${python(page.ratings)})\n`;
  if (!page.values.has("results")) return `${load}print(ratings.scale.question, ratings.next(${python(page.values.get("rater") || "anna")}))\n`;
  return `${load}for each in report(ratings).systems:\n    print(each.system, each.value, dict(each.counts))\n`;
}
