// The state of the page is in its address, #/view?name=value&…, so that a link reproduces it.

export function read() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  return { view: path, values: new URLSearchParams(query) };
}

export function link(view, values) {
  const query = values.toString();
  return `#/${view}${query ? `?${query}` : ""}`;
}

// Replaces the current entry of the browser's history.
export const write = (view, values) => history.replaceState(null, "", link(view, values));

// Adds an entry, so that Back returns to the current one.
export const push = (view, values) => history.pushState(null, "", link(view, values));

// Corrects values that this page cannot use, in place. Returns one phrase for each correction.
// `limits` gives the smallest and the largest whole number of a name, `most` how often a name may occur.
export function correct(values, { limits = {}, most = {}, defaults = {} }) {
  const notes = [];
  const reset = (name, given) => {
    values.delete(name);
    given.forEach((value) => values.append(name, value));
  };
  for (const [name, [low, high]] of Object.entries(limits)) {
    const wrong = values.getAll(name).find((value) => !/^\d{1,15}$/.test(value) || Number(value) < low || Number(value) > high);
    if (wrong === undefined) continue;
    const used = defaults[name] ?? [];
    reset(name, used);
    notes.push(`${name} “${shortened(wrong)}” is not a whole number from ${low} to ${high}, ${used.length ? `${used} is used` : "it is left out"}`);
  }
  for (const [name, count] of Object.entries(most)) {
    const given = values.getAll(name);
    if (given.length <= count) continue;
    reset(name, given.slice(0, count));
    notes.push(`${given.length} values of ${name} are more than ${count}, the first ${count === 1 ? "is" : `${count} are`} used`);
  }
  return notes;
}

export const shortened = (text) => (text.length > 40 ? `${text.slice(0, 39)}…` : text);
