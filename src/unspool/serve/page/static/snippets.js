// Python and curl code that reproduces a view.

import { hasKey } from "./api.js";

// A JSON string is also a Python string if it does not contain lone surrogates.
export const python = (text) => JSON.stringify(text.toWellFormed());

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

export function curl(path, body = null) {
  const key = hasKey() ? ` -H "authorization: Bearer $UNSPOOL_API_KEY"` : "";
  if (body === null) return `curl ${quoted(location.origin + path)}${key}\n`;
  return `curl ${quoted(location.origin + path)} -H 'content-type: application/json'${key} \\\n    -d ${quoted(JSON.stringify(body))}\n`;
}

export const list = (items) => `[${items.join(", ")}]`;
