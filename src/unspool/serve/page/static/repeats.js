// Finds repetitions in a text, token by token, like `us.find_loop`; a test compares the two.

const REPEATS = 3;
const SPAN = 6;
export const GRAM = 4;

// The loop with the smallest period at the end of the tokens: {start, period}, or null.
export function findLoop(tokens, repeats = REPEATS, span = SPAN) {
  const n = tokens.length;
  for (let period = 1; period * repeats <= n; period++) {
    const needed = Math.max(repeats * period, span);
    if (needed > n) continue;
    let start = n - period;
    while (start > 0 && tokens[start - 1] === tokens[start - 1 + period]) start--;
    if (n - start >= needed) return { start, period };
  }
  return null;
}

// True for every token of a 4-gram that occurred before.
export function repeated(tokens) {
  const seen = new Set();
  const marks = tokens.map(() => false);
  for (let end = GRAM; end <= tokens.length; end++) {
    const gram = JSON.stringify(tokens.slice(end - GRAM, end));
    if (seen.has(gram)) marks.fill(true, end - GRAM, end);
    seen.add(gram);
  }
  return marks;
}

// Distinct bigrams as a share of all bigrams.
export function distinctPairs(tokens) {
  const pairs = tokens.slice(1).map((token, place) => JSON.stringify([tokens[place], token]));
  return pairs.length ? new Set(pairs).size / pairs.length : 1;
}
