import pytest
import torch
from torch import nn

from unspool.models.rnn_lm import RNNConfig
from unspool.models.transformer_lm import TransformerConfig
from unspool.models.transformer_seq2seq import TransformerSeq2SeqConfig
from unspool.nn.transformer import Recomputable, recompute

LM = TransformerConfig(vocab_size=11, width=16, layers=3, heads=2, inner_width=24, dropout=0.3)
PAIRS = TransformerSeq2SeqConfig(
    vocab_size=9,
    width=8,
    heads=2,
    inner_width=8,
    encoder_layers=2,
    decoder_layers=2,
    bos=1,
    eos=2,
    dropout=0.3,
)
TOKENS = torch.tensor([[1, 4, 2, 8, 3]])


class Counted(Recomputable):
    calls = 0

    def forward(self, x):
        self.calls += 1
        return (x * x).sum()


def test_a_layer_is_passed_twice_by_hand():
    layer, x = Counted(), torch.tensor([3.0], requires_grad=True)
    recompute(nn.Sequential(layer))
    layer(x).backward()
    assert layer.calls == 2
    assert x.grad.tolist() == [6.0]
    with torch.no_grad():
        layer(x)
    assert layer.calls == 3


def gradients(config, inputs, *, again):
    torch.manual_seed(0)
    model = config.build().train()
    if again:
        recompute(model)
    torch.manual_seed(1)
    model(*inputs).pow(2).sum().backward()
    return {name: it.grad for name, it in model.named_parameters()}


@pytest.mark.parametrize(
    ("config", "inputs"), [(LM, (TOKENS,)), (PAIRS, (TOKENS, torch.tensor([5]), TOKENS))], ids=["lm", "pairs"]
)
def test_gradients_are_the_same_to_the_bit_with_dropout(config, inputs):
    plain, again = (gradients(config, inputs, again=it) for it in (False, True))
    assert plain.keys() == again.keys()
    assert all(torch.equal(plain[name], again[name]) for name in plain)


@pytest.mark.parametrize(
    ("config", "inputs"), [(LM, (TOKENS,)), (PAIRS, (TOKENS, torch.tensor([5]), TOKENS))], ids=["lm", "pairs"]
)
def test_less_is_kept_for_the_backward_pass(config, inputs):
    def kept(again):
        torch.manual_seed(0)
        model, sizes = config.build().train(), []
        if again:
            recompute(model)
        own = {it.data_ptr() for it in model.parameters()}

        def note(tensor):
            if tensor.data_ptr() not in own:
                sizes.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda it: it):
            model(*inputs)
        return sum(sizes)

    assert kept(True) < kept(False) / 2


def test_where_heads_look_may_be_learnt_all_the_same():
    def gradients(again):
        torch.manual_seed(0)
        model = LM.build().eval()
        if again:
            recompute(model)
        looks = []
        hidden = model.hidden(TOKENS, looks=looks)
        (hidden.sum() + sum(it.pow(3).sum() for it in looks)).backward()
        return [it.grad for it in model.parameters()]

    assert all(torch.equal(one, other) for one, other in zip(gradients(False), gradients(True), strict=True))


def test_a_model_without_layers_of_this_kind_is_refused():
    with pytest.raises(
        ValueError, match=r"train\.recompute is for models of Transformer blocks, and a RNNLM"
    ):
        recompute(RNNConfig(vocab_size=9, width=8).build())
