"""The program that tries a tokenizer.json, in a process of its own (`tokenizer_file` starts it).

A tokenizer.json may come from anyone. The library that reads it can panic, run for hours or ask for more
memory than there is, which ends the process. So a file is tried here first:

    kinds     every component is one that is known
    sizes     file, patterns, replacements; a text may grow GROWTH-fold on its way through the components
    time      a watchdog ends this process
    memory    a limit of this process, where the system has one (Linux)

The file is loaded, and some texts are encoded and decoded: runs of the characters that its patterns name, its
longest tokens, characters of many scripts. Every line of standard input names a file and gets one line of
standard output, both JSON. Nothing of ours is imported here, so that it starts quickly.
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
REPEATS = 500
"""How often a character or a token is repeated in the texts that are tried."""
BASE_MEMORY_BYTES = 1 << 30
"""Bytes for a small file; a large one gets 64 times its size on top."""


class RefusedTokenizer(Exception):  # noqa: N818
    """Why a file is not read."""


def components(found: Any, where: str) -> Iterator[dict[str, Any]]:
    """The components of one section of the file, in order; a Sequence stands for what it holds."""
    waiting = [found]
    while waiting:
        part = waiting.pop()
        if part is None:
            continue
        kind = part.get("type") if isinstance(part, dict) else None
        if not isinstance(part, dict) or kind not in KINDS[where].split():
            raise RefusedTokenizer(f"the {where} has a component of the unknown kind {str(kind)[:40]!r}")
        if kind == "Sequence":
            held = next((it for it in part.values() if isinstance(it, list)), [])
            waiting += reversed(held)
        else:
            yield part


def check_component(part: dict[str, Any], where: str) -> float:
    """Refuse settings that the library panics on; by how much the component may lengthen a text."""
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
        raise RefusedTokenizer("the pre_tokenizer cuts texts into pieces of length 0")
    if kind == "Strip" and any(int(part.get(side) or 0) > MAX_GROWTH for side in ("start", "stop")):
        raise RefusedTokenizer(f"the decoder strips more than {MAX_GROWTH} characters")
    return charsmap_growth(part.get("precompiled_charsmap")) if kind == "Precompiled" else 1.0


def charsmap_growth(encoded: Any) -> float:
    """The longest replacement of a SentencePiece character map: a trie and the strings that it leads to."""
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
    found = next(iter(pattern.values()), "") if isinstance(pattern, dict) else pattern
    if not isinstance(found, str) or len(found) > MAX_PATTERN_CHARS:
        raise RefusedTokenizer(f"a {part['type']} has no pattern of at most {MAX_PATTERN_CHARS:,} characters")
    return found


def check_spec(spec: Any) -> list[str]:
    """Refuse what is known to be harmful; the patterns of the file."""
    if not isinstance(spec, dict):
        raise RefusedTokenizer("it is no JSON object")
    model = spec.get("model")
    if isinstance(model, dict) and model.get("type") == "Unigram":
        longest = max((len(str(it[0])) for it in model.get("vocab") or [] if it), default=0)
        if (
            longest > MAX_PIECE_CHARS
        ):  # all pieces that begin at a character are looked at, for every character
            raise RefusedTokenizer(
                f"it has a piece of {longest:,} characters, and {MAX_PIECE_CHARS:,} are the most"
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
    """What is encoded and decoded."""
    yield "Hello, World! It's 1234,567.89 €\u00a0\u3000\r\n\t naïve e\u0301 ﷺ ﬁ Ⅻ \x00\ufffd"
    yield "한국어 日本語 שלום हिन्दी 👩\u200d👧"
    yield "".join(map(chr, range(1, 0x800)))
    named = {it for pattern in patterns for it in pattern if it.isprintable()}
    for character in (*sorted(named)[:64], *" a1é\n."):
        yield character * REPEATS + "\x01"
    for token in sorted(tokenizer.get_vocab(), key=len)[-2:]:
        yield (token * REPEATS)[: 16 * REPEATS]


def probe(path: str) -> dict[str, str]:
    """{"sha256": …} of a file that was read, or {"error": …}."""
    with open(path, "rb") as file:  # noqa: PTH123 (a path would be one more import)
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        return {"error": f"it has more than {MAX_BYTES >> 20} MiB"}
    _limit_memory(BASE_MEMORY_BYTES + 64 * len(data))
    try:
        patterns = check_spec(json.loads(data))
        tokenizer = Tokenizer.from_buffer(data)
        tokenizer.no_padding()
        tokenizer.no_truncation()
        tokenizer.encode("")  # with its post-processor
        for text in probe_texts(patterns, tokenizer):
            with suppress(Exception):  # a character that it does not know may be an error
                ids = tokenizer.encode(text, add_special_tokens=False).ids
                tokenizer.decode(ids[:REPEATS], skip_special_tokens=False)
    except (RefusedTokenizer, ValueError, RecursionError) as error:
        return {"error": str(error)}
    except MemoryError:
        return {"error": "it takes too much memory"}
    except BaseException as error:  # a panic of the library is no Exception
        return {"error": f"the tokenizers library refuses it: {error}"[:500]}
    return {"sha256": hashlib.sha256(data).hexdigest()}


def _limit_memory(size: int) -> None:
    with suppress(ImportError, ValueError, OSError):  # Windows has no such limit, macOS refuses it
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (size, resource.getrlimit(resource.RLIMIT_AS)[1]))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def serve() -> None:
    """Answer until nobody asks any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever asks
    for line in sys.stdin:
        asked = json.loads(line)
        # When time is over, the first line says "Timeout", and there is no process any more.
        faulthandler.dump_traceback_later(asked.pop("seconds"), exit=True, file=sys.stdout)
        answer = json.dumps(probe(**asked))
        faulthandler.cancel_dump_traceback_later()
        print(answer, flush=True)


if __name__ == "__main__":
    serve()
