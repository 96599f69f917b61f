// Requests to the server. If it needs an API key, a dialog asks for it once; the tab keeps it.

const KEY = "unspool-api-key";

export class Refused extends Error {}

async function send(path, options) {
  for (;;) {
    const key = sessionStorage.getItem(KEY);
    const headers = { "content-type": "application/json", ...(key ? { authorization: `Bearer ${key}` } : {}) };
    const answer = await fetch(path, { ...options, headers });
    if (answer.status !== 401) return answer;
    sessionStorage.removeItem(KEY);
    await askForKey();
  }
}

let asking = null;
function askForKey() {
  asking ??= new Promise((resolve) => {
    const dialog = document.getElementById("key-dialog");
    const input = document.getElementById("key");
    dialog.addEventListener("close", () => {
      if (input.value) sessionStorage.setItem(KEY, input.value);
      input.value = "";
      asking = null;
      resolve();
    }, { once: true });
    dialog.showModal();
  });
  return asking;
}

export const hasKey = () => sessionStorage.getItem(KEY) !== null;

async function checked(answer) {
  if (answer.ok) return answer;
  const body = await answer.json().catch(() => null);
  throw new Refused(body?.error?.message ?? `The server returned status ${answer.status}.`);
}

export async function get(path) {
  return (await checked(await send(path, { method: "GET" }))).json();
}

export async function ask(path, body, signal) {
  return (await checked(await send(path, { method: "POST", body: JSON.stringify(body), signal }))).json();
}

// Yields the records of a server-sent event stream.
export async function* stream(path, body, signal) {
  const answer = await checked(await send(path, { method: "POST", body: JSON.stringify(body), signal }));
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const data = event.replace(/^data: /, "");
      if (data === "[DONE]") return;
      const record = JSON.parse(data);
      if (record.error) throw new Refused(record.error.message);
      yield record;
    }
  }
}

// Runs only the newest request of a view: a new one aborts the previous one. Until its response is there, and
// after a failure, the page shows an older response and marks it as stale.
export function newest(page, work, failed = page.failed) {
  let running = null;
  const run = async (...args) => {
    running?.abort();
    const mine = (running = new AbortController());
    if (page.isPromptEmpty) {
      page.clear();
      return;
    }
    page.waiting();
    try {
      await work(AbortSignal.any([mine.signal, page.left]), ...args);
      if (running === mine) page.fresh();
    } catch (error) {
      if (error.name !== "AbortError" && running === mine) failed(error);
    }
  };
  run.stop = () => {
    running?.abort();
    running = null;
  };
  return run;
}
