import pytest
import torch
from transformers import StoppingCriteria

import unspool as us

SIX = ["gpt2", "llama", "opt", "t5", "bart", "marian"]


@pytest.mark.parametrize("family", SIX)
def test_greedy_search_is_theirs(families, ask, family):
    model = families[family]
    for rules in ({}, {"repetition_penalty": 1.5, "no_repeat_ngram_size": 2}, {"min_new_tokens": 5}):
        want = model.generate(**ask(model), do_sample=False, **rules)
        assert torch.equal(model.generate(**ask(model), custom_generate=us.hf.greedy(), **rules), want)


@pytest.mark.parametrize("family", SIX)
def test_beam_search_is_theirs(families, ask, family):
    model = families[family]
    canonical = {"length_penalty": 0.0, "early_stopping": "never", "num_return_sequences": 2}
    want = model.generate(**ask(model), num_beams=3, **canonical)
    assert torch.equal(model.generate(**ask(model), custom_generate=us.hf.beam(3), n=2), want)


@pytest.mark.parametrize("family", SIX)
def test_every_search_gives_what_us_generate_gives(families, ask, family):
    model = families[family]
    wrapped = us.from_huggingface(model)
    ids, mask = ask(model)["input_ids"], ask(model)["attention_mask"]
    prompts = [row[kept.bool()].tolist() for row, kept in zip(ids, mask, strict=True)]
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
def test_answers_begin_with_decoder_input_ids(families, ask, family, begins, rules):
    model = families[family]
    start = [model.config.decoder_start_token_id] if begins else []
    prefix = torch.tensor([[*start, 11, 12, 5], [*start, 9, 11, 30]])
    asked = ask(model) | {"decoder_input_ids": prefix, **rules}
    want = model.generate(**asked, do_sample=False)
    assert torch.equal(model.generate(**asked, custom_generate=us.hf.greedy()), want)
    assert want[:, 1:4].tolist() == [[11, 12, 5], [9, 11, 30]]
    canonical = {"length_penalty": 0.0, "early_stopping": "never", "num_return_sequences": 2}
    asked = ask(model) | {"decoder_input_ids": prefix}  # their beams do not normalise again behind rules
    want = model.generate(**asked, num_beams=3, **canonical)
    assert torch.equal(model.generate(**asked, custom_generate=us.hf.beam(3), n=2), want)


@pytest.mark.parametrize("family", PAIRS)
def test_one_source_may_have_several_prefixes(families, family):
    model = families[family]
    source = {"input_ids": torch.tensor([[5, 6, 7, 2]] * 3), "attention_mask": torch.ones(3, 4).long()}
    asked = source | {"decoder_input_ids": torch.tensor([[11], [12], [30]]), "max_new_tokens": 8}
    want = model.generate(**asked, do_sample=False)
    assert torch.equal(model.generate(**asked, custom_generate=us.hf.greedy()), want)


def test_our_rules_look_at_the_prefix_of_an_answer(families, ask):
    model, rule, changed = families["marian"], us.NoRepeatNgram(2), 0
    for last in range(4, 30):
        prefix = torch.tensor([[11, last, 12, 11], [9, last, 8, 9]])
        asked = ask(model) | {"decoder_input_ids": prefix, "do_sample": False}
        theirs = model.generate(**asked, no_repeat_ngram_size=2)
        changed += not torch.equal(theirs, model.generate(**asked))
        assert torch.equal(model.generate(**asked, custom_generate=us.hf.greedy(rule)), theirs)
        processor = us.hf.processor(rule, model=model)
        assert torch.equal(model.generate(**asked, logits_processor=[processor]), theirs)
    assert changed


@pytest.mark.parametrize("family", ["llama", "bart"])
def test_inputs_embeds_are_refused_in_one_line(families, family):
    model = families[family]
    embeds = model.get_input_embeddings()(torch.tensor([[5, 6, 2]])).detach()
    asked = {"max_new_tokens": 3, "custom_generate": us.hf.greedy(), "inputs_embeds": embeds}
    with pytest.raises(ValueError, match=r"reads (sources of )?token ids: give input_ids"):
        model.generate(**asked)
    if family == "llama":
        with pytest.raises(ValueError, match="inputs_embeds is not read by a search of unspool"):
            model.generate(input_ids=torch.tensor([[5, 6, 2]]), **asked)


def test_a_mask_over_decoder_input_ids_is_refused(families, ask):
    model = families["bart"]
    prefix = torch.tensor([[1, 11], [9, 8]])
    with pytest.raises(ValueError, match="decoder_attention_mask hides tokens"):
        model.generate(
            **ask(model),
            decoder_input_ids=prefix,
            decoder_attention_mask=(prefix != 1).long(),
            custom_generate=us.hf.greedy(),
        )


def test_num_return_sequences_where_generate_allows_it(llama, ask):
    asked = ask(llama) | {"do_sample": True, "top_k": 0, "seed": 4, "custom_generate": us.hf.sample()}
    assert torch.equal(llama.generate(**asked, num_return_sequences=2), llama.generate(**asked, n=2))


@pytest.mark.parametrize("family", ["llama", "bart"])
def test_a_repeated_prompt_is_its_next_sample(families, ask, family):
    model = families[family]
    one = ask(model)["input_ids"][1:]
    how = {"max_new_tokens": 8, "custom_generate": us.hf.sample(us.Temperature(1.5)), "seed": 4}
    n = model.generate(one, attention_mask=torch.ones_like(one), n=5, **how)
    five = one.repeat(5, 1)
    assert torch.equal(model.generate(five, attention_mask=torch.ones_like(five), **how), n)
    assert len({tuple(row.tolist()) for row in n}) > 3


def test_seeds_are_of_rows_or_torchs(llama, ask):
    sample = us.hf.sample(us.Temperature(1.5))
    asked = ask(llama) | {"custom_generate": sample}
    both = llama.generate(**asked, seed=[4, 5])
    alone = {name: it[1:] if isinstance(it, torch.Tensor) else it for name, it in asked.items()}
    assert both[1].tolist()[: both.shape[1]] == llama.generate(**alone, seed=5)[0].tolist()
    texts = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        texts.append(llama.generate(**asked).tolist())
    assert texts[0] == texts[1] != texts[2]
    with pytest.raises(ValueError, match="1 seeds for 2 prompts"):
        llama.generate(**asked, seed=[4])


class After(StoppingCriteria):
    def __call__(self, input_ids, scores, **kwargs):
        return torch.tensor([len(row) >= 7 for row in input_ids])


def test_their_stopping_criteria_end_texts(llama, ask):
    out = llama.generate(
        **ask(llama),
        custom_generate=us.hf.sample(),
        seed=1,
        stopping_criteria=[After()],
        return_dict_in_generate=True,
    )
    assert out.sequences.shape == (2, 7)
    assert set(out.finish_reason) <= {"stop", "eos"}


def test_what_would_be_ignored_is_refused(llama, ask):
    with pytest.raises(ValueError, match=r"num_beams=4 is for the search of transformers.*us\.hf\.beam"):
        llama.generate(**ask(llama), custom_generate=us.hf.beam(4), num_beams=4)
    past = llama(torch.tensor([[5, 6]]), use_cache=True).past_key_values
    asked = ask(llama) | {"input_ids": torch.tensor([[5, 6, 7]]), "attention_mask": torch.ones(1, 3).long()}
    with pytest.raises(ValueError, match="past_key_values hold tokens already"):
        llama.generate(**asked, custom_generate=us.hf.greedy(), past_key_values=past)
    with pytest.raises(
        ValueError, match="stands before BasisAware"
    ):  # their rule would be drawn from, ours tested
        llama.generate(**ask(llama), custom_generate=us.hf.sample(us.BasisAware()), repetition_penalty=2.0)
