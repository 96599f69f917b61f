// The frame around the views: which one is shown, of which model, for which prompt.

import * as address from "./address.js";
import { get } from "./api.js";
import { view as attention } from "./attention.js";
import { view as beamTree } from "./beam_tree.js";
import { el } from "./dom.js";
import { view as lab } from "./lab.js";
import { view as nextToken } from "./next_token.js";
import { view as rate } from "./rate.js";
import { view as sideBySide } from "./side_by_side.js";

// Views of what is not there are left out.
const ALL_VIEWS = [nextToken, sideBySide, beamTree, attention, rate, lab];
const PROMPTS = { text: "And God said unto Moses,", source: "Friday, July 4th, 2025" };
const $ = (id) => document.getElementById(id);

let VIEWS = ALL_VIEWS;
let models = [];
let ratings = null;
let view = null;
let values = new URLSearchParams();
let mounted = null;

// What a view sees of the frame.
const page = {
  get values() { return values; },
  get model() { return values.get("model"); },
  get prompt() { return values.get("prompt"); },
  get ratings() { return ratings; },
  set(changes) {
    for (const [name, all] of Object.entries(changes)) {
      values.delete(name);
      all.forEach((value) => values.append(name, value));
    }
    address.write(view.id, values);
    writeCode();
  },
  open(id, changes = {}) {
    const kept = new URLSearchParams([...values].filter(([name]) => name === "model" || name === "prompt"));
    Object.entries(changes).forEach(([name, all]) => all.forEach((value) => kept.append(name, value)));
    show(VIEWS.find((each) => each.id === id), kept);
  },
  say(text) { $("status").className = ""; $("status").textContent = text; },
  well() { page.say(""); },
  failed(error) { $("status").className = "wrong"; $("status").textContent = error.message; },
};

function show(chosen, given) {
  mounted?.unmount?.();
  mounted = null;
  view = chosen ?? VIEWS[0];
  values = given;
  if (!view.alone) {
    if (!models.some(({ name }) => name === values.get("model"))) values.set("model", models[0].name);
    if (!values.get("prompt")) values.set("prompt", exampleFor(page.model));
    $("model").value = page.model;
    $("prompt").value = page.prompt;
  }
  for (const [name, all] of Object.entries(view.defaults)) if (!values.has(name)) all.forEach((value) => values.append(name, value));
  document.querySelector(".prompt").hidden = document.querySelector(".model").hidden = Boolean(view.alone);
  grow();
  document.title = `${view.title} · unspool`;
  drawTabs();
  page.say("Asking the model …");
  const root = el("div", { class: `view ${view.id}` });
  $("view").replaceChildren(root);
  address.write(view.id, values);
  mounted = view.mount(root, page);
  writeCode();
}

const exampleFor = (name) => PROMPTS[models.find((model) => model.name === name)?.answers ? "source" : "text"];

function drawTabs() {
  $("tabs").replaceChildren(...VIEWS.map((each) =>
    el("a", { href: `#/${each.id}`, "aria-current": each === view ? "page" : null, onclick: (event) => {
      event.preventDefault();
      page.open(each.id);
      $("view").focus();
    } }, each.title)));
}

function writeCode() {
  if (!mounted) return;
  $("python").textContent = mounted.python();
  $("curl").textContent = mounted.curl();
}

async function copy(button, text) {
  const label = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
    page.say("Copied.");
  } catch {
    $("code").open = true;  // no clipboard without https: it stands here to be marked
    page.say("This browser lets nothing be copied from here; the code is shown below.");
  }
  setTimeout(() => (button.textContent = label), 1500);
}

// As high as what is written needs.
function grow() {
  const field = $("prompt");
  field.style.height = "auto";
  field.style.height = `${Math.min(field.scrollHeight + 2, 240)}px`;
}

function setTheme(theme) {
  document.documentElement.style.colorScheme = theme === "system" ? "light dark" : theme;
  $("theme").setAttribute("aria-label", `Colours: ${theme === "system" ? "as the system has them" : theme}`);
  $("theme").textContent = { system: "◐", light: "☀", dark: "☾" }[theme];
  localStorage.setItem("unspool-colours", theme);
  document.dispatchEvent(new Event("recolour"));
}

async function begin() {
  const themes = ["system", "light", "dark"];
  const kept = localStorage.getItem("unspool-colours");
  setTheme(themes.includes(kept) ? kept : "system");
  $("theme").addEventListener("click", () => setTheme(themes[(themes.indexOf(localStorage.getItem("unspool-colours")) + 1) % 3]));
  const about = await get("/playground/about");
  ({ models, ratings } = about);
  VIEWS = ALL_VIEWS.filter((each) => each.shown?.(about) ?? true);
  $("model").replaceChildren(...models.map(({ name }) => el("option", { value: name }, name)));
  $("model").addEventListener("change", () => {
    const example = page.prompt === exampleFor(page.model);
    const changed = new URLSearchParams([["model", $("model").value], ...(example ? [] : [["prompt", page.prompt]])]);
    show(view, changed);
  });
  let waiting = 0;
  $("prompt").addEventListener("input", () => {
    grow();
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      if (!$("prompt").value) return;
      page.set({ prompt: [$("prompt").value] });
      mounted.refresh();
    }, 250);
  });
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();  // the part of the address behind # is the page's state
    $("view").focus();
  });
  $("copy-link").addEventListener("click", () => copy($("copy-link"), location.href));
  $("copy-python").addEventListener("click", () => copy($("copy-python"), mounted.python()));
  $("copy-curl").addEventListener("click", () => copy($("copy-curl"), mounted.curl()));
  const open = () => {
    const { view: id, values: given } = address.read();
    show(VIEWS.find((each) => each.id === id), given);
  };
  addEventListener("hashchange", open);
  open();
}

begin().catch(page.failed);
