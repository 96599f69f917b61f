from types import SimpleNamespace

import pytest
import torch
from transformers import StoppingCriteria

import unspool as us
from unspool.decode.hypothesis import Hypothesis
from unspool.integrations.huggingface.custom_generate import make_generate_output

SIX = ["gpt2", "llama", "opt", "t5", "bart", "marian"]


@pytest.mark.parametrize("family", SIX)
def test_greedy_search_equals_generate(families, ask, family):
    model = families[family]
    for rules in ({}, {"repetition_penalty": 1.5, "no_repeat_ngram_size": 2}, {"min_new_tokens": 5}):
        want = model.generate(**ask(model), do_sample=False, **rules)
        assert torch.equal(model.generate(**ask(model), custom_generate=us.hf.greedy(), **rules), want)


@pytest.mark.parametrize("family", SIX)
def test_beam_search_equals_generate(families, ask, family):
    model = families[family]
    canonical = {"length_penalty": 0.0, "early_stopping": "never", "num_return_sequences": 2}
    want = model.generate(**ask(model), num_beams=3, **canonical)
    assert torch.equal(model.generate(**ask(model), custom_generate=us.hf.beam(3), n=2), want)


@pytest.mark.parametrize("family", SIX)
def test_every_decoder_equals_us_generate(families, ask, family):
    model = families[family]
    wrapped = us.from_huggingface(model)
    ids, mask = ask(model)["input_ids"], ask(model)["attention_mask"]
    prompts = [row[remaining.bool()].tolist() for row, remaining in zip(ids, mask, strict=True)]
    for search in (
        us.Sample(us.TopP(0.9)),
        us.BeamSample(3),
        us.ContrastiveSearch(3, 0.6),
        us.DiverseBeam(4, 2, 0.5),
        us.ConstrainedBeam(3, ((7,),)),
        us.StochasticBeam(3),
        us.Speculative(wrapped, length=2),
        us.MBR(3),
    ):
        out = model.generate(
            **ask(model), custom_generate=us.hf.decoder(search), seed=4, return_dict_in_generate=True
        )
        want = us.generate(wrapped, prompts, search, seed=4, max_new_tokens=8, stop_ids=[2])
        new = 1 if wrapped.is_encoder_decoder else 4
        for row, logps, scores, each in zip(out.sequences, out.logps, out.scores, want, strict=True):
            assert tuple(row[new : new + len(each.tokens)].tolist()) == each.tokens, search
            assert logps == pytest.approx(each.logps, abs=1e-5)
            assert scores == pytest.approx(each.scores, abs=1e-5)


PAIRS = ["t5", "bart", "marian"]


@pytest.mark.parametrize("family", PAIRS)
@pytest.mark.parametrize("begins", [False, True], ids=["without start token", "with start token"])
@pytest.mark.parametrize("rules", [{}, {"repetition_penalty": 1.5, "no_repeat_ngram_size": 2}], ids=str)
def test_decoder_input_ids_are_the_target_prefix(families, ask, family, begins, rules):
    model = families[family]
    start = [model.config.decoder_start_token_id] if begins else []
    prefix = torch.tensor([[*start, 11, 12, 5], [*start, 9, 11, 30]])
    arguments = ask(model) | {"decoder_input_ids": prefix, **rules}
    want = model.generate(**arguments, do_sample=False)
    assert torch.equal(model.generate(**arguments, custom_generate=us.hf.greedy()), want)
    assert want[:, 1:4].tolist() == [[11, 12, 5], [9, 11, 30]]
    canonical = {"length_penalty": 0.0, "early_stopping": "never", "num_return_sequences": 2}
    arguments = ask(model) | {"decoder_input_ids": prefix}  # their beams do not normalise again behind rules
    want = model.generate(**arguments, num_beams=3, **canonical)
    assert torch.equal(model.generate(**arguments, custom_generate=us.hf.beam(3), n=2), want)


@pytest.mark.parametrize("family", PAIRS)
def test_one_source_with_several_target_prefixes(families, family):
    model = families[family]
    source = {"input_ids": torch.tensor([[5, 6, 7, 2]] * 3), "attention_mask": torch.ones(3, 4).long()}
    arguments = source | {"decoder_input_ids": torch.tensor([[11], [12], [30]]), "max_new_tokens": 8}
    want = model.generate(**arguments, do_sample=False)
    assert torch.equal(model.generate(**arguments, custom_generate=us.hf.greedy()), want)


def test_transforms_see_the_target_prefix(families, ask):
    model, rule, changed = families["marian"], us.NoRepeatNgram(2), 0
    for last in range(4, 30):
        prefix = torch.tensor([[11, last, 12, 11], [9, last, 8, 9]])
        arguments = ask(model) | {"decoder_input_ids": prefix, "do_sample": False}
        expected = model.generate(**arguments, no_repeat_ngram_size=2)
        changed += not torch.equal(expected, model.generate(**arguments))
        assert torch.equal(model.generate(**arguments, custom_generate=us.hf.greedy(rule)), expected)
        processor = us.hf.processor(rule, model=model)
        assert torch.equal(model.generate(**arguments, logits_processor=[processor]), expected)
    assert changed


@pytest.mark.parametrize("family", ["llama", "bart"])
def test_inputs_embeds_are_rejected(families, family):
    model = families[family]
    embeds = model.get_input_embeddings()(torch.tensor([[5, 6, 2]])).detach()
    arguments = {"max_new_tokens": 3, "custom_generate": us.hf.greedy(), "inputs_embeds": embeds}
    with pytest.raises(ValueError, match=r"give input_ids"):
        model.generate(**arguments)
    if family == "llama":
        with pytest.raises(ValueError, match="inputs_embeds is not supported"):
            model.generate(input_ids=torch.tensor([[5, 6, 2]]), **arguments)


def test_a_mask_over_decoder_input_ids_is_rejected(families, ask):
    model = families["bart"]
    prefix = torch.tensor([[1, 11], [9, 8]])
    with pytest.raises(ValueError, match="decoder_attention_mask must not mask"):
        model.generate(
            **ask(model),
            decoder_input_ids=prefix,
            decoder_attention_mask=(prefix != 1).long(),
            custom_generate=us.hf.greedy(),
        )


def test_num_return_sequences(llama, ask):
    arguments = ask(llama) | {"do_sample": True, "top_k": 0, "seed": 4, "custom_generate": us.hf.sample()}
    assert torch.equal(llama.generate(**arguments, num_return_sequences=2), llama.generate(**arguments, n=2))


@pytest.mark.parametrize("family", ["llama", "bart"])
def test_a_repeated_prompt_is_the_next_sample(families, ask, family):
    model = families[family]
    one = ask(model)["input_ids"][1:]
    how = {"max_new_tokens": 8, "custom_generate": us.hf.sample(us.Temperature(1.5)), "seed": 4}
    n = model.generate(one, attention_mask=torch.ones_like(one), n=5, **how)
    five = one.repeat(5, 1)
    assert torch.equal(model.generate(five, attention_mask=torch.ones_like(five), **how), n)
    assert len({tuple(row.tolist()) for row in n}) > 3


def test_seeds_per_row_or_from_torch(llama, ask):
    sample = us.hf.sample(us.Temperature(1.5))
    arguments = ask(llama) | {"custom_generate": sample}
    both = llama.generate(**arguments, seed=[4, 5])
    alone = {name: it[1:] if isinstance(it, torch.Tensor) else it for name, it in arguments.items()}
    assert both[1].tolist()[: both.shape[1]] == llama.generate(**alone, seed=5)[0].tolist()
    texts = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        texts.append(llama.generate(**arguments).tolist())
    assert texts[0] == texts[1] != texts[2]
    with pytest.raises(ValueError, match="1 seeds for 2 prompts"):
        llama.generate(**arguments, seed=[4])


class After(StoppingCriteria):
    def __call__(self, input_ids, scores, **kwargs):
        return torch.tensor([len(row) >= 7 for row in input_ids])


def test_stopping_criteria_end_texts(llama, ask):
    out = llama.generate(
        **ask(llama),
        custom_generate=us.hf.sample(),
        seed=1,
        stopping_criteria=[After()],
        return_dict_in_generate=True,
    )
    assert out.sequences.shape == (2, 7)
    assert set(out.finish_reason) <= {"stop", "eos"}


def test_unsupported_generate_arguments_are_rejected(llama, ask):
    with pytest.raises(ValueError, match=r"num_beams=4 conflicts with custom_generate.*us\.hf\.beam"):
        llama.generate(**ask(llama), custom_generate=us.hf.beam(4), num_beams=4)
    past = llama(torch.tensor([[5, 6]]), use_cache=True).past_key_values
    arguments = ask(llama) | {
        "input_ids": torch.tensor([[5, 6, 7]]),
        "attention_mask": torch.ones(1, 3).long(),
    }
    with pytest.raises(ValueError, match="past_key_values must be empty"):
        llama.generate(**arguments, custom_generate=us.hf.greedy(), past_key_values=past)
    with pytest.raises(
        ValueError, match="before BasisAware changes"
    ):  # their rule would be drawn from, ours tested
        llama.generate(**ask(llama), custom_generate=us.hf.sample(us.BasisAware()), repetition_penalty=2.0)


GIVEN = torch.tensor([[0, 5], [6, 7]])


def config(**more):
    return SimpleNamespace(**{"pad_token_id": 0, "eos_token_id": 2, "return_dict_in_generate": False} | more)


def path(request, tokens, **more):
    return Hypothesis(request, 0, (), tokens, (-1.0,) * len(tokens), (-0.5,) * len(tokens), "eos", **more)


def test_shorter_texts_are_right_padded():
    groups = [[path(0, (8, 9, 2))], [path(1, (2,))]]
    assert make_generate_output(groups, GIVEN, 1, config()).tolist() == [[0, 5, 8, 9, 2], [6, 7, 2, 0, 0]]
    ends = config(pad_token_id=None, eos_token_id=[3, 2])
    assert make_generate_output(groups, GIVEN, 1, ends).tolist()[1] == [6, 7, 2, 3, 3]


def test_output_scores():
    groups = [[path(0, (8, 2)), path(0, (9,), total=-7.0)]]
    out = make_generate_output(groups, GIVEN[:1], 2, config(return_dict_in_generate=True))
    assert out.sequences_scores.tolist() == [-2.0, -7.0]
    assert out.logps == ((-1.0, -1.0), (-1.0,))
    assert out.scores == ((-0.5, -0.5), (-0.5,))
    assert out.finish_reason == ("eos", "eos")


def test_fewer_texts_than_n_are_an_error():
    with pytest.raises(ValueError, match=r"only 1 different texts for prompt 0, not 3"):
        make_generate_output([[path(0, (2,))]], GIVEN[:1], 3, config())


class Streamer:
    def __init__(self):
        self.put_in, self.ended = [], False

    def put(self, value):
        self.put_in.append(value.tolist())

    def end(self):
        self.ended = True


@pytest.mark.parametrize("search", [us.Sample(us.TopP(0.9)), us.Greedy(), us.Beam(3)], ids=repr)
@pytest.mark.parametrize("family", ["llama", "bart"])
def test_a_streamer_gets_the_prompt_and_every_token(families, family, search):
    model, streamer = families[family], Streamer()
    ids = torch.tensor([[9, 8, 7, 2]])
    arguments = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 6, "seed": 4}
    outputs = model.generate(ids, custom_generate=us.hf.decoder(search), stream_to=streamer, **arguments)
    first, *tokens = streamer.put_in
    new = 1 if family == "bart" else 4
    assert first == outputs[:, :new].tolist()
    assert [token for (token,) in tokens] == outputs[0, new:].tolist()
    assert streamer.ended


def test_streaming_supports_one_text(llama, ask):
    with pytest.raises(ValueError, match="streaming supports one text"):
        llama.generate(**ask(llama), custom_generate=us.hf.greedy(), stream_to=Streamer())
