import pytest
import torch
from transformers import LogitsProcessor

import unspool as us

SIX = ["gpt2", "llama", "opt", "t5", "bart", "marian"]


@pytest.mark.parametrize("family", SIX)
@pytest.mark.parametrize("rules", [(us.TopP(0.9), us.Multinomial()), (us.BasisAware(0.1),)], ids=repr)
@pytest.mark.parametrize("samples", [{}, {"do_sample": True, "top_k": 3, "temperature": 0.3}], ids=str)
def test_a_pick_draws_what_us_generate_draws_whatever_comes_after_it(families, ask, family, rules, samples):
    model = families[family]
    said = model.generate(
        **ask(model), logits_processor=[us.hf.processor(*rules, model=model, seed=4)], **samples
    )
    ids, mask = ask(model)["input_ids"], ask(model)["attention_mask"]
    prompts = [row[kept.bool()].tolist() for row, kept in zip(ids, mask, strict=True)]
    wrapped = us.from_huggingface(model)
    outs = us.generate(wrapped, prompts, us.Sample(*rules), seed=4, max_new_tokens=8, stop_ids=[2])
    for row, out in zip(said, outs, strict=True):
        new = row[1 if wrapped.answers else 4 :].tolist()
        assert new == [*out.tokens, *[3] * (len(new) - len(out.tokens))]


def test_seeds_are_of_rows(llama, ask):
    both = llama.generate(**ask(llama), logits_processor=[draws(llama, seed=[4, 5])])
    asked = {name: it[1:] if name != "max_new_tokens" else it for name, it in ask(llama).items()}
    alone = llama.generate(**asked, logits_processor=[draws(llama, seed=5)])
    assert both[1].tolist() == alone[0].tolist()
    with pytest.raises(ValueError, match="3 seeds for 2 prompts"):
        llama.generate(**ask(llama), logits_processor=[draws(llama, seed=[1, 2, 3])])


def draws(model, **more):
    return us.hf.processor(us.Temperature(1.5), us.Multinomial(), model=model, **more)


def test_without_a_seed_torch_decides(llama, ask):
    texts = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        texts.append(llama.generate(**ask(llama), logits_processor=[draws(llama)]).tolist())
    assert texts[0] == texts[1] != texts[2]


def test_one_processor_serves_call_after_call(llama, ask):
    processor = draws(llama, seed=4)
    first, second = (llama.generate(**ask(llama), logits_processor=[processor]) for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize("family", ["llama", "bart"])
def test_answers_of_one_prompt_differ(families, ask, family):
    model = families[family]
    asked = ask(model) | {
        "do_sample": True,
        "num_return_sequences": 3,
        "logits_processor": [draws(model, seed=4)],
    }
    said = [tuple(row.tolist()) for row in model.generate(**asked)]
    assert len(set(said)) > 2
    n = us.generate(
        us.from_huggingface(model), [9, 8, 7, 2 if family == "bart" else 6], us.Sample(us.Temperature(1.5)),
        n=3, seed=4, max_new_tokens=8, stop_ids=[2],
    )  # fmt: skip
    new = 1 if family == "bart" else 4
    for row, out in zip(said[3:], n, strict=True):
        assert row[new : new + len(out.tokens)] == out.tokens


@pytest.mark.parametrize("family", ["llama", "bart"])
def test_a_row_is_the_same_alone_and_in_any_batch(families, ask, family):
    model = families[family]
    asked, processor = ask(model), draws(model, seed=4)
    rows = [1, 0, 1, 1]
    batch = {"input_ids": asked["input_ids"][rows], "attention_mask": asked["attention_mask"][rows]}
    both = model.generate(**batch, max_new_tokens=8, logits_processor=[processor])
    ids, mask = asked["input_ids"], asked["attention_mask"]
    prompts = [ids[row][mask[row].bool()].tolist() for row in rows]
    want = us.generate(
        us.from_huggingface(model), prompts, us.Sample(us.Temperature(1.5)),
        seed=4, max_new_tokens=8, stop_ids=[2],
    )  # fmt: skip
    new = 1 if family == "bart" else 4
    for row, out in zip(both, want, strict=True):
        assert tuple(row[new : new + len(out.tokens)].tolist()) == out.tokens
    assert len({out.tokens for out in want}) == 4


def test_a_pick_draws_what_custom_generate_draws_after_a_decoder_prefix(bart, ask):
    asked = ask(bart) | {"decoder_input_ids": torch.tensor([[2, 11, 12], [2, 13, 14]])}
    search = us.hf.sample(us.Temperature(1.5))
    want = bart.generate(**asked, custom_generate=search, seed=4)
    found = bart.generate(**asked, logits_processor=[draws(bart, seed=4)])
    assert torch.equal(found, want)
    other = asked | {"decoder_input_ids": torch.tensor([[2, 11, 13], [2, 13, 14]])}
    assert torch.equal(bart.generate(**other, custom_generate=search, seed=4)[1], want[1])


def test_transforms_alone_leave_the_drawing_to_generate(llama, ask):
    ours, theirs = (
        llama.generate(**ask(llama), do_sample=False, **how)
        for how in (
            {"logits_processor": [us.hf.processor(us.RepetitionPenalty(1.5), us.NoRepeatNgram(2))]},
            {"repetition_penalty": 1.5, "no_repeat_ngram_size": 2},
        )
    )
    assert torch.equal(ours, theirs)


def test_rules_follow_the_rows_of_a_beam(llama, ask):
    ours, theirs = (
        llama.generate(**ask(llama), num_beams=3, **how)
        for how in (
            {"logits_processor": [us.hf.processor(us.NoRepeatNgram(2), model=llama)]},
            {"no_repeat_ngram_size": 2},
        )
    )
    assert torch.equal(ours, theirs)


def test_what_must_look_at_the_model_asks_for_it():
    with pytest.raises(
        ValueError, match=r"BasisAware.*must look at the model: say processor\(…, model=model\)"
    ):
        us.hf.processor(us.BasisAware(0.1))
    assert isinstance(us.hf.processor(us.TopP(0.9)), LogitsProcessor)
