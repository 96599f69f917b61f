"""Compiled recurrent models beside torch's, of every cell, depth, direction and context."""

import pytest
import torch
from torch import nn

from unspool.engine.engine_choice import ENGINES
from unspool.heads import HEADS
from unspool.models.rnn_lm import RNNConfig
from unspool.models.rnn_seq2seq import RNNSeq2SeqConfig

V, BOS, EOS = 31, 1, 2
LM = {"vocab_size": V, "width": 13}
PAIRS = {"vocab_size": V, "width": 12, "bos": BOS, "eos": EOS}
SHAPES = {
    "lm gru": RNNConfig(**LM, cell="gru"),
    "lm gru deep": RNNConfig(**LM, cell="gru", layers=3, tied=False),
    "lm lstm": RNNConfig(**LM, cell="lstm", tied=False),
    "lm lstm deep": RNNConfig(**LM, cell="lstm", layers=2),
    "last": RNNSeq2SeqConfig(**PAIRS, context_kind="last", cell="lstm", encoder_layers=2),
    "last, one way": RNNSeq2SeqConfig(**PAIRS, context_kind="last", bidirectional=False, decoder_layers=2),
    "mean": RNNSeq2SeqConfig(**PAIRS, context_kind="mean", tied=False),
    "additive": RNNSeq2SeqConfig(**PAIRS, decoder_layers=2),
    "additive, one way": RNNSeq2SeqConfig(**PAIRS, cell="lstm", bidirectional=False, encoder_layers=2),
    "bilinear": RNNSeq2SeqConfig(**PAIRS, context_kind="bilinear", cell="lstm", decoder_layers=3),
    "dot": RNNSeq2SeqConfig(**PAIRS, context_kind="dot", bidirectional=False),
    "sources apart": RNNSeq2SeqConfig(**PAIRS, source_vocab_size=V + 9, encoder_layers=3),
}
TEXTS = [[3, 4, 5, 6, 7] * 4, [4], [6, 3, 3], [9, 8] * 8]


def made(config):
    torch.manual_seed(0)
    model = config.build().eval()
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.3)
    return model


@pytest.fixture(params=SHAPES)
def model(request):
    return made(SHAPES[request.param])


def walked(model, engine):
    model.engine = engine
    step, state = model.start(TEXTS)
    said = [step]
    for tokens in ([1, 2, 3, 4], [4, 5, 6, 7]):
        step, state = model.step(state, torch.tensor(tokens))
        said.append(step)
    state = state.select(torch.tensor([2, 0, 0, 1, 2]))
    for _ in range(10):
        step, state = model.step(state, torch.tensor([7, 8, 9, 10, 11]))
        said.append(step)
    step, state = model.step(state.select(torch.tensor([4, 1])), torch.tensor([12, 13]))
    return [*said, step]


def test_both_engines_say_the_same_on_a_long_walk(model):
    for ours, want in zip(walked(model, "compiled"), walked(model, "torch"), strict=True):
        torch.testing.assert_close(ours.logp_NV, want.logp_NV, atol=1e-4, rtol=1e-5)
        torch.testing.assert_close(ours.hidden_ND, want.hidden_ND, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(ours.log_norm_N, want.log_norm_N, atol=1e-4, rtol=1e-5)
        assert (ours.attention is None) == (want.attention is None)
        if want.attention is not None:
            torch.testing.assert_close(ours.attention, want.attention, atol=1e-5, rtol=1e-4)
            assert torch.equal(ours.attention != 0, want.attention != 0)


def test_log_probabilities_are_equal_to_the_bit_alone_and_in_any_company_and_place(model):
    model.engine = "compiled"
    alone = [model.start([text]) for text in TEXTS]
    for order in ([0, 1, 2, 3], [3, 0, 2, 1], [1, 1, 0] * 4 + [2]):
        together, state = model.start([TEXTS[n] for n in order])
        for place, n in enumerate(order):
            assert torch.equal(together.logp_NV[place], alone[n][0].logp_NV[0])
            assert torch.equal(together.hidden_ND[place], alone[n][0].hidden_ND[0])
        stepped, _ = model.step(state, torch.tensor([5 + n for n in order]))
        for place, n in enumerate(order):
            next_alone, _ = model.step(model.start([TEXTS[n]])[1], torch.tensor([5 + n]))
            assert torch.equal(stepped.logp_NV[place], next_alone.logp_NV[0])


@pytest.mark.parametrize("name", ["lm gru deep", "lm lstm"])
def test_a_prompt_is_read_as_it_would_have_been_said(name):
    model = made(SHAPES[name])
    model.engine = "compiled"
    step, state = model.start([TEXTS[0][:1]])
    for token in TEXTS[0][1:]:
        step, state = model.step(state, torch.tensor([token]))
    assert torch.equal(step.logp_NV, model.start([TEXTS[0]])[0].logp_NV)


def test_rows_join_leave_and_repeat_and_go_on_as_if_alone(model):
    model.engine = "compiled"
    _, state = model.start(TEXTS[:2])
    _, state = model.step(state, torch.tensor([5, 6]))
    _, late = model.start(TEXTS[3:])
    state = state.join(late).select(torch.tensor([2, 0, 2, 1]))
    step, state = model.step(state, torch.tensor([7, 8, 9, 10]))
    for place, (text, said) in enumerate(((3, [7]), (0, [5, 8]), (3, [9]), (1, [6, 10]))):
        want, alone = model.start([TEXTS[text]])
        for token in said:
            want, alone = model.step(alone, torch.tensor([token]))
        assert torch.equal(step.logp_NV[place], want.logp_NV[0])


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("kind", [RNNConfig, RNNSeq2SeqConfig])
def test_every_head_says_what_it_says_of_torchs_hidden_vectors(kind, head):
    model = made(kind(**(LM if kind is RNNConfig else PAIRS), head=HEADS[head]()))
    found = []
    for engine in ENGINES:
        model.engine = engine
        step, state = model.start(TEXTS)
        found.append((step, model.step(state, torch.tensor([1, 2, 3, 4]))[0]))
    for ours, want in zip(*found, strict=True):
        torch.testing.assert_close(ours.logp_NV, want.logp_NV, atol=1e-4, rtol=1e-5)
        assert (ours.log_norm_N is None) == (want.log_norm_N is None)


def test_a_token_outside_the_vocabulary_is_refused():
    model = made(SHAPES["sources apart"])
    model.engine = "compiled"
    _, state = model.start([[V + 8]])
    with pytest.raises(IndexError, match="from 0 to 39"):
        model.start([[V + 9]])
    with pytest.raises(IndexError, match="from 0 to 30"):
        model.step(state, torch.tensor([V]))
