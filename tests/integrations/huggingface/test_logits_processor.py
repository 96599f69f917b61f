import gc

import pytest
import torch
from transformers import LogitsProcessor, LogitsProcessorList

import unspool as us
from unspool.tokenization.vocabulary import train_characters

SIX = ["gpt2", "llama", "opt", "t5", "bart", "marian"]


@pytest.mark.parametrize("family", SIX)
@pytest.mark.parametrize("rules", [(us.TopP(0.9), us.decode.Multinomial()), (us.BasisAware(0.1),)], ids=repr)
@pytest.mark.parametrize("samples", [{}, {"do_sample": True, "top_k": 3, "temperature": 0.3}], ids=str)
def test_a_pick_equals_us_generate(families, ask, family, rules, samples):
    model = families[family]
    outputs = model.generate(
        **ask(model), logits_processor=[us.hf.processor(*rules, model=model, seed=4)], **samples
    )
    ids, mask = ask(model)["input_ids"], ask(model)["attention_mask"]
    prompts = [row[remaining.bool()].tolist() for row, remaining in zip(ids, mask, strict=True)]
    wrapped = us.from_huggingface(model)
    outs = us.generate(wrapped, prompts, us.Sample(*rules), seed=4, max_new_tokens=8, stop_ids=[2])
    for row, out in zip(outputs, outs, strict=True):
        new = row[1 if wrapped.is_encoder_decoder else 4 :].tolist()
        assert new == [*out.tokens, *[3] * (len(new) - len(out.tokens))]


def test_seeds_per_row(llama, ask):
    both = llama.generate(**ask(llama), logits_processor=[draws(llama, seed=[4, 5])])
    arguments = {name: it[1:] if name != "max_new_tokens" else it for name, it in ask(llama).items()}
    alone = llama.generate(**arguments, logits_processor=[draws(llama, seed=5)])
    assert both[1].tolist() == alone[0].tolist()
    with pytest.raises(ValueError, match="3 seeds for 2 prompts"):
        llama.generate(**ask(llama), logits_processor=[draws(llama, seed=[1, 2, 3])])


def draws(model, **more):
    return us.hf.processor(us.Temperature(1.5), us.decode.Multinomial(), model=model, **more)


def test_without_a_seed_torch_manual_seed_is_used(llama, ask):
    texts = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        texts.append(llama.generate(**ask(llama), logits_processor=[draws(llama)]).tolist())
    assert texts[0] == texts[1] != texts[2]


def test_a_processor_can_be_reused(llama, ask):
    processor = draws(llama, seed=4)
    first, second = (llama.generate(**ask(llama), logits_processor=[processor]) for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize("family", ["llama", "bart"])
def test_samples_of_one_prompt_differ(families, ask, family):
    model = families[family]
    arguments = ask(model) | {
        "do_sample": True,
        "num_return_sequences": 3,
        "logits_processor": [draws(model, seed=4)],
    }
    outputs = [tuple(row.tolist()) for row in model.generate(**arguments)]
    assert len(set(outputs)) > 2
    n = us.generate(
        us.from_huggingface(model), [9, 8, 7, 2 if family == "bart" else 6], us.Sample(us.Temperature(1.5)),
        n=3, seed=4, max_new_tokens=8, stop_ids=[2],
    )  # fmt: skip
    new = 1 if family == "bart" else 4
    for row, out in zip(outputs[3:], n, strict=True):
        assert row[new : new + len(out.tokens)] == out.tokens


@pytest.mark.parametrize("family", ["llama", "bart"])
def test_a_row_does_not_depend_on_the_batch(families, ask, family):
    model = families[family]
    arguments, processor = ask(model), draws(model, seed=4)
    rows = [1, 0, 1, 1]
    batch = {"input_ids": arguments["input_ids"][rows], "attention_mask": arguments["attention_mask"][rows]}
    both = model.generate(**batch, max_new_tokens=8, logits_processor=[processor])
    ids, mask = arguments["input_ids"], arguments["attention_mask"]
    prompts = [ids[row][mask[row].bool()].tolist() for row in rows]
    want = us.generate(
        us.from_huggingface(model), prompts, us.Sample(us.Temperature(1.5)),
        seed=4, max_new_tokens=8, stop_ids=[2],
    )  # fmt: skip
    new = 1 if family == "bart" else 4
    for row, out in zip(both, want, strict=True):
        assert tuple(row[new : new + len(out.tokens)].tolist()) == out.tokens
    assert len({out.tokens for out in want}) == 4


def test_a_pick_equals_custom_generate_after_a_decoder_prefix(bart, ask):
    arguments = ask(bart) | {"decoder_input_ids": torch.tensor([[2, 11, 12], [2, 13, 14]])}
    search = us.hf.sample(us.Temperature(1.5))
    want = bart.generate(**arguments, custom_generate=search, seed=4)
    result = bart.generate(**arguments, logits_processor=[draws(bart, seed=4)])
    assert torch.equal(result, want)
    other = arguments | {"decoder_input_ids": torch.tensor([[2, 11, 13], [2, 13, 14]])}
    assert torch.equal(bart.generate(**other, custom_generate=search, seed=4)[1], want[1])


def test_transforms_without_a_pick_leave_sampling_to_generate(llama, ask):
    ours, expected = (
        llama.generate(**ask(llama), do_sample=False, **how)
        for how in (
            {"logits_processor": [us.hf.processor(us.RepetitionPenalty(1.5), us.NoRepeatNgram(2))]},
            {"repetition_penalty": 1.5, "no_repeat_ngram_size": 2},
        )
    )
    assert torch.equal(ours, expected)


def test_transforms_follow_reordered_beams(llama, ask):
    ours, expected = (
        llama.generate(**ask(llama), num_beams=3, **how)
        for how in (
            {"logits_processor": [us.hf.processor(us.NoRepeatNgram(2), model=llama)]},
            {"no_repeat_ngram_size": 2},
        )
    )
    assert torch.equal(ours, expected)


PROMPT = [5, 6, 7, 8, 5, 6, 9, 7, 8, 5, 6]
RULES = {
    "no n-gram twice": (us.NoRepeatNgram(2),),
    "penalty on new tokens": (us.RepetitionPenalty(3.0, prompt=False),),
    "frequency penalty": (us.FrequencyPenalty(2.0),),
    "a pick": (us.Temperature(1.5), us.decode.Multinomial()),
    "a pick with a memory": (us.Mirostat(2.0, 0.5), us.decode.Multinomial()),
}


def draft_of(llama):
    """An assistant with the same vocabulary, some of whose candidates are accepted."""
    draft = type(llama)(llama.config).eval()
    draft.load_state_dict(llama.state_dict())
    with torch.no_grad():
        draft.lm_head.weight.add_(0.05 * torch.randn_like(draft.lm_head.weight))
    return draft


def ways(llama):
    return {
        "assisted": {"assistant_model": draft_of(llama)},
        "its own assistant": {"assistant_model": llama},
        "prompt lookup": {"prompt_lookup_num_tokens": 4},
    }


def text_of(model, processor, prompt=PROMPT, **how):
    ids = torch.tensor([prompt])
    arguments = {"max_new_tokens": 24, "do_sample": False, "eos_token_id": None, "pad_token_id": 3}
    outputs = model.generate(
        ids, attention_mask=torch.ones_like(ids), logits_processor=[processor], **arguments | how
    )
    return outputs[0, len(prompt) :].tolist()


@pytest.mark.parametrize(("rules", "given"), list(zip(RULES, [True, False, True, False, True], strict=True)))
def test_assisted_and_prompt_lookup_decoding_give_the_same_text(llama, rules, given):
    def make():
        return us.hf.processor(*RULES[rules], model=llama if given else None, seed=4)

    plain = text_of(llama, make())
    one = make()
    assert plain != text_of(llama, us.hf.processor(us.Temperature(1.0)))  # the rules do something
    for way, how in ways(llama).items():
        assert text_of(llama, make(), **how) == plain, way
        assert text_of(llama, one, **how) == plain, way  # one processor for all of them


def test_grammar_with_assisted_and_prompt_lookup_decoding(llama):
    text = train_characters(["abcdefghijkl. "])
    grammar = us.Grammar(regex="(abc|fed|bad ){6}[a-f]{9}")
    want = text_of(
        llama, us.hf.processor(grammar, model=llama, tokenizer=text), max_new_tokens=40, eos_token_id=2
    )
    assert want[-1] == 2
    for way, how in ways(llama).items():
        processor = us.hf.processor(grammar, model=llama, tokenizer=text)
        assert text_of(llama, processor, max_new_tokens=40, eos_token_id=2, **how) == want, way
    spelled = us.hf.processor(us.Grammar(choices=[text.decode(want[:-1])]), model=llama, tokenizer=text)
    assert text_of(llama, spelled, max_new_tokens=40, eos_token_id=2, prompt_lookup_num_tokens=4) == want


@pytest.mark.parametrize(
    ("rules", "given", "tokens"),
    [
        ("no n-gram twice", True, 1),
        ("penalty on new tokens", False, 1),
        ("frequency penalty", True, 2),
        ("a pick", False, 24),
        ("a pick with a memory", True, 24),
    ],
)
def test_a_prompt_that_continues_the_last_text_starts_a_new_text(llama, rules, given, tokens):
    def make():
        return us.hf.processor(*RULES[rules], model=llama if given else None, seed=4)

    used = make()
    first = text_of(llama, used, max_new_tokens=tokens)
    prompts = [[*PROMPT, first[0]], [*PROMPT, *first], [*PROMPT, 30], PROMPT, PROMPT[:-1]]
    fresh = [text_of(llama, make(), prompt, max_new_tokens=12) for prompt in prompts]
    gc.disable()  # no collection is needed to forget a text
    try:
        for how in ({}, *ways(llama).values()):
            for prompt, want in zip(prompts, fresh, strict=True):
                assert text_of(llama, used, prompt, max_new_tokens=12, **how) == want, how
            assert used._calls == {}
    finally:
        gc.enable()


def test_beams_that_continue_the_last_prompt_start_a_new_text(llama):
    rule = us.RepetitionPenalty(3.0, prompt=False)
    for token in text_of(llama, us.hf.processor(rule, model=llama), num_beams=3)[:6]:
        used, fresh = (us.hf.processor(rule, model=llama) for _ in range(2))
        text_of(llama, used, max_new_tokens=1, num_beams=3)
        longer = [*PROMPT, token]
        assert text_of(llama, used, longer, num_beams=3) == text_of(llama, fresh, longer, num_beams=3)


def test_outside_generate_a_processor_follows_ids_until_reset():
    processor = us.hf.processor(us.RepetitionPenalty(2.0, prompt=False))
    scores = torch.full((1, 10), 4.0)
    assert processor(torch.tensor([[5, 6]]), scores)[0, 7] == pytest.approx(4.0)
    assert processor(torch.tensor([[5, 6, 7]]), scores)[0, 7] == pytest.approx(2.0)
    assert processor(torch.tensor([[5, 6, 8]]), scores)[0, 7] == pytest.approx(4.0)  # rolled back
    assert processor(torch.tensor([[5, 6, 8, 9]]), scores)[0, [8, 9]].tolist() == pytest.approx([2.0, 2.0])
    processor.reset()
    assert processor(torch.tensor([[5, 6, 8, 9, 7]]), scores)[0].tolist() == pytest.approx([4.0] * 10)
    complete = LogitsProcessorList([processor])
    assert complete(torch.tensor([[5, 6, 8, 9, 7, 3]]), scores)[0].tolist() == pytest.approx([4.0] * 10)


def test_rules_that_need_the_model_are_rejected_without_it():
    with pytest.raises(ValueError, match=r"BasisAware.*needs the model: use processor\(…, model=model\)"):
        us.hf.processor(us.BasisAware(0.1))
    assert isinstance(us.hf.processor(us.TopP(0.9)), LogitsProcessor)
