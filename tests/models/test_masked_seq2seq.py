import pytest
import torch

import unspool as us
from unspool.data.batch import Batch
from unspool.models.masked_models import MaskedSeq2SeqConfig

CONFIG = MaskedSeq2SeqConfig(
    vocab_size=7, width=8, encoder_layers=1, decoder_layers=2, heads=2, inner_width=8, bos=1, eos=2, longest=6
)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return CONFIG.build().eval()


def test_lengths_are_those_of_the_length_head_by_hand(model):
    with torch.no_grad():
        model.length_head.weight.zero_()
        model.length_head.bias.copy_(torch.tensor([0.0, 3.0, 1.0, 2.0, -1.0, -2.0]))
    ((first, second),) = model.lengths([[4, 5]], [6], 2)
    assert (first[0], second[0]) == (2, 4)
    expected = torch.log_softmax(model.length_head.bias.detach(), 0)
    assert first[1] == pytest.approx(float(expected[1]))
    assert [length for length, _ in model.lengths([[4, 5]], [1], 3)[0]] == [1]


def test_source_and_every_other_place_are_looked_at(model):
    base = model.fill([[4, 5]], [[7, 5, 2]])[0]
    assert not torch.allclose(base[0], model.fill([[4, 6]], [[7, 5, 2]])[0][0])
    assert not torch.allclose(base[0], model.fill([[4, 5]], [[7, 5, 6]])[0][0])
    together = model.fill([[4, 5, 6, 3], [4, 5]], [[7] * 5, [7, 5, 2]])[1]
    torch.testing.assert_close(base, together)


def test_a_target_that_is_too_long_is_said(model):
    rows = torch.tensor([[4] * 7])
    batch = Batch(rows, torch.tensor([7]), rows, torch.ones(1, 7), rows, torch.tensor([7]))
    with pytest.raises(ValueError, match=r"a target has 7 tokens, but model\.longest is 6"):
        model.read_hidden(batch)


def test_it_tells_where_the_heads_of_both_sides_look(model):
    rows, sources = torch.tensor([[3, 7, 2], [7, 2, 0]]), torch.tensor([[4, 5, 6, 2], [4, 2, 0, 0]])
    batch = Batch(rows, torch.tensor([3, 2]), rows, torch.ones(2, 3), sources, torch.tensor([4, 2]))
    hidden, (encoder, decoder) = model.attention_reading.read_attention(batch)
    assert model.attention_heads == ((1, 2), (2, 2))
    torch.testing.assert_close(hidden, model.hidden_for(batch))
    assert [it.shape for it in encoder.layers] == [(2, 2, 4, 4)]
    assert [it.shape for it in decoder.layers] == [(2, 2, 3, 3)] * 2
    assert (encoder.lengths_N.tolist(), decoder.lengths_N.tolist()) == ([4, 2], [3, 2])
    assert (decoder.layers[0][0] > 0).all()
    assert not decoder.layers[0][1, :, :, 2:].any()
    assert not encoder.layers[0][1, :, :, 2:].any()


TASK = {"kind": "task", "task": {"kind": "copy", "symbols": 4, "shortest": 2, "longest": 4}, "train": 600}


@pytest.mark.parametrize("objective", ["masked", pytest.param("masked_diffusion", marks=pytest.mark.long)])
def test_it_learns_to_copy_by_either_objective_and_is_decoded_by_either_search(tmp_path, objective):
    recipe = {
        "seed": 4,
        "data": TASK | {"valid": 40},
        "tokenizer": {"kind": "words"},
        "batches": {"tokens": 256},
        "model": {
            "kind": "masked_seq2seq",
            **{
                "width": 32,
                "heads": 2,
                "inner_width": 32,
                "encoder_layers": 1,
                "decoder_layers": 1,
                "longest": 8,
            },
        },
        "objective": {"kind": objective},
        "schedule": {"kind": "cosine", "warmup": 5},
        "train": {"updates": 400, "lr": 0.01, "validate_every": 200},
    }
    with pytest.raises(ValueError, match="needs a masking objective"):
        us.train({**recipe, "objective": {"kind": "cross_entropy"}})
    us.train(recipe, tmp_path / "run")
    model = us.load(tmp_path / "run")
    rows = [model.tokenizer.decode(ids) for ids in ([4, 5], [6, 4, 7], [5, 5, 6, 4])]
    for search in (us.MaskPredict(4, lengths=2), us.MaskedDiffusion(4)):
        outs = us.generate(model, rows, search, max_new_tokens=8)
        assert [out.text for out in outs] == rows
        assert {out.finish_reason for out in outs} == {"eos"}
