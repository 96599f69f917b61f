// The frame of the page: chooses the view, the model and the prompt.

import * as address from "./address.js";
import { get } from "./api.js";
import { view as attention } from "./attention.js";
import { view as beamTree } from "./beam_tree.js";
import { el } from "./dom.js";
import { view as lab } from "./lab.js";
import { view as nextToken } from "./next_token.js";
import { view as rate } from "./rate.js";
import { view as sideBySide } from "./side_by_side.js";

// Views without content (ratings, lab) are left out.
const ALL_VIEWS = [nextToken, sideBySide, beamTree, attention, rate, lab];
const PROMPTS = { text: "And God said unto Moses,", source: "Friday, July 4th, 2025" };
const $ = (id) => document.getElementById(id);
const status = $("status");  // moved beside the heading of the mounted view

const SLOW = 150;  // milliseconds until a pending request is announced
const PAUSE = 250;  // milliseconds without typing until a new prompt is used

let VIEWS = ALL_VIEWS;
let models = [];
let ratings = null;
let view = null;
let values = new URLSearchParams();
let mounted = null;
let page = null;
let typing = 0;

// The interface of the frame for one mounted view; inactive after the view was left.
function pageOf(root) {
  const leaving = new AbortController();
  const left = leaving.signal;
  let timer = 0;
  // "stale": an older result, dimmed and inert; "none": hidden. A text of null keeps the status text.
  const mark = (state, text, wrong = false) => {
    if (left.aborted) return;
    clearTimeout(timer);
    root.dataset.answer = state;
    root.querySelectorAll(".answer").forEach((node) => (node.inert = state !== "fresh"));
    if (text !== null) say(text, wrong);
  };
  return {
    left,
    leave: () => { clearTimeout(timer); leaving.abort(); },
    get values() { return values; },
    get model() { return values.get("model"); },
    get prompt() { return values.get("prompt"); },
    get ratings() { return ratings; },
    get isPromptEmpty() { return !view.alone && !values.get("prompt"); },
    set(changes) {
      if (left.aborted) return;
      $("link-note").textContent = "";
      assign(changes);
      address.write(view.id, values);
    },
    // Replaces invalid values of a link, and shows a note.
    correct(changes, text) {
      if (left.aborted) return;
      assign(changes);
      address.write(view.id, values);
      $("link-note").textContent = [$("link-note").textContent, `In this link: ${text}.`].filter(Boolean).join(" ");
    },
    open(id, changes = {}) {
      const kept = carried();
      Object.entries(changes).forEach(([name, all]) => all.forEach((value) => kept.append(name, value)));
      go(id, kept);
    },
    heading: (title) => el("div", { class: "heading" }, typeof title === "string" ? el("h2", {}, title) : title, status),
    say: (text) => left.aborted || say(text),
    waiting() {
      mark("stale", null);
      timer = setTimeout(() => say("Asking the model …"), SLOW);
    },
    stale: (text) => mark("stale", text),
    clear: () => mark("none", "Write a prompt."),
    fresh: (text = "") => mark("fresh", text),
    failed: (error) => mark("stale", error.message, true),
  };
}

function say(text, wrong = false) {
  status.className = wrong ? "wrong" : "";
  status.textContent = text;
}

// Changes values and the code snippets made of them.
function assign(changes) {
  for (const [name, all] of Object.entries(changes)) {
    values.delete(name);
    all.forEach((value) => values.append(name, value));
  }
  drawLinks();
}

// Values that are kept when the view changes.
const carried = () => new URLSearchParams([...values].filter(([name]) => name === "model" || name === "prompt"));

function go(id, given) {
  address.push(id, given);
  show(id, given);
}

function show(id, given) {
  clearTimeout(typing);
  page?.leave();
  mounted?.unmount?.();
  mounted = null;
  view = VIEWS.find((each) => each.id === id) ?? VIEWS[0];
  values = given;
  const notes = id && id !== view.id ? [`there is no view “${address.shortened(id)}”, ${view.title} is shown`] : [];
  if (!view.alone) {
    if (!models.some(({ name }) => name === values.get("model"))) {
      if (values.has("model")) notes.push(`model “${address.shortened(values.get("model"))}” is not served here, ${models[0].name} is used`);
      values.set("model", models[0].name);
    }
    if (!values.has("prompt")) values.set("prompt", exampleFor(values.get("model")));
    $("model").value = values.get("model");
    $("prompt").value = values.get("prompt");
  }
  const limits = view.limits?.(models.find(({ name }) => name === values.get("model")));
  notes.push(...address.correct(values, { ...view, limits }));
  for (const [name, all] of Object.entries(view.defaults)) if (!values.has(name)) all.forEach((value) => values.append(name, value));
  document.querySelector(".prompt").hidden = document.querySelector(".model").hidden = Boolean(view.alone);
  grow();
  document.title = `${view.title} · unspool`;
  say("Asking the model …");
  const root = el("div", { class: `view ${view.id}` });
  $("view").replaceChildren(root);
  page = pageOf(root);
  address.write(view.id, values);
  $("link-note").textContent = notes.length ? `In this link: ${notes.join("; ")}.` : "";
  mounted = view.mount(root, page);
  drawLinks();
}

const exampleFor = (name) => PROMPTS[models.find((model) => model.name === name)?.is_encoder_decoder ? "source" : "text"];

// The tabs are links, so that the browser adds an entry to its history for each.
const drawTabs = () => $("tabs").replaceChildren(...VIEWS.map((each) => el("a", { "data-view": each.id, onclick: () => address.write(view.id, values) }, each.title)));

function drawLinks() {
  for (const tab of $("tabs").children) {
    tab.href = address.link(tab.dataset.view, carried());
    if (tab.dataset.view === view.id) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
  }
  if (!mounted) return;
  $("copy-python").disabled = $("copy-curl").disabled = page.isPromptEmpty;
  $("python").textContent = page.isPromptEmpty ? "" : mounted.python();
  $("curl").textContent = page.isPromptEmpty ? "" : mounted.curl();
}

async function copy(button, text) {
  const label = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
    $("copy-note").textContent = "";
  } catch {
    $("code").open = true;  // browsers give no clipboard to pages without https
    $("copy-note").textContent = "This browser does not let the page copy: select the code below, or the address.";
  }
  setTimeout(() => (button.textContent = label), 1500);
}

// Grows with its text.
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
    const example = values.get("prompt") === exampleFor(values.get("model"));
    go(view.id, new URLSearchParams([["model", $("model").value], ...(example ? [] : [["prompt", values.get("prompt")]])]));
  });
  $("prompt").addEventListener("input", () => {
    grow();
    clearTimeout(typing);
    mounted.stop();
    page.stale(null);
    $("link-note").textContent = "";
    // Choices made in the result of the old prompt do not apply to the new one.
    assign({ prompt: [$("prompt").value], ...Object.fromEntries((view.ofPrompt ?? []).map((name) => [name, view.defaults[name] ?? []])) });
    typing = setTimeout(() => {
      address.write(view.id, values);
      mounted.refresh();
    }, page.isPromptEmpty ? 0 : PAUSE);
  });
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();  // the part of the address behind # is the page's state
    $("view").focus();
  });
  $("copy-link").addEventListener("click", () => copy($("copy-link"), new URL(address.link(view.id, values), location).href));
  $("copy-python").addEventListener("click", () => copy($("copy-python"), mounted.python()));
  $("copy-curl").addEventListener("click", () => copy($("copy-curl"), mounted.curl()));
  drawTabs();
  const open = () => {
    const { view: id, values: given } = address.read();
    show(id, given);
  };
  // Fires for Back and Forward, for the tabs, and for edits of the address.
  addEventListener("popstate", () => {
    open();
    $("view").focus({ preventScroll: true });
  });
  open();
}

begin().catch((error) => say(error.message, true));
