import io
import sys
from dataclasses import dataclass, replace

import pytest
import torch

import unspool as us
from unspool.cli import main
from unspool.cli.commands import COMMANDS
from unspool.testing import bigram


@dataclass(frozen=True)
class LettersDetokenizer:
    said: str = ""
    stop: tuple[str, ...] = ()

    @property
    def _ends(self):
        return [end for end in (self.said.find(stop) for stop in self.stop) if end >= 0]

    @property
    def text(self):
        """The certain text: without an end that may be the start of a stop string."""
        if self._ends:
            return self.said[: min(self._ends)]
        starts = (stop[:length] for stop in self.stop for length in range(1, len(stop)))
        held = max((len(it) for it in starts if self.said.endswith(it)), default=0)
        return self.said[: len(self.said) - held]

    @property
    def finish_reason(self):
        return "stop" if self._ends else None

    def push(self, token):
        return replace(self, said=self.said + Letters.alphabet[token])

    def close(self):
        return self.text if self._ends else self.said


class Letters:
    """A tokenizer of three letters and an end."""

    alphabet = "abc"
    vocab_size = 4
    bos_id = None
    eos_ids = frozenset({3})

    def encode(self, text):
        for letter in text:
            if letter not in self.alphabet:
                raise ValueError(f"{letter!r} is not one of {self.alphabet}")
        return [self.alphabet.index(letter) for letter in text]

    def decode(self, ids):
        return "".join(self.alphabet[i] for i in ids if i < 3)

    def show(self, token):
        return (*self.alphabet, "<end>")[token]

    def chat(self, messages):
        return "".join(
            {"system": "c", "user": "a", "assistant": "b"}[m["role"]] + m["content"] for m in messages
        )

    def detokenizer(self, stop=(), after=None):
        return LettersDetokenizer(stop=tuple(stop))


# a → b → c → a most of the time; greedy search never leaves that loop.
CYCLE = [[0.1, 0.7, 0.15, 0.05], [0.15, 0.1, 0.7, 0.05], [0.7, 0.15, 0.1, 0.05], [0.25, 0.25, 0.25, 0.25]]


@pytest.fixture
def loaded(monkeypatch):
    """`unspool.load` gives a model of three letters; the fixture lists what it was asked for."""
    asked = []

    def load(name, device=None, dtype="float32", **how):
        asked.append((name, device, *(() if dtype == "float32" else (dtype,)), *how.items()))
        return bigram(CYCLE, tokenizer=Letters())

    monkeypatch.setattr(us, "load", load)
    return asked


def saved(folder, **changes):
    """A random language model of a hundred characters, saved."""
    from unspool.models.loading.run_folder import save
    from unspool.tokenization import train_characters

    torch.manual_seed(0)
    text = train_characters(["".join(map(chr, range(32, 128)))])
    save(us.models.RNNConfig(vocab_size=text.vocab_size, **changes).build(text), folder)
    return folder


@pytest.fixture
def kerbs(tmp_path_factory):
    """The folder of a model that has no single output matrix."""
    from unspool.heads import HEADS

    return saved(tmp_path_factory.mktemp("runs") / "kerbs", width=32, head=HEADS["kerbs"]())


@pytest.fixture
def narrow(tmp_path_factory):
    """The folder of a model that is narrower than the usual rank of a basis-aware test."""
    return saved(tmp_path_factory.mktemp("runs") / "narrow", width=4)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    """Call it within the test (pytest sets its own streams before), and standard output is a terminal."""

    def attach(stream="stdout"):
        screen = Terminal()
        monkeypatch.setattr(sys, stream, screen)
        return screen

    return attach


@pytest.fixture
def piped(monkeypatch):
    """Put bytes on standard input."""

    def pipe(data):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))

    return pipe


@pytest.fixture
def unspool(capsys):
    """Run a command; its exit status, standard output and standard error."""

    def run(*argv):
        status = main([str(arg) for arg in argv])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


@pytest.fixture
def replace_run(monkeypatch):
    """Replace the function that runs a command."""

    def put(name, run):
        monkeypatch.setitem(COMMANDS, name, replace(COMMANDS[name], run=run))

    return put


@pytest.fixture
def here(monkeypatch):
    """The pool is this very process, and gives the last block back first."""
    from unspool.integrations.ray import corpus
    from unspool.integrations.ray.corpus_blocks import block_lines

    def map_blocks(ray, blocks, make, columns, **pool):
        work = make()
        for block in sorted(blocks, key=lambda it: -it.number):
            yield block.number, block.rows, work(block_lines(block, columns), block.first_samples)

    class NoCluster:
        def __enter__(self):
            return None

        def __exit__(self, *error):
            return None

    monkeypatch.setattr(corpus, "map_blocks", map_blocks)
    monkeypatch.setattr(corpus, "connect_ray", NoCluster)
