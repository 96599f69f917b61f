"""Every kind of model and every search, small; which of them refuse each other; what any answer must hold.

The names come from the package's own lists, so that a new search, head, model or transform cannot be
forgotten.
"""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest
import torch
import transformers
from torch import Tensor, nn

import unspool as us
from unspool.data.known_languages import ZipfMarkov
from unspool.data.known_languages.known_language import TrueModel
from unspool.engine.engine_choice import engine_obstacle
from unspool.heads import HEADS
from unspool.interfaces import FinishReason, Step
from unspool.models import MODELS
from unspool.models.encoders import ENCODERS
from unspool.testing import TableModel
from unspool.tokenization.vocabulary import train_characters

TEXT = train_characters(["abcdef. "])
APART = replace(TEXT, source=train_characters(["abcdefgh. "]))
"""A text whose sources have a vocabulary of their own."""
V = TEXT.vocab_size
CONTEXT = 40

# ── models ───────────────────────────────────────────────────────────────────────────────────────

LAYERS = {"width": 8, "heads": 2, "inner_width": 8}
SHAPES: dict[str, dict[str, Any]] = {
    "rnn_lm": {"width": 8},
    "rnn_seq2seq": {"width": 8},
    "transformer_lm": LAYERS | {"layers": 1, "kv_heads": 2, "head_width": 4, "context": CONTEXT},
    "transformer_seq2seq": LAYERS | {"encoder_layers": 1, "decoder_layers": 1},
    "trigram": {"width": 8, "inner_width": 8, "beta": 2.0},
}
MASKED: dict[str, dict[str, Any]] = {
    "masked_lm": LAYERS | {"layers": 1, "context": CONTEXT},
    "masked_seq2seq": LAYERS | {"encoder_layers": 1, "decoder_layers": 1, "longest": 9},
}
"""Models that fill hidden places, and say no token after another."""
LABELLERS = ("classifier", "tagger")
"""Models that do not say one token after another."""
HEAD_SHAPES: dict[str, dict[str, Any]] = {
    "softmax": {"bias": True},
    "softmax tied": {"tied": True},
    "tempered": {},
    "bilinear": {"inner_width": 6},
    "mixture": {"experts": 2},
    "sigsoftmax": {},
    "kerbs": {"senses": 1.7},
    "capped": {"cap": 3.0},
}


def built(kind: str, seed: int = 0, text: Any = TEXT, **options: Any) -> Any:
    """A model of one of the package's kinds, whose random weights are large enough to count."""
    torch.manual_seed(seed)
    model = MODELS[kind](vocab_size=V, dropout=0.3, **(SHAPES | MASKED)[kind] | options).build(text).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.4 * torch.randn_like(parameter))
    model.engine = "torch"  # `compiled` is for the others
    return model


def headed(kind: str, head: str) -> Any:
    return built(kind, head=HEADS[head.split()[0]](**HEAD_SHAPES[head]))


def labeller(kind: str) -> Any:
    encoder = ENCODERS["rnn"](width=8)
    return MODELS[kind](vocab_size=V, labels=("x", "y"), encoder=encoder).build(TEXT).eval()


def compiled(model: Any) -> Any:
    """A copy whose steps are compiled, in every part that can be."""
    model = copy.deepcopy(model)
    for part in parts_of(model):
        if engine_obstacle(part) is None:
            part.engine = "compiled"
    return model


def parts_of(model: Any) -> list[nn.Module]:
    """The model itself, or those that it is made of."""
    return [it for it in (model, *vars(model).values(), *getattr(model, "models", ())) if is_module(it)]


def without_text(model: Any) -> Any:
    model.tokenizer = None
    return model


def wandering(row: tuple[int, ...]) -> list[float]:
    """Some letter after every letter, and sometimes another; <pad> never comes."""
    p = [0.0, *[0.03] * (V - 1)]
    p[4 + (3 * row[-1] + len(row) % 3) % (V - 4)] += 1 - sum(p)
    return p


def circling(row: tuple[int, ...]) -> list[float]:
    """One sign after the other, and almost never anything else."""
    p = [1e-6] * V
    p[5 if row[-1] == 4 else 4] += 1 - sum(p)
    return p


SPEAKERS: dict[str, Callable[[], Any]] = {
    **{kind: (lambda kind=kind: built(kind)) for kind in SHAPES},
    "transformer_lm learned positions": lambda: built("transformer_lm", positions="learned"),
    "transformer_seq2seq learned positions": lambda: built(
        "transformer_seq2seq", positions="learned", context=CONTEXT
    ),
    "transformer_seq2seq relative positions": lambda: built(
        "transformer_seq2seq", positions="relative", relative_buckets=4, relative_distance=6, embed_norm=True
    ),
    **{
        f"{kind} with sources apart": lambda kind=kind: built(
            kind, text=APART, source_vocab_size=APART.source.vocab_size
        )
        for kind in ("rnn_seq2seq", "transformer_seq2seq")
    },
    "transformer_lm without text": lambda: without_text(built("transformer_lm")),
    "Contrast": lambda: us.Contrast(speaker("transformer_lm"), speaker("trigram")),
    "Contrast of encoder–decoders": lambda: us.Contrast(
        speaker("transformer_seq2seq"), built("transformer_seq2seq", 1)
    ),
    "Ensemble": lambda: us.Ensemble((speaker("transformer_lm"), speaker("rnn_lm"))),
    "Ensemble of encoder–decoders": lambda: us.Ensemble(
        (speaker("rnn_seq2seq"), speaker("transformer_seq2seq")), mean="log_probability"
    ),
    "Guidance": lambda: us.Guidance(speaker("transformer_lm"), 1.5),
    "Guidance of an encoder–decoder": lambda: us.Guidance(speaker("transformer_seq2seq"), 2.0, "cab"),
    "DExperts": lambda: us.DExperts(speaker("transformer_lm"), built("trigram", 1), speaker("trigram"), 0.5),
    "EarlyExit": lambda: us.EarlyExit(built("transformer_lm", layers=2), layers=(0, 1)),
    "TableModel": lambda: TableModel(wandering, context=CONTEXT, tokenizer=TEXT),
    "TableModel in a circle": lambda: TableModel(circling, context=CONTEXT, tokenizer=TEXT),
    "TrueModel": lambda: TrueModel(ZipfMarkov(word_count=8, branching=6, order=1)),
    **{kind: (lambda kind=kind: labeller(kind)) for kind in LABELLERS},
}
THEIRS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    # class, configuration, sizes
    "GPT-2": (
        transformers.GPT2LMHeadModel,
        transformers.GPT2Config,
        {"n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": CONTEXT},
    ),
    "Llama": (
        transformers.LlamaForCausalLM,
        transformers.LlamaConfig,
        {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8, "num_hidden_layers": 1},
    ),
    "OPT": (
        transformers.OPTForCausalLM,
        transformers.OPTConfig,
        {"hidden_size": 8, "num_attention_heads": 2, "ffn_dim": 8, "num_hidden_layers": 1}
        | {"word_embed_proj_dim": 8},
    ),
    "T5": (
        transformers.T5ForConditionalGeneration,
        transformers.T5Config,
        {"d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2},
    ),
    "BART": (transformers.BartForConditionalGeneration, transformers.BartConfig, {}),
    "Marian": (transformers.MarianMTModel, transformers.MarianConfig, {}),
}
"""Families of Hugging Face's, each of which `us.from_huggingface` makes a model of ours."""
BOTH_SIDES = {
    f"{side}_{name}": size
    for side in ("encoder", "decoder")
    for name, size in {"layers": 1, "attention_heads": 2, "ffn_dim": 8}.items()
}


def theirs(family: str) -> Any:
    """A random model of a family of Hugging Face's, as a model of ours."""
    kind, config, sizes = THEIRS[family]
    torch.manual_seed(0)
    ends = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "forced_eos_token_id": None}
    sizes = sizes or {"d_model": 8} | BOTH_SIDES
    if family != "T5":
        sizes = sizes | {"max_position_embeddings": CONTEXT}
    model = kind(config(vocab_size=V, decoder_start_token_id=1, **ends, **sizes)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.4 * torch.randn_like(parameter))
    return us.from_huggingface(model, TEXT)


WRAPPED = {f"Hugging Face's {family}": (lambda family=family: theirs(family)) for family in THEIRS}
WHOLLY = ("Hugging Face's Llama", "Hugging Face's BART")
"""One of each kind in every way of asking; of the others, as of every head, every aspect at once."""
SPEAKERS |= {name: WRAPPED[name] for name in WHOLLY}
COMPILED = " compiled"
STEPS_ARE_COMPILED = [kind for kind in SHAPES if kind.startswith("transformer")]
SPEAKERS |= {
    name + COMPILED: (lambda name=name: compiled(speaker(name)))
    for name in (
        *STEPS_ARE_COMPILED,
        "transformer_lm learned positions",
        "transformer_seq2seq with sources apart",
        "Contrast",
        "Ensemble of encoder–decoders",
        "EarlyExit",
    )
}
"""Compiled steps refuse nothing that torch's do not."""
HEADED: dict[str, Callable[[], Any]] = {
    f"{kind} {head}": (lambda kind=kind, head=head: headed(kind, head))
    for kind in SHAPES
    for head in HEAD_SHAPES
}
HEADED |= {
    name + COMPILED: (lambda name=name: compiled(speaker(name)))
    for name in HEADED
    if name.split()[0] in STEPS_ARE_COMPILED
}
HEADED |= {name: it for name, it in WRAPPED.items() if name not in WHOLLY}
"""Every head in every model of ours: of these, every aspect is tried at once."""


@cache
def speaker(name: str) -> Any:
    """The same model for every test."""
    return (SPEAKERS | HEADED)[name]()


class NotANumber(TrueModel):
    """A language that is no language."""

    def _predict(self, state: Any) -> Any:
        step, state = super()._predict(state)
        return Step(torch.full_like(step.logp_NV, math.nan)), state


def broken(model: Any) -> Any:
    """A copy with NaN for weights."""
    if isinstance(model, TableModel):
        return TableModel(lambda row: [math.nan] * V, context=CONTEXT, tokenizer=TEXT)
    if isinstance(model, TrueModel):
        return NotANumber(model.language)
    wrong = copy.deepcopy(model)
    for part in parts_of(wrong):
        with torch.no_grad():
            for parameter in part.parameters():
                parameter.fill_(math.nan)
    return wrong


def is_module(it: Any) -> bool:
    return isinstance(it, nn.Module)


@torch.no_grad()
def forced(model: Any, prompts: Sequence[Sequence[int]], texts: Sequence[Sequence[int]]) -> list[Tensor]:
    """(T, V) for each text of T tokens: log p before each of them, in one parallel pass where there is one."""
    said = [list(tokens[:-1]) for tokens in texts]
    if not is_module(model):
        return stepped(model, prompts, said)
    if not model.is_encoder_decoder:
        logp_NTV = model(padded([[*prompt, *row] for prompt, row in zip(prompts, said, strict=True)]))
        starts = [len(prompt) - 1 for prompt in prompts]
    else:
        sources = [model.source_ends.source(prompt) for prompt in prompts]
        begun = padded([[model.ends.bos, *row] for row in said])
        logp_NTV = model(padded(sources), torch.tensor([*map(len, sources)]), begun)
        starts = [0] * len(prompts)
    return [logp_NTV[at, first : first + 1 + len(said[at])] for at, first in enumerate(starts)]


def stepped(model: Any, prompts: Sequence[Sequence[int]], said: Sequence[Sequence[int]]) -> list[Tensor]:
    """The same from a model that can do nothing but step."""
    step, state = model.start(prompts)
    rows, found = list(range(len(prompts))), [[logp_V] for logp_V in step.logp_NV]
    for place in range(max(map(len, said))):
        stay = [at for at, row in enumerate(rows) if place < len(said[row])]
        rows = [rows[at] for at in stay]
        state = state.select(torch.tensor(stay))
        step, state = model.step(state, torch.tensor([said[row][place] for row in rows]))
        for row, logp_V in zip(rows, step.logp_NV, strict=True):
            found[row].append(logp_V)
    return [torch.stack(each) for each in found]


def padded(rows: Sequence[Sequence[int]]) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows])


# ── searches ─────────────────────────────────────────────────────────────────────────────────────

EXAMPLES: dict[str, Callable[..., Any]] = {
    "Beam": lambda draft, *rules: us.Beam(3, *rules),
    "BeamSample": lambda draft, *rules: us.BeamSample(3, *rules),
    "ConstrainedBeam": lambda draft, *rules: us.ConstrainedBeam(3, ((5,),), *rules),
    "ContrastiveSearch": lambda draft, *rules: us.ContrastiveSearch(3, 0.6, *rules),
    "DiverseBeam": lambda draft, *rules: us.DiverseBeam(4, 2, 0.5, *rules),
    "ExactSearch": lambda draft, *rules: us.ExactSearch(3, 40, *rules),
    "Greedy": lambda draft, *rules: us.Greedy(*rules),
    "MBR": lambda draft, *rules: us.MBR(4, us.Sample(*rules)),
    "Sample": lambda draft, *rules: us.Sample(*rules),
    "Speculative": lambda draft, *rules: us.Speculative(draft, *rules, length=2),
    "StochasticBeam": lambda draft, *rules: us.StochasticBeam(3, *rules),
}
INFILLING: dict[str, Callable[..., Any]] = {
    "MaskPredict": lambda: us.MaskPredict(3, lengths=3),
    "MaskedDiffusion": lambda: us.MaskedDiffusion(3),
}
"""Searches for models that fill hidden places, and for no others."""
RULED = [*EXAMPLES]
"""They take transforms: all of them do."""
RANKING = ("Beam", "BeamSample", "ConstrainedBeam", "DiverseBeam", "ExactSearch", "MBR", "StochasticBeam")
"""They never give one text twice, and may give fewer than n."""
WIDEST = 4
"""More texts than this, none of them gives."""


def search_for(decoder: str, model: Any, *rules: Any) -> Any:
    """A search of this kind for a model: Speculative needs a draft that reads and speaks as the model does."""
    draft = "transformer_seq2seq" if model.is_encoder_decoder else "trigram"
    if model.source_vocab_size is not None:
        draft += " with sources apart"
    return EXAMPLES[decoder](speaker(draft), *rules)


# ── refusals ─────────────────────────────────────────────────────────────────────────────────────

HIDDEN = "needs hidden states"
BACK = "rewinds rejected tokens"
REFUSALS: list[tuple[str, str, str, str, str]] = [
    # search, model, aspect, words of the refusal, why
    ("*", "classifier", "*", "predict|label", "a classifier says one label, not one token after another"),
    ("*", "tagger", "*", "predict|label", "a tagger says labels, not one token after another"),
    ("*", "*without text", "stop", "stop strings need a tokenizer", "there is no text to look for them in"),
    ("*", "*without text", "text", "has no tokenizer", "a string cannot become token ids"),
    *(
        (
            "*",
            model,
            "full",
            "but the context is|fills the context",
            "the prompt leaves no room for a single token",
        )
        for model in (
            "transformer_lm*",
            "Contrast",
            "Ensemble",
            "EarlyExit",
            "TableModel*",
            "Guidance",
            "DExperts",
            "Hugging Face's Llama",
        )
    ),
    ("*", "Hugging Face's BART", "full", "reads sources of at most", "its end would not fit"),
    ("*", "transformer_seq2seq learned*", "full", "reads sources of at most", "its end would not fit"),
    *(
        (beam, "*", "too many", "is more than", "it keeps no more than its width or samples")
        for beam in RANKING
    ),
    ("Speculative", "rnn*", "*", BACK, "a recurrent state has nothing to go back to"),
    ("Speculative", "Ensemble*", "*", BACK, "one of these parts is recurrent"),
    ("Speculative", "EarlyExit", "*", BACK, "its view of the layers reads one token at a time"),
    ("Speculative", "TrueModel", "*", BACK, "a language's state has no way back"),
    ("ExactSearch", "Contrast*", "*", "scores of at most 0", "differences may be positive"),
    ("ContrastiveSearch", "TableModel*", "*", HIDDEN, "a table has none"),
    ("ContrastiveSearch", "TrueModel", "*", HIDDEN, "a language has none"),
    ("ContrastiveSearch", "Ensemble*", "*", HIDDEN, "its parts' vectors live in different spaces"),
    ("Sample", "TrueModel", "ForcedBOS", "cannot come here", "nothing follows what a language never says"),
    *(
        ("Sample", model, "BasisAware", "needs the matrix of an output layer", "it has no such matrix")
        for model in (
            *("*mixture", "*sigsoftmax", "*kerbs", "*capped", "T*Model*"),
            *("Contrast*", "Ensemble*", "EarlyExit", "Guidance*", "DExperts"),
        )
    ),
    *(
        (decoder, "*", pick, "is not a transform", "it picks nothing, or by itself")
        for decoder in (*RANKING, "ContrastiveSearch", "Greedy")
        if decoder != "MBR"
        for pick in ("ArgMax", "BasisAware", "Multinomial")
    ),
    (
        "Speculative",
        "*",
        "BasisAware",
        "does not support",
        "nobody knows how probably it draws a token",
    ),
    ("*", "*without text", "Grammar", "Grammar needs a tokenizer", "a grammar is about text"),
    ("MBR", "*without text", "ChrF", "token ids|text", "there are no characters to compare"),
    *(
        ("*", model, "Coverage", "Coverage needs", "it attends to no source")
        for model in (
            *("*_lm*", "trigram", "T*Model*"),
            *("Contrast", "Ensemble*", "EarlyExit", "Guidance", "DExperts"),
        )
    ),
    ("*", "*", "nan", "NaN", "nothing can be drawn from or ranked by NaN"),
]
"""Every pair that refuses, and why. One that refuses and is not here is an error, and the other way round."""


def refusal(decoder: str, model: str, aspect: str, table: Sequence[Any] = REFUSALS) -> str | None:
    """The words with which a cell refuses; None for one that must run."""
    model = model.removesuffix(COMPILED)
    found = [
        words
        for *patterns, words, _ in table
        if all(fnmatchcase(*pair) for pair in zip((decoder, model, aspect), patterns, strict=True))
    ]
    return found[0] if found else None


@contextmanager
def refused(words: str | None) -> Iterator[None]:
    """What is done inside refuses in these words, or, where there are none, does not refuse."""
    if words is None:
        yield
        return
    with pytest.raises((TypeError, ValueError), match=words) as caught:
        yield
    assert len(str(caught.value).split()) > 5


# ── answers ──────────────────────────────────────────────────────────────────────────────────────


def check(model: Any, prompt: Sequence[int], out: us.Output, logp_TV: Tensor, limit: int) -> None:
    """What holds for every Output, whatever made it; logp_TV is what the model says of its tokens."""
    assert out.finish_reason in get_args(FinishReason)
    assert 0 < len(out.tokens) <= limit
    assert all(type(token) is int and 0 <= token < model.vocab_size for token in out.tokens)
    eos = model.tokenizer.eos_ids if model.tokenizer else ()
    assert [token in eos for token in out.tokens] == [False] * (len(out.tokens) - 1) + [
        out.finish_reason == "eos"
    ]
    assert (out.finish_reason == "length") <= (len(out.tokens) == limit)
    want = [logp_V[token].item() for logp_V, token in zip(logp_TV, out.tokens, strict=True)]
    assert out.logps == pytest.approx(want, abs=1e-4)
    assert max(out.logps) <= 1e-6
    assert len(out.scores) == len(out.tokens)
    assert all(math.isfinite(score) for score in out.scores)
    if not isinstance(model, us.Contrast):
        assert max(out.scores) <= 1e-6
    if out.finish_reason != "stop":
        assert out.text == spelled(model, prompt, out.tokens)


def spelled(model: Any, prompt: Sequence[int], tokens: Sequence[int]) -> str:
    """The text of the tokens: what follows the prompt's, or a text of its own."""
    if model.tokenizer is None:
        return ""
    if model.is_encoder_decoder:
        return model.tokenizer.decode(tokens)
    return model.tokenizer.decode([*prompt, *tokens])[len(model.tokenizer.decode(prompt)) :]


class Cell:
    """One search on one model."""

    PROMPTS = ("fade", "b", "a cab")
    SEEDS = (3, 4, 5)

    def __init__(self, decoder: str, model: str, *rules: Any) -> None:
        self.name, self.model = decoder, speaker(model)
        self.decoder = search_for(decoder, self.model, *rules)

    @property
    def prompts(self) -> list[list[int]]:
        """Of unequal lengths, as ids."""
        if isinstance(self.model, TrueModel):
            first, second = (self.model.language.new_tokenizer().encode(it) for it in ("w0", "w1"))
            return [first, [1], second]
        return [TEXT.encode(prompt) for prompt in self.PROMPTS]

    def long(self, length: int) -> list[int]:
        """A prompt of this length."""
        first, last = ("w0 w2", "w3") if isinstance(self.model, TrueModel) else ("ab", "c")
        text = self.model.tokenizer or TEXT
        return (text.encode(first) + text.encode(last)[-1:] * length)[:length]

    def ask(self, prompts: Any = None, **options: Any) -> list[list[us.Output]]:
        """Outputs of every prompt, each of them checked."""
        prompts = self.prompts if prompts is None else prompts
        asked = {"max_new_tokens": 4, "seed": self.SEEDS[: len(prompts)], "n": 1} | options
        found = us.generate(self.model, prompts, self.decoder, **asked)
        groups = found if asked["n"] > 1 else [[out] for out in found]
        assert len(groups) == len(prompts)
        whole = [(prompt, out) for prompt, group in zip(prompts, groups, strict=True) for out in group]
        said = forced(self.model, [it for it, _ in whole], [out.tokens for _, out in whole])
        for (prompt, out), logp_TV in zip(whole, said, strict=True):
            check(self.model, prompt, out, logp_TV, self.limit(prompt, asked["max_new_tokens"]))
        for group in groups:
            self.check_group(group, asked["n"])
        return groups

    def check_group(self, group: list[us.Output], n: int) -> None:
        """What the texts of one prompt must be to each other."""
        totals = [out.total for out in group]
        if self.name in RANKING:
            assert all(math.isfinite(total) for total in totals)
        if self.name in ("Beam", "BeamSample", "ExactSearch", "MBR", "StochasticBeam"):
            assert totals == sorted(totals, reverse=True)
        if self.name == "ConstrainedBeam":
            assert all(5 in out.tokens for out in group if not out.stats["unmet"])
        if self.name not in RANKING:
            assert len(group) == n
            return
        assert 1 <= len(group) <= n
        said = [out.text if self.model.tokenizer else out.tokens for out in group]
        assert len(set(said)) == len(said), "one text twice"

    def limit(self, prompt: Sequence[int], most: int) -> int:
        """The most tokens that may come after a prompt."""
        if self.model.context is None:
            return most
        taken = 1 if self.model.is_encoder_decoder else len(prompt)
        return min(most, self.model.context - taken)


@pytest.fixture(scope="session")
def pairs() -> SimpleNamespace:
    """Everything here, for tests in several files."""
    return SimpleNamespace(**globals())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep a covering part of the grid; UNSPOOL_GRID=1 (`make test-grid`) runs all of it."""
    if os.environ.get("UNSPOOL_GRID"):
        return
    here = Path(__file__).parent
    tests: dict[str, list[Any]] = {}
    for item in items:
        if here in item.path.parents and hasattr(item, "callspec"):
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    dropped = {item for cells in tests.values() for item in set(cells) - set(covering(cells))}
    config.hook.pytest_deselected(items=[item for item in items if item in dropped])
    items[:] = [item for item in items if item not in dropped]


SHARE = 5
"""Of a grid with two dimensions, one cell in so many is kept: every row and column is tried several times."""
SMALL = 100
"""Grids with at most so many cells are kept whole."""


def covering(cells: list[Any]) -> list[Any]:
    """Cells that cover every pair of values in a grid with three dimensions, and every value in one with two."""
    params = [tuple(map(str, cell.callspec.params.values())) for cell in cells]
    width = len(params[0])
    if len(cells) <= SMALL or width == 1:
        return cells
    if width == 2:
        index = [{value: n for n, value in enumerate(dict.fromkeys(it[d] for it in params))} for d in (0, 1)]
        return [
            cell
            for cell, (a, b) in zip(cells, params, strict=True)
            if (index[0][a] + index[1][b]) % SHARE == 0
        ]
    missing = {pair for it in params for pair in combinations(enumerate(it), 2)}
    kept = []
    by_last: dict[Any, list[int]] = {}
    for number, it in enumerate(params):
        by_last.setdefault(it[1:], []).append(number)
    for numbers in by_last.values():
        best = max(numbers, key=lambda n: len(missing.intersection(combinations(enumerate(params[n]), 2))))
        kept.append(best)
        missing.difference_update(combinations(enumerate(params[best]), 2))
    for number, it in enumerate(params):
        if missing.intersection(combinations(enumerate(it), 2)):
            kept.append(number)
            missing.difference_update(combinations(enumerate(it), 2))
    return [cells[number] for number in sorted(set(kept))]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Names: of a decoder, of one that takes rules, of a model, of a kind of ours, of one with each head."""
    marked = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    values = {
        "decoder": EXAMPLES,
        "ruled_decoder": RULED,
        "model": SPEAKERS,
        "kind": SHAPES,
        "headed_model": HEADED,
    }
    for name, each in values.items():
        if name in metafunc.fixturenames and name not in marked:
            metafunc.parametrize(name, each)
