"""Script of the helper process that tests a tokenizer.json (started by `helper_process`).

A tokenizer.json may be hostile: the library that reads it can panic, run for hours or exhaust memory. So a
file is first tested here:

    kinds     every component type is known
    sizes     file, patterns, replacements, token ids; a text may grow at most MAX_GROWTH-fold
    time      a watchdog ends this process
    memory    a limit of this process, on systems that support it (Linux)

The script loads the file and encodes and decodes test texts: runs of characters that its patterns name, its
longest tokens, characters of many scripts. Each line of standard input names a file and gets one line of
standard output, both JSON. The script imports no other module of this package, so that it starts quickly.
"""

from __future__ import annotations

import base64
import binascii
import faulthandler
import hashlib
import json
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from tokenizers import Tokenizer

KINDS = {
    "normalizer": "BertNormalizer ByteLevel Lowercase NFC NFD NFKC NFKD Nmt Precompiled Prepend Replace "
    "Sequence Strip StripAccents",
    "pre_tokenizer": "BertPreTokenizer ByteLevel CharDelimiterSplit Delimiter Digits FixedLength Metaspace "
    "Punctuation Sequence Split UnicodeScripts Whitespace WhitespaceSplit",
    "post_processor": "BertProcessing ByteLevel RobertaProcessing Sequence TemplateProcessing",
    "decoder": "BPEDecoder ByteFallback ByteLevel CTC Fuse Metaspace Replace Sequence Strip WordPiece",
    "model": "BPE Unigram WordLevel WordPiece",
}
MAX_BYTES, MAX_COMPONENTS, MAX_PATTERN_CHARS, MAX_PIECE_CHARS, MAX_GROWTH = 1 << 28, 64, 10_000, 1000, 256
MAX_ID = 1 << 24
"""The largest token id: the library writes a list of all unused smaller ids into memory."""
REPEATS = 500
"""Repetitions of a character or token in a test text."""
BASE_MEMORY_BYTES = 1 << 30
"""Memory limit for an empty file; 64 times the file size is added."""


class RefusedTokenizer(Exception):  # noqa: N818
    """The reason why a file is rejected."""


def components(section: Any, where: str) -> Iterator[dict[str, Any]]:
    """The components of one section of the file, in order, with every Sequence expanded."""
    stack = [section]
    while stack:
        part = stack.pop()
        if part is None:
            continue
        kind = part.get("type") if isinstance(part, dict) else None
        if not isinstance(part, dict) or kind not in KINDS[where].split():
            raise RefusedTokenizer(f"the {where} has a component of the unknown kind {str(kind)[:40]!r}")
        if kind == "Sequence":
            members = next((value for value in part.values() if isinstance(value, list)), [])
            stack += reversed(members)
        else:
            yield part


def check_component(part: dict[str, Any], where: str) -> float:
    """Reject settings that make the library panic; return the factor by which the text may grow."""
    kind = part["type"]
    if kind == "Replace":
        pattern, content = _pattern(part), str(part.get("content", ""))
        literal = isinstance(part.get("pattern"), dict) and "String" in part["pattern"]
        return max(1.0, len(content) / (max(1, len(pattern)) if literal else 1))
    if kind == "Split":
        _pattern(part)
    if kind == "ByteLevel":
        return 2.0
    if kind == "Prepend" and len(str(part.get("prepend"))) > MAX_GROWTH:
        raise RefusedTokenizer(f"the {where} prepends more than {MAX_GROWTH} characters")
    if kind == "FixedLength" and not part.get("length", 1):
        raise RefusedTokenizer("the pre_tokenizer splits texts into pieces of length 0")
    if kind == "Strip" and any(int(part.get(side) or 0) > MAX_GROWTH for side in ("start", "stop")):
        raise RefusedTokenizer(f"the decoder strips more than {MAX_GROWTH} characters")
    return charsmap_growth(part.get("precompiled_charsmap")) if kind == "Precompiled" else 1.0


def charsmap_growth(encoded: Any) -> float:
    """The longest replacement in a SentencePiece character map (a trie and its strings)."""
    try:
        data = base64.b64decode(encoded or "", validate=True)
    except (TypeError, binascii.Error):
        raise RefusedTokenizer("the normalizer's precompiled_charsmap is not base64") from None
    size = int.from_bytes(data[:4], "little")
    if not data:
        return 1.0
    if len(data) < 8 or not 0 < size <= len(data) - 4 or size % 4:
        raise RefusedTokenizer("the normalizer's precompiled_charsmap is damaged")
    return float(max(map(len, data[4 + size :].split(b"\0"))))


def _pattern(part: dict[str, Any]) -> str:
    pattern = part.get("pattern")
    pattern = next(iter(pattern.values()), "") if isinstance(pattern, dict) else pattern
    if not isinstance(pattern, str) or len(pattern) > MAX_PATTERN_CHARS:
        raise RefusedTokenizer(f"a {part['type']} has no pattern of at most {MAX_PATTERN_CHARS:,} characters")
    return pattern


def check_spec(spec: Any) -> list[str]:
    """Reject a harmful specification; return its patterns."""
    if not isinstance(spec, dict):
        raise RefusedTokenizer("it is not a JSON object")
    model = spec.get("model")
    if isinstance(model, dict) and model.get("type") == "Unigram":
        longest = max((len(str(entry[0])) for entry in model.get("vocab") or [] if entry), default=0)
        if longest > MAX_PIECE_CHARS:  # Unigram tries every piece at every character
            raise RefusedTokenizer(
                f"it has a piece of {longest:,} characters; the limit is {MAX_PIECE_CHARS:,}"
            )
    patterns, count = [], 0
    for where in KINDS:
        growth = 1.0
        for part in components(spec.get(where), where):
            count += 1
            growth *= check_component(part, where)
            if "pattern" in part:
                patterns.append(_pattern(part))
            if count > MAX_COMPONENTS:
                raise RefusedTokenizer(f"it has more than {MAX_COMPONENTS} components")
            if growth > MAX_GROWTH:
                raise RefusedTokenizer(f"its {where} may make a text more than {MAX_GROWTH} times as long")
    return patterns


def probe_texts(patterns: list[str], tokenizer: Tokenizer) -> Iterator[str]:
    """The texts to encode and decode."""
    yield "Hello, World! It's 1234,567.89 €\u00a0\u3000\r\n\t naïve e\u0301 ﷺ ﬁ Ⅻ \x00\ufffd"
    yield "한국어 日本語 שלום हिन्दी 👩\u200d👧"
    yield "".join(map(chr, range(1, 0x800)))
    named = {character for pattern in patterns for character in pattern if character.isprintable()}
    for character in (*sorted(named)[:64], *" a1é\n."):
        yield character * REPEATS + "\x01"
    for token in sorted(tokenizer.get_vocab(), key=len)[-2:]:
        yield (token * REPEATS)[: 16 * REPEATS]


def probe(path: str) -> dict[str, str]:
    """{"sha256": …} of a file that passed, or {"error": …}."""
    with open(path, "rb") as file:  # noqa: PTH123 (pathlib is one more import)
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        return {"error": f"it has more than {MAX_BYTES >> 20} MiB"}
    _limit_memory(BASE_MEMORY_BYTES + 64 * len(data))
    try:
        patterns = check_spec(json.loads(data))
        tokenizer = Tokenizer.from_buffer(data)
        largest = max(tokenizer.get_vocab().values(), default=0)
        if largest > MAX_ID:
            raise RefusedTokenizer(f"it has the token id {largest:,}; the limit is {MAX_ID:,}")
        tokenizer.no_padding()
        tokenizer.no_truncation()
        tokenizer.encode("")  # with its post-processor
        for text in probe_texts(patterns, tokenizer):
            with suppress(Exception):  # an unknown character may be an error
                ids = tokenizer.encode(text, add_special_tokens=False).ids
                tokenizer.decode(ids[:REPEATS], skip_special_tokens=False)
    except (RefusedTokenizer, ValueError, RecursionError) as error:
        return {"error": str(error)}
    except MemoryError:
        return {"error": "it needs too much memory"}
    except BaseException as error:  # a panic of the library is not an Exception
        return {"error": f"the tokenizers library rejects it: {error}"[:500]}
    return {"sha256": hashlib.sha256(data).hexdigest()}


def _limit_memory(size: int) -> None:
    with suppress(ImportError, ValueError, OSError):  # missing on Windows, rejected by macOS
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (size, resource.getrlimit(resource.RLIMIT_AS)[1]))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def serve() -> None:
    """Reply to requests until standard input closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    for line in sys.stdin:
        request = json.loads(line)
        # On timeout faulthandler prints "Timeout" first and ends the process.
        faulthandler.dump_traceback_later(request.pop("seconds"), exit=True, file=sys.stdout)
        reply = json.dumps(probe(**request))
        faulthandler.cancel_dump_traceback_later()
        print(reply, flush=True)


if __name__ == "__main__":
    serve()
