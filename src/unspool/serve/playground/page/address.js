// The state of the page is its address, #/view?name=value&…: a link shows what its sender saw.

export function read() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  return { view: path, values: new URLSearchParams(query) };
}

export function write(view, values) {
  const query = values.toString();
  history.replaceState(null, "", `#/${view}${query ? `?${query}` : ""}`);
}
