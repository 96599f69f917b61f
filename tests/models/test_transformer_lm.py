import itertools

import pytest
import torch

from unspool.data.batch import Batch
from unspool.heads import SoftmaxHeadConfig
from unspool.models.transformer_lm import TransformerConfig, TransformerLM

SHAPE = {
    "vocab_size": 11,
    "width": 16,
    "layers": 2,
    "heads": 4,
    "kv_heads": 2,
    "head_width": 4,
    "inner_width": 24,
    "context": 32,
}
KINDS = {
    "llama": {},
    "gpt2": {"norm": "layer", "positions": "learned", "activation": "gelu_tanh", "bias": True, "kv_heads": 4},
    "post": {
        "norm": "layer",
        "norm_place": "post",
        "positions": "sinusoidal",
        "activation": "relu",
        "tied": False,
    },
    "both": {"norm_place": "both", "qkv_bias": True, "tied": False, "activation": "gelu"},
}


@pytest.fixture(params=KINDS)
def model(request):
    torch.manual_seed(0)
    return TransformerLM(TransformerConfig(**{**SHAPE, **KINDS[request.param]})).eval()


def rows(count, length, seed=0):
    return torch.randint(
        0, SHAPE["vocab_size"], (count, length), generator=torch.Generator().manual_seed(seed)
    )


def test_step_by_step_equals_one_parallel_pass(model):
    tokens = rows(3, 12)
    with torch.no_grad():
        want = model(tokens)
    step, state = model.start([row[:5].tolist() for row in tokens])
    torch.testing.assert_close(step.logp_NV, want[:, 4], atol=1e-5, rtol=1e-5)
    for t in range(5, 12):
        step, state = model.step(state, tokens[:, t])
        torch.testing.assert_close(step.logp_NV, want[:, t], atol=1e-5, rtol=1e-5)


def test_rows_of_any_length_are_read_as_if_alone(model):
    tokens, lengths = rows(4, 14), [9, 1, 6, 9]
    with torch.no_grad():
        want = model(tokens)
    step, state = model.start([tokens[i, :n].tolist() for i, n in enumerate(lengths)])
    for t in range(4):
        for i, n in enumerate(lengths):
            torch.testing.assert_close(step.logp_NV[i], want[i, n - 1 + t], atol=1e-5, rtol=1e-5)
        step, state = model.step(state, torch.stack([tokens[i, n + t] for i, n in enumerate(lengths)]))


def test_selected_rows_go_on_from_where_they_were(model):
    tokens = rows(2, 10)
    with torch.no_grad():
        want = model(tokens)
    _, state = model.start([tokens[0, :6].tolist(), tokens[1, :3].tolist()])
    state = state.select(torch.tensor([1, 0, 1]))
    step, state = model.step(state, torch.stack([tokens[1, 3], tokens[0, 6], tokens[1, 3]]))
    for row, place in ((0, (1, 3)), (1, (0, 6)), (2, (1, 3))):
        torch.testing.assert_close(step.logp_NV[row], want[place], atol=1e-5, rtol=1e-5)


def test_extend_and_rewind_equal_single_steps(model):
    tokens = rows(2, 10)
    with torch.no_grad():
        want = model(tokens)
    _, state = model.start([row[:4].tolist() for row in tokens])
    wrong, state = model.extend(state, (tokens[:, 4:7] + 1) % SHAPE["vocab_size"])
    assert wrong.logp_NV.shape == (2 * 3, SHAPE["vocab_size"])
    step, state = model.extend(model.rewind(state, 3), tokens[:, 4:9])
    torch.testing.assert_close(step.logp_NV.view(2, 5, -1), want[:, 4:9], atol=1e-5, rtol=1e-5)


def test_future_tokens_never_change_the_past(model):
    tokens = rows(1, 10)
    changed = tokens.clone()
    changed[:, 6:] = (changed[:, 6:] + 1) % SHAPE["vocab_size"]
    with torch.no_grad():
        torch.testing.assert_close(model(tokens)[:, :6], model(changed)[:, :6])


def test_probabilities_of_all_sequences_sum_to_one(model):
    # token 0 ends a sequence: the ended ones and the unfinished rest share all the mass
    V, longest = 4, 3
    model.head.forward = (lambda whole: lambda hidden: whole(hidden)[..., :V].log_softmax(-1))(
        model.head.forward
    )
    total = 0.0
    with torch.no_grad():
        for length in range(1, longest + 1):
            for body in itertools.product(range(1, V), repeat=length - 1):
                ends = [0] if length < longest else range(V)
                for end in ends:
                    sequence = torch.tensor([[5, *body, end]])
                    logp = model(sequence[:, :-1]).gather(2, sequence[:, 1:, None]).sum()
                    total += logp.exp().item()
    assert total == pytest.approx(1.0, abs=1e-5)


def test_names_of_the_weights():
    model = TransformerLM(TransformerConfig(**{**SHAPE, "layers": 1}))
    assert {name: tuple(p.shape) for name, p in model.named_parameters()} == {
        "embed.weight": (11, 16),
        "blocks.0.attention.qkv.weight": (32, 16),
        "blocks.0.attention.out.weight": (16, 16),
        "blocks.0.attention_norm.weight": (16,),
        "blocks.0.feed_forward.up.weight": (48, 16),
        "blocks.0.feed_forward.down.weight": (16, 24),
        "blocks.0.feed_forward_norm.weight": (16,),
        "norm.weight": (16,),
    }


@pytest.mark.parametrize(
    ("key", "value"), [("norm", "batch"), ("positions", "x"), ("activation", "x"), ("layers", 0)]
)
def test_unknown_choices_are_named(key, value):
    with pytest.raises(ValueError, match=key):
        TransformerConfig(**{**SHAPE, key: value})


def test_depths_end_in_what_the_head_reads_before_its_norm(model):
    tokens = rows(2, 5)
    with torch.no_grad():
        depths = list(model.depths(tokens))
        torch.testing.assert_close(model.norm(depths[-1]), model.hidden(tokens))
    assert len(depths) == model.layers + 1 == 3


def test_read_is_start_with_the_prompts_hidden_vectors(model):
    tokens, lengths = rows(3, 6), [6, 2, 4]
    prompts = [row[:n].tolist() for row, n in zip(tokens, lengths, strict=True)]
    hidden_MD, step, state = model.read_all(prompts)
    want, _ = model.start(prompts)
    torch.testing.assert_close(step.logp_NV, want.logp_NV)
    torch.testing.assert_close(step.hidden_ND, hidden_MD[[5, 7, 11]])
    assert state.length == 6
    with torch.no_grad():
        alone = model.hidden(tokens)
    for row, hidden_TD in enumerate(hidden_MD.split(lengths)):
        torch.testing.assert_close(hidden_TD, alone[row, : lengths[row]], atol=1e-5, rtol=1e-5)


def test_a_model_that_has_decoded_can_be_trained(model):
    _, state = model.start([[1, 2, 3]])
    model.step(state, torch.tensor([4]))
    model(rows(2, 6)).sum().backward()
    assert model.embed.weight.grad.abs().sum() > 0


def test_padding_on_the_right_never_changes_what_the_head_reads(model):
    tokens, lengths = rows(3, 8), torch.tensor([8, 3, 5])
    padded = tokens.masked_fill(torch.arange(8) >= lengths[:, None], 0)
    batch = Batch(padded, lengths, padded, torch.ones(3, 8))
    with torch.no_grad():
        hidden_NTD = model.hidden_for(batch)
        for row, n in enumerate(lengths.tolist()):
            alone = model.hidden(tokens[row : row + 1, :n])
            torch.testing.assert_close(hidden_NTD[row, :n], alone[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"kv_heads": 3}, "kv_heads=3 must divide heads=4"), ({"head_width": 3}, "even head width, not 3")],
)
def test_sizes_that_do_not_go_together_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        TransformerConfig(**{**SHAPE, **changes}).build()


def test_a_head_of_ones_own(model):
    config = TransformerConfig(**SHAPE, head=SoftmaxHeadConfig(tied=False, bias=True))
    made = config.build()
    assert made.head.bias.shape == (11,)
    assert made.output_matrix is made.head.weight
    made.head.weight = None
    assert made.output_matrix is None


def test_attention_weights_are_returned_with_hidden_states(model):
    model.eval()
    tokens, lengths = torch.tensor([[1, 2, 3, 4], [5, 6, 0, 0]]), torch.tensor([4, 2])
    batch = Batch(tokens, lengths, tokens, torch.ones(2, 4))
    hidden, (stack,) = model.attention_reading.read_attention(batch)
    torch.testing.assert_close(hidden, model.hidden_for(batch), atol=1e-5, rtol=1e-5)
    assert [tuple(alpha.shape) for alpha in stack.layers] == [(2, model.config.heads, 4, 4)] * model.layers
    for alpha in stack.layers:
        torch.testing.assert_close(alpha.sum(-1), torch.ones(alpha.shape[:-1]))
        assert not alpha.triu(1).any()
