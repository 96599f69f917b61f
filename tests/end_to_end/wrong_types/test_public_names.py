"""Wrong types and values, thrown at every argument of every public name: it works, or says in words what is wrong.

Never an error of Python or torch that a user would have to read the source for.
"""

import asyncio
import inspect

import numpy as np
import pytest
import torch

import unspool as us
from unspool.decode.picks import PICKS, TAU_RULES
from unspool.decode.ranking import RANKING
from unspool.decode.run import GenerationOptions
from unspool.decode.search import UTILITIES
from unspool.decode.search.beam_state import BeamKeywords
from unspool.decode.transforms import TRANSFORMS
from unspool.models.encoders import ENCODERS
from unspool.tokenization.vocabulary import train_characters

TEXT = train_characters(["abcdef. "])
V = TEXT.vocab_size
NOT_CALLED = ("MODELS",)
PUBLIC = {
    name: getattr(package, name)
    for package in (us.models, us.integrations, us.decode, us)
    for name in package.__all__
    if name not in NOT_CALLED and callable(getattr(package, name))
} | {"BasisTest": us.basis.BasisTest}
"""Every public name of decoding and models, and what it is."""

SIZES = {"width": 4, "heads": 2, "inner_width": 4}
ENCODER = ENCODERS["rnn"](width=4)
SHAPES = {
    "ClassifierConfig": {"vocab_size": V, "labels": ("x", "y"), "encoder": ENCODER},
    "MaskedLMConfig": SIZES | {"vocab_size": V, "layers": 1},
    "MaskedSeq2SeqConfig": SIZES | {"vocab_size": V, "encoder_layers": 1, "decoder_layers": 1},
    "RNNConfig": {"vocab_size": V, "width": 4},
    "RNNSeq2SeqConfig": {"vocab_size": V, "width": 4},
    "TaggerConfig": {"vocab_size": V, "labels": ("x", "y"), "encoder": ENCODER},
    "TransformerConfig": SIZES
    | {"vocab_size": V, "layers": 2, "kv_heads": 2, "head_width": 2, "context": 12},
    "TransformerSeq2SeqConfig": SIZES | {"vocab_size": V, "encoder_layers": 1, "decoder_layers": 1},
    "TrigramConfig": {"vocab_size": V, "width": 4, "inner_width": 4},
}
MODELS = {
    "Classifier": "ClassifierConfig",
    "MaskedLM": "MaskedLMConfig",
    "MaskedSeq2Seq": "MaskedSeq2SeqConfig",
    "RNNLM": "RNNConfig",
    "RNNSeq2Seq": "RNNSeq2SeqConfig",
    "Tagger": "TaggerConfig",
    "TransformerLM": "TransformerConfig",
    "TransformerSeq2Seq": "TransformerSeq2SeqConfig",
    "Trigram": "TrigramConfig",
}


def small(name):
    torch.manual_seed(0)
    return PUBLIC[MODELS[name]](**SHAPES[MODELS[name]]).build(TEXT).eval()


class Rows:
    """What of a Ray dataset is asked for before it is worked on."""

    def schema(self):
        return None

    def map_batches(self, worker, **how):
        return self

    def groupby(self, column):
        return self

    def map_groups(self, worker, **how):
        return self

    def drop_columns(self, columns):
        return self


LM, PAIRS, LABELS = small("TransformerLM"), small("TransformerSeq2Seq"), small("Classifier")
MASKED = small("MaskedLM")
ADAPTED = small("TransformerLM")
us.models.add_adapters(ADAPTED, us.models.LoRA(rank=1))
CORRECT = {
    **SHAPES,
    **{
        model: {"config": PUBLIC[shape](**SHAPES[shape]), "tokenizer": TEXT}
        for model, shape in MODELS.items()
    },
    "BadWords": {"sequences": [[6]]},
    "BasisTest": {"W": torch.eye(4), "rank": 2},
    "Beam": {"width": 2},
    "BeamSample": {"width": 2},
    "ConstantTau": {"tau": 0.1},
    "ConstrainedBeam": {"width": 2, "phrases": ((6,),)},
    "Chat": {"model": LM},
    "Contrast": {"strong": LM, "weak": LM},
    "DExperts": {"base": LM, "expert": LM, "anti_expert": LM},
    "DiverseBeam": {"width": 2, "groups": 2, "penalty": 0.5},
    "EarlyExit": {"model": LM},
    "Ensemble": {"models": (LM, LM)},
    "EtaTau": {"eta": 0.1},
    "ForcedBOS": {"token": 6},
    "ForcedEOS": {"length": 2, "eos": 2},
    "FrequencyPenalty": {"penalty": 0.5},
    "Grammar": {"regex": "[abc]*"},
    "Guidance": {"model": LM},
    "Kappa": {"g": 0.5, "width": 2},
    "LogitBias": {"bias": {6: 1.0}},
    "ApproximateLoop": {"coverage": 0.7, "window": 96},
    "Loop": {"start": 0, "period": 1, "repeats": 3.0},
    "MinLength": {"n": 1, "eos": 2},
    "NoRepeatNgram": {"n": 2},
    "NucleusTau": {"p": 0.5},
    "Output": {"text": "", "tokens": (), "logps": (), "scores": (), "finish_reason": "eos", "seed": 1},
    "Piece": {"text": "", "tokens": (), "request": 0, "sample": 0, "finish_reason": None},
    "Prediction": {"label": "x", "p": 0.5, "probabilities": {"x": 0.5}},
    "PresencePenalty": {"penalty": 0.5},
    "Score": {"tokens": (4,), "logps": (-1.0,)},
    "SequenceBias": {"bias": {(6,): 1.0}},
    "Speculative": {"draft": LM},
    "StochasticBeam": {"width": 2},
    "TaggedWord": {"label": "x", "p": 0.5, "probabilities": {"x": 0.5}, "word": "w"},
    "ThinkingBudget": {"n": 2, "close": [6], "open": [7]},
    "TopK": {"k": 3},
    "add_adapters": {"model": ADAPTED, "lora": us.models.LoRA()},
    "from_huggingface": {"model": us.to_huggingface(LM)},
    "find_approximate_loop": {"text": "a b c " * 20},
    "find_loop": {"tokens": [1, 1, 1, 1, 1, 1]},
    "generate_dataset": {"ds": Rows(), "model": "bible"},
    "agenerate": {"model": LM, "prompts": "ab", "max_new_tokens": 3, "seed": 1},
    "generate": {"model": LM, "prompts": "ab", "max_new_tokens": 3, "seed": 1},
    "load": {"name": "dates"},
    "load_adapters": {"model": LM, "path": "none.safetensors"},
    "merge_adapters": {"model": LM},
    "parse": {"spec": "Greedy"},
    "predict": {"model": LABELS, "texts": "ab"},
    "save": {"model": LM, "folder": "saved"},
    "save_adapters": {"model": ADAPTED, "path": "adapters.safetensors"},
    "score": {"model": LM, "prompts": "ab", "texts": "c"},
    "stream": {"model": LM, "prompts": "ab", "max_new_tokens": 3, "seed": 1},
    "survivors": {"rule": us.TopP(0.9), "logp": torch.zeros(V)},
    "to_huggingface": {"model": LM},
    "train": {"recipe": {}, "out": None},
}
"""What a call needs that is right; names that are not here need nothing."""

ENDLESS = {
    ("agenerate", "n"): "as many texts",
    ("generate", "n"): "as many texts",
    ("stream", "n"): "as many texts",
    ("MBR", "samples"): "as many texts",
    ("ChrF", "char_order"): "as many kinds of n-grams",
    ("ChrF", "word_order"): "as many kinds of n-grams",
}
"""Where a huge number is no mistake, only more work than any test has time for."""

OPTIONS = {name: tuple(GenerationOptions.__annotations__) for name in ("agenerate", "generate", "stream")}
"""Keywords that a TypedDict lists; the other public names with such keywords are beams."""


def arguments(name):
    """The arguments of a public name; a star is the place for any number of them."""
    for parameter in inspect.signature(PUBLIC[name]).parameters.values():
        if parameter.annotation == "bool":
            continue  # any object is true or false
        if parameter.kind is parameter.VAR_KEYWORD:
            yield from OPTIONS.get(name, BeamKeywords.__annotations__)
        else:
            yield "*" if parameter.kind is parameter.VAR_POSITIONAL else parameter.name


def call(name, argument, value):
    """The public name with one argument wrong, and then what was made of it in use."""
    thing, correct = PUBLIC[name], CORRECT.get(name, {})
    if argument != "*":
        return use(name, thing(**correct | {argument: value}))
    first = inspect.signature(thing).parameters.values()
    ordered = [correct[p.name] for p in first if p.kind is p.POSITIONAL_OR_KEYWORD and p.name in correct]
    return use(name, thing(*ordered, value))


def use(name, made):
    """Work with what a public name gave: what it took without a word must do no harm later."""
    if name in ("MaskPredict", "MaskedDiffusion"):
        decode(MASKED, made)
    elif hasattr(made, "streams"):
        decode(LM, made)
    elif name == "Grammar":  # it asks for a model's tokenizer first
        decode(LM, us.Sample(made))
    elif name in TRANSFORMS:
        us.survivors(made, torch.arange(V).float())
        decode(LM, us.Sample(made))
    elif name in PICKS:
        decode(LM, us.Sample(made))
    elif name in TAU_RULES:
        decode(LM, us.Sample(us.BasisAware(made)))
    elif name in UTILITIES:
        decode(LM, us.MBR(2, utility=made))
    elif name == "Coverage":
        decode(PAIRS, us.Beam(2, coverage=made))
    elif name in RANKING:
        where = "stop" if name in ("FirstFull", "Heuristic", "Proved") else "length_penalty"
        decode(LM, us.Beam(2, **{where: made}))
    elif name in ("Contrast", "DExperts", "EarlyExit", "Ensemble", "Guidance"):
        decode(made, us.Greedy())
    elif name in SHAPES and all(size < 100 for size in vars(made).values() if isinstance(size, int)):
        use(type(built := made.build(TEXT)).__name__, built)
    elif name in ("Classifier", "Tagger"):
        us.predict(made, "ab")
    elif name in ("MaskedLM", "MaskedSeq2Seq"):
        decode(made, us.MaskPredict(2, lengths=2))
    elif name in MODELS:
        made.start([[0]])
    elif name == "stream":
        list(made)
    elif name == "agenerate":
        asyncio.run(made)
    elif name == "BasisTest":
        made.step(np.full(4, 0.25)).accepts(1, tau=0.5)


def decode(model, decoder):
    us.generate(model, [4, 5], decoder, max_new_tokens=3, seed=1)


def test_every_public_name_is_called_right():
    for name in PUBLIC:
        needed = [
            p.name
            for p in inspect.signature(PUBLIC[name]).parameters.values()
            if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        ]
        assert set(needed) <= set(CORRECT.get(name, {})), name


@pytest.mark.filterwarnings("ignore:An exact basis-aware test", "ignore:Initializing zero-element")
@pytest.mark.parametrize(
    ("name", "argument"), [(name, argument) for name in PUBLIC for argument in arguments(name)]
)
def test_wrong_types_are_refused_with_a_message(name, argument, complaints, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    huge = (name, argument) not in ENDLESS
    assert complaints(lambda value: call(name, argument, value), huge=huge) == {}
