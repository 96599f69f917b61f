import pytest
import torch

from unspool.data.batch import Batch
from unspool.engine.engine_choice import ENGINES
from unspool.models.key_elimination import AttentionCost, costs, with_keys, without_keys
from unspool.models.masked_models import MaskedSeq2SeqConfig
from unspool.models.rnn_models import RNNConfig
from unspool.models.transformer_lm import TransformerConfig
from unspool.models.transformer_seq2seq import TransformerSeq2SeqConfig

TOKENS = torch.tensor([[1, 4, 2, 8, 5, 7], [3, 3, 6, 0, 9, 1]])


def make(**options):
    torch.manual_seed(0)
    shape = {"width": 12, "heads": 4, "inner_width": 16, "layers": 2, "positions": "sinusoidal", **options}
    model = TransformerConfig(vocab_size=10, **shape).build().eval()
    for it in model.parameters():  # as far from the beginning as training would bring them
        it.data = it.data + 0.5 * torch.randn_like(it)
    return model


@pytest.mark.parametrize(
    "options",
    [{}, {"qkv_bias": True}, {"kv_heads": 2, "bias": True}, {"head_width": 5}, {"norm_place": "post"}],
)
def test_there_and_back_says_the_same(options):
    model = make(**options)
    logp = model(TOKENS)
    keyless = without_keys(model)
    torch.testing.assert_close(keyless(TOKENS), logp, atol=1e-4, rtol=0)
    back = with_keys(keyless)
    torch.testing.assert_close(back(TOKENS), logp, atol=1e-4, rtol=0)
    assert back.config.kv_heads == 4


def translator(kind=TransformerSeq2SeqConfig, **options):
    torch.manual_seed(0)
    shape = {"width": 12, "heads": 4, "inner_width": 16, "encoder_layers": 2, "decoder_layers": 2}
    config = kind(vocab_size=10, bos=1, eos=2, **{**shape, "positions": "sinusoidal", **options})
    model = config.build().eval()
    for it in model.parameters():
        it.data = it.data + 0.5 * torch.randn_like(it)
    return model


@pytest.mark.parametrize("kind", [TransformerSeq2SeqConfig, MaskedSeq2SeqConfig])
def test_an_encoder_decoder_there_and_back(kind):
    model = translator(kind)
    source, lengths = TOKENS[:, :5], torch.tensor([5, 3])
    places = torch.ones(2, 6)
    batch = Batch(TOKENS, torch.tensor([6, 4]), TOKENS, places, source, lengths)

    def read(model):
        return model.hidden_for(batch) if model.infilling is None else model.read_hidden(batch)[0]

    hidden, keyless = read(model), without_keys(model)
    torch.testing.assert_close(read(keyless), hidden, atol=1e-4, rtol=0)
    torch.testing.assert_close(read(with_keys(keyless)), hidden, atol=1e-4, rtol=0)
    assert (read(with_keys(keyless, 1)) - hidden).abs().max() > 1e-3
    with pytest.raises(ValueError, match=r"rank=7 needs 4 heads of width 7.*choose a rank up to 3"):
        with_keys(keyless, 7)


@pytest.mark.parametrize("engine", ENGINES)
def test_it_is_decoded_as_it_reads(engine):
    keyless = without_keys(make(kv_heads=2))
    keyless.engine = engine
    step, state = keyless.start([TOKENS[0, :2].tolist()])
    logps = [step.logp_NV[0]]
    for token in TOKENS[0, 2:].tolist():
        step, state = keyless.step(state, torch.tensor([token]))
        logps.append(step.logp_NV[0])
    torch.testing.assert_close(torch.stack(logps), keyless(TOKENS[:1])[0, 1:], atol=1e-4, rtol=0)


def test_below_the_rank_something_is_lost_and_above_it_nothing():
    model = make()
    logp, keyless = model(TOKENS), without_keys(model)
    errors = [(with_keys(keyless, rank)(TOKENS) - logp).abs().max().item() for rank in (1, 3, 7)]
    assert errors[0] > 1e-3
    assert max(errors[1:]) < 1e-4


def test_a_matrix_of_full_rank_needs_a_wider_head():
    keyless = make(attention="keyless")
    back = with_keys(keyless, 12)
    assert back.config.head_width == 12
    torch.testing.assert_close(back(TOKENS), keyless(TOKENS), atol=1e-4, rtol=0)


def test_a_keyless_model_learns():
    model = make(attention="keyless").train()
    (-model(TOKENS).gather(2, TOKENS[..., None])).sum().backward()
    assert model.blocks[0].attention.query.weight.grad.abs().sum() > 0


def test_costs_by_hand():
    result = costs(8, 4, 10)
    assert result["query_key"] == AttentionCost(64, 128, 80)
    assert result["keyless"] == AttentionCost(64, 128, 160)  # as many weights at I = J/2
    assert costs(8, 2, 10)["query_key"].parameters < costs(8, 2, 10)["keyless"].parameters


def test_what_cannot_be_done_is_refused():
    with pytest.raises(ValueError, match="rotary positions"):
        without_keys(make(positions="rotary", head_width=4))
    with pytest.raises(ValueError, match="rotary positions"):
        make(positions="rotary", head_width=4, attention="keyless")
    with pytest.raises(ValueError, match=r"'keyles' is not a known value of TransformerConfig\.attention"):
        make(attention="keyles")
    with pytest.raises(ValueError, match="give a Transformer language model"):
        without_keys(RNNConfig(vocab_size=9, width=6, layers=1).build())
    with pytest.raises(ValueError, match="is not keyless"):
        with_keys(make())
    keyless = without_keys(make())
    with pytest.raises(ValueError, match="keyless already"):
        without_keys(keyless)
    for rank in (0, 13):
        with pytest.raises(ValueError, match=f"rank={rank}"):
            with_keys(keyless, rank)
