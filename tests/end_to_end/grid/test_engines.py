"""Torch's steps and compiled ones write the same texts, whatever the model's shape and the search are."""

import copy
from functools import cache

import pytest

import unspool as us
from unspool.heads import CappedHeadConfig

TRANSFORMER = {"heads": 4, "kv_heads": 2, "head_width": 4}
VASWANI = {
    "norm": "layer",
    "norm_place": "post",
    "positions": "sinusoidal",
    "activation": "relu",
    "bias": True,
    "tied": False,
}
SANDWICH = {
    "norm_place": "both",
    "positions": "learned",
    "context": 40,
    "activation": "gelu",
    "qkv_bias": True,
}
BART = VASWANI | {
    "positions": "sinusoidal_halves",
    "activation": "silu",
    "embed_norm": True,
    "embed_scale": 1.0,
}
GEMMA = {
    "norm_place": "both",
    "activation": "geglu",
    "embed_scale": 3.0,
    "layers": 2,
    "window": 5,
    "windowed_layers": (0,),
}
GEMMA_2 = GEMMA | {"attention_cap": 2.0, "head": CappedHeadConfig(4.0)}
GEMMA_3 = GEMMA | {"qk_norm": "head", "window_rotary_base": 10.0, "rotary_factor": 8.0}
OLMO_2 = {"qk_norm": "whole", "norm_place": "after"}
SMOLLM_3 = {"layers": 3, "unrotated_layers": (1,), "rotary_width": 2}
KEYLESS = {"attention": "keyless", "positions": "sinusoidal"}
SHAPES = {
    "llama": ("transformer_lm", TRANSFORMER | {"layers": 2}),
    "vaswani's decoder": ("transformer_lm", VASWANI),
    "sandwich": ("transformer_lm", SANDWICH | {"activation": "gelu_tanh"}),
    "gemma 2": ("transformer_lm", GEMMA_2),
    "gemma 3": ("transformer_lm", GEMMA_3),
    "olmo 2": ("transformer_lm", OLMO_2),
    "smollm 3, partly turned": ("transformer_lm", SMOLLM_3),
    "keyless": ("transformer_lm", KEYLESS | {"layers": 2, "heads": 4, "kv_heads": 2, "qkv_bias": True}),
    "llama with a source": ("transformer_seq2seq", TRANSFORMER | {"decoder_layers": 2}),
    "vaswani": ("transformer_seq2seq", VASWANI | {"encoder_layers": 2}),
    "bart": ("transformer_seq2seq", BART | {"decoder_layers": 2}),
    "sandwich with a source": ("transformer_seq2seq", SANDWICH),
    "olmo 2 with a source": ("transformer_seq2seq", OLMO_2 | {"attention_cap": 2.0, "activation": "geglu"}),
    "t5": ("transformer_seq2seq", {"positions": "relative", "relative_buckets": 8, "relative_distance": 9}),
    "keyless with a source": ("transformer_seq2seq", VASWANI | KEYLESS | {"decoder_layers": 2}),
    "bag": ("transformer_seq2seq", {"positions": "none"}),
}
RULES = {
    "scaled and cut": (us.Temperature(1.3), us.TopK(6), us.TopP(0.9)),
    "by the peak": (us.MinP(0.1),),
    "by entropy": (us.Eta(0.05), us.Typical(0.9)),
    "by logits": (us.TopNSigma(1.5), us.RepetitionPenalty(1.3)),
    "with a memory": (us.Mirostat(2.0), us.DRY(allowed=1), us.FrequencyPenalty(0.5)),
    "forbidden": (us.NoRepeatNgram(2), us.MinLength(3, 2), us.LogitBias({6: 2.0})),
    "basis-aware": (us.TopP(0.95), us.BasisAware(0.3)),
}
RANKED = {
    "coverage": us.Beam(4, coverage=us.decode.Coverage(0.3), length_penalty=us.GNMT(0.6)),
    "length": us.Beam(3, length_penalty=us.Length(1.0), stop=us.decode.Heuristic()),
}
ONE_OF_EACH = ["llama", "keyless", "vaswani"]
ASKED = {"max_new_tokens": 7, "seed": (3, 4, 5)}


def with_engine(pairs, model, engine):
    """A copy, all parts of which take this engine, where they have it."""
    model = copy.deepcopy(model)
    for part in pairs.parts_of(model):
        if part.built:
            part.engine = engine
    return model


@pytest.fixture(scope="module")
def both(pairs):
    """torch's and the compiled model of a name."""

    @cache
    def found(name):
        kind, options = SHAPES[name]
        model = pairs.built(kind, **options)
        return [with_engine(pairs, model, engine) for engine in ("torch", "compiled")]

    return found


def same(models, prompts, decoder, **asked):
    """What the compiled model writes, which is what torch's does."""
    want, found = (us.generate(model, prompts, decoder, **ASKED | asked) for model in models)
    for theirs, ours in zip(flat(want), flat(found), strict=True):
        assert ours.tokens == theirs.tokens
        assert ours.finish_reason == theirs.finish_reason
        assert ours.logps == pytest.approx(theirs.logps, abs=1e-4)
        assert ours.total == pytest.approx(theirs.total, abs=1e-3)
    return found


def flat(outputs):
    return [it for each in outputs for it in (each if isinstance(each, list) else [each])]


@pytest.mark.parametrize("name", SHAPES)
def test_every_search_on_every_shape(pairs, both, decoder, name):
    kind, _ = SHAPES[name]
    models = both(name)
    prompts = [pairs.TEXT.encode(prompt) for prompt in pairs.Cell.PROMPTS]
    with pairs.refused(pairs.refusal(decoder, kind, "plain")):
        same(models, prompts, pairs.search_for(decoder, models[0]), n=2)


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_every_family_of_transforms(pairs, both, name, rules):
    prompts = [pairs.TEXT.encode(prompt) for prompt in pairs.Cell.PROMPTS]
    same(both(name), prompts, us.Sample(*RULES[rules]), n=3)
    if rules != "basis-aware":
        same(both(name), prompts, us.Beam(3, *RULES[rules]), n=2)


@pytest.mark.parametrize("ranking", RANKED)
@pytest.mark.parametrize("name", ["vaswani", "keyless with a source", "bag"])
def test_every_ranking_that_looks_at_attention(pairs, both, name, ranking):
    prompts = [pairs.TEXT.encode(prompt) for prompt in pairs.Cell.PROMPTS]
    same(both(name), prompts, RANKED[ranking], n=2)


@pytest.mark.parametrize("name", ["Contrast", "Contrast of encoder–decoders", "Ensemble", "EarlyExit"])
@pytest.mark.parametrize("decoder", [us.Greedy(), us.Sample(us.TopP(0.9)), us.Beam(3)], ids=repr)
def test_models_made_of_models(pairs, decoder, name):
    models = [with_engine(pairs, pairs.speaker(name), engine) for engine in ("torch", "compiled")]
    prompts = [pairs.TEXT.encode(prompt) for prompt in pairs.Cell.PROMPTS]
    same(models, prompts, decoder, n=2)


@pytest.mark.parametrize(
    "decoder", [us.Greedy(), us.Sample(), us.Beam(3), us.DiverseBeam(4, 2, 0.5)], ids=repr
)
@pytest.mark.parametrize("name", SHAPES)
def test_log_probabilities_are_the_same_bits_alone_in_any_batch_and_streamed(pairs, both, name, decoder):
    model = both(name)[1]
    prompts = [pairs.TEXT.encode(prompt) for prompt in ("fade", "b", "a cab", "decade, a face", "ad")]
    seeds = (3, 4, 5, 6, 7)
    together = us.generate(model, prompts, decoder, max_new_tokens=7, seed=seeds)
    backwards = us.generate(model, prompts[::-1], decoder, max_new_tokens=7, seed=seeds[::-1])[::-1]
    for n, prompt in enumerate(prompts):
        alone = us.generate(model, prompt, decoder, max_new_tokens=7, seed=seeds[n])
        assert together[n].tokens == backwards[n].tokens == alone.tokens
        assert together[n].logps == backwards[n].logps == alone.logps  # no approx: bits
        assert together[n].scores == backwards[n].scores == alone.scores
    pieces = us.stream(model, prompts[0], decoder, max_new_tokens=7, seed=seeds[0])
    assert sum((piece.tokens for piece in pieces), ()) == together[0].tokens
