import math

import pytest
import torch

DECODER = "Sample(Temperature(0.9), TopP(0.9))"


def drawn(logits, row):
    """The one token that is left of a row."""
    assert (logits[row] > -math.inf).sum() == 1
    return int(logits[row].argmax())


def test_the_token_that_is_drawn_is_all_that_is_left(texts, engine):
    asked = texts.begin(engine.params(DECODER), engine.prompts[0], [])
    logits = engine.logits([1, 0])
    others = logits[0].clone()
    texts.draw(logits, [(1, asked)])
    assert drawn(logits, 1) == engine.said(DECODER, 1, 0, 1)[0]
    assert torch.equal(logits[0], others)


def test_a_request_of_vllms_own_is_none_of_ours(texts, engine):
    assert texts.begin(engine.params(), engine.prompts[0], []) is None


def test_rows_with_one_decoder_are_drawn_together_and_no_row_knows_of_the_others(texts, engine):
    seeds = [3, 3, 5]
    rows = [texts.begin(engine.params(DECODER, seed=seed), engine.prompts[0], []) for seed in seeds]
    assert len({id(text.decoder) for text in rows}) == 1
    logits = engine.logits([0, 0, 0])
    texts.draw(logits, list(enumerate(rows)))
    assert [drawn(logits, row) for row in range(3)] == [engine.said(DECODER, seed, 0, 1)[0] for seed in seeds]


def test_without_a_seed_torchs_decide(texts, engine):
    torch.manual_seed(0)
    first = texts.begin(engine.params(DECODER, seed=None), engine.prompts[0], [])
    second = texts.begin(engine.params(DECODER, seed=None), engine.prompts[0], [])
    torch.manual_seed(0)
    again = texts.begin(engine.params(DECODER, seed=None), engine.prompts[0], [])
    assert first.seed == again.seed != second.seed


def test_one_requests_fault_ends_that_request(texts, engine, log):
    asked = ["Sample(LogitBias({1000: 1.0}))", "Sample(LogitBias({9999: 1.0}))", "Sample(TopP(0.9))"]
    rows = [texts.begin(engine.params(one), engine.prompts[0], []) for one in asked]
    logits = engine.logits([0, 0, 0])
    texts.draw(logits, list(enumerate(rows)))
    assert drawn(logits, 1) == engine.eos
    assert [drawn(logits, row) for row in (0, 2)] == [engine.said(one, 1, 0, 1)[0] for one in asked[::2]]
    assert len(log) == 1
    assert "was ended: ValueError: LogitBias.bias holds the token ids [9999]" in log[0]


def test_of_rows_drawn_together_the_faulty_one_is_ended_and_the_dice_of_others_roll_once(texts, engine, log):
    rows = [texts.begin(engine.params(DECODER, seed=seed), engine.prompts[0], []) for seed in (1, 2)]
    logits = engine.logits([0, 0])
    logits[0] = math.nan
    texts.draw(logits, list(enumerate(rows)))
    assert drawn(logits, 0) == engine.eos
    assert drawn(logits, 1) == engine.said(DECODER, 2, 0, 1)[0]
    assert len(log) == 1


@pytest.mark.parametrize(
    ("decoder", "others", "message"),
    [
        ("Beam(2)", {}, "one token at a time"),
        ("Sample(BasisAware(0.1, rank=5000))", {}, "BasisAware.rank is 5000"),
        (
            "Sample(MinLength(3))",
            {"eos_token_id": None, "all_stop_token_ids": set()},
            "names no end-of-text token",
        ),
    ],
)
def test_what_cannot_be_prepared_ends_with_its_first_token(decoder, others, message, texts, engine, log):
    text = texts.begin(engine.params(decoder, **others), engine.prompts[0], [])
    logits = engine.logits([0])
    texts.draw(logits, [(0, text)])
    assert drawn(logits, 0) == (0 if others else engine.eos)
    assert message in log[0]


def test_a_text_that_comes_back_goes_on_where_it_was(texts, engine):
    decoder = "Sample(BasisAware(0.3))"  # rejections: how often it rolled cannot be told from its tokens
    wanted = engine.said(decoder, 1, 0, 12)
    for place in range(12):
        if place % 3 == 0:
            text = texts.begin(engine.params(decoder), engine.prompts[0], engine.tokens[0])
        assert text.follow(place, engine.tokens[0][-1] if place else -1)
        logits = engine.logits([0])
        texts.draw(logits, [(0, text)])
        engine.tokens[0].append(drawn(logits, 0))
        if place % 3 == 2:
            texts.leave(text)
    assert engine.tokens[0][: len(wanted)] == wanted
