import math

import pytest
import torch

from unspool.data.batch import Batch
from unspool.decode.generate import generate
from unspool.decode.hypothesis import Job
from unspool.decode.ranking import Coverage
from unspool.decode.search import Beam, ContrastiveSearch, Greedy, Sample, Speculative
from unspool.models.transformer_seq2seq import TransformerSeq2SeqConfig

BOS, EOS = 1, 2
SHAPE = {
    "vocab_size": 9,
    "width": 8,
    "heads": 2,
    "inner_width": 12,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "bos": BOS,
    "eos": EOS,
}


def make(**changes):
    torch.manual_seed(0)
    return TransformerSeq2SeqConfig(**{**SHAPE, **changes}).build().eval()


@torch.no_grad()
def test_permuting_what_the_encoder_says_leaves_the_output_unchanged():
    model, tokens = make(), torch.tensor([[BOS, 6, 7]])
    said = model.encode(torch.tensor([[3, 4, 5, EOS]]), torch.tensor([4]))
    permuted = said._replace(memory_NSD=said.memory_NSD[:, [2, 3, 0, 1]])
    torch.testing.assert_close(model.hidden(tokens, said), model.hidden(tokens, permuted))


@torch.no_grad()
def test_with_no_positions_the_source_is_a_bag_of_words():
    model, lengths, tokens = make(positions="none"), torch.tensor([4]), torch.tensor([[BOS, 6]])
    one = model(torch.tensor([[3, 4, 5, EOS]]), lengths, tokens)
    torch.testing.assert_close(one, model(torch.tensor([[5, EOS, 3, 4]]), lengths, tokens))
    placed = make()
    before, after = (placed(torch.tensor([row]), lengths, tokens) for row in ([3, 4, 5, EOS], [5, EOS, 3, 4]))
    assert not torch.allclose(before, after, atol=1e-3)


@torch.no_grad()
def test_a_source_is_needed():
    model, lengths, tokens = make(), torch.tensor([2]), torch.tensor([[BOS, 6]])
    one, other = (model(torch.tensor([[word, EOS]]), lengths, tokens) for word in (3, 4))
    assert not torch.allclose(one, other, atol=1e-3)


@pytest.mark.parametrize("lengths", [[4, 4], [4, 2]])
@torch.no_grad()
def test_the_attention_of_a_step_is_the_last_layers_mean(lengths):
    model = make(kv_heads=1)
    prompts = [[3, 4, 5, 6][:n] for n in lengths]
    step, state = model.start(prompts)
    assert step.attention.shape == (2, 5)
    looked = []
    cross = model.blocks[-1].cross_attention
    kept, cross.forward = (
        cross.forward,
        lambda x, *s: kept(x, *s[:3], looked),
    )
    source = torch.tensor([[*p, EOS, *[0] * (4 - len(p))] for p in prompts])
    model(source, torch.tensor(lengths) + 1, torch.tensor([[BOS, 7], [BOS, 8]]))
    torch.testing.assert_close(step.attention, looked[0].mean(1)[:, 0])
    step, _ = model.step(state, torch.tensor([7, 8]))
    torch.testing.assert_close(step.attention, looked[0].mean(1)[:, 1])


def test_a_beam_may_ask_for_coverage():
    job = Job(((3, 4, 5), (6,)), (5, 5), (0, 0), 2, frozenset({EOS}))
    beam = Beam(3, coverage=Coverage(0.5))
    together = [path for frontier in beam(make(), job) for path in frontier.ended]
    for request in range(2):
        alone = Job(job.prompts[request : request + 1], (5,), (0,), 2, job.eos)
        want = [path for frontier in beam(make(), alone) for path in frontier.ended]
        found = [path for path in together if path.request == request]
        assert [path.tokens for path in found] == [path.tokens for path in want]
        assert [path.total for path in found] == pytest.approx([path.total for path in want], abs=1e-5)


def test_only_learnt_positions_limit_the_context():
    assert make().context is None
    model = make(positions="learned", context=6)
    assert model.context == 6
    with pytest.raises(ValueError, match="prompt 1 is a source of 7 tokens, its end included"):
        model.start([[3], [3] * 6])
    with pytest.raises(ValueError, match="a source has 7 tokens but the context is 6"):
        model(torch.tensor([[3] * 7]), torch.tensor([7]), torch.tensor([[BOS]]))


@pytest.mark.parametrize("search", [Greedy(), Beam(2), Sample(), ContrastiveSearch(2, 0.5)], ids=repr)
def test_source_and_target_each_have_the_context_to_themselves(search):
    model = make(positions="learned", context=16)
    model.config_eos_ids = frozenset()  # no token ends an answer
    for source in ([3] * 12, [3] * 15):
        out = generate(model, source, search, max_new_tokens=40, seed=1)
        assert len(out.tokens) == 15  # BOS is the first of 16
    assert len(generate(model, [3] * 12, search, max_new_tokens=9, seed=1).tokens) == 9
    with pytest.raises(ValueError, match="prompt 0 is a source of 17 tokens, its end included"):
        generate(model, [3] * 16, search)


def test_an_answer_ends_at_the_eos_of_the_config_if_there_is_no_tokenizer():
    model = make(context=64)
    found = generate(model, [[3, 4]] * 20, Sample(), max_new_tokens=60, seed=list(range(20)))
    assert all(EOS not in out.tokens[:-1] for out in found)
    assert any(out.finish_reason == "eos" for out in found)


def test_a_draft_needs_room_for_the_answer_and_not_for_the_source():
    model, source = make(positions="learned", context=16), [3] * 12
    model.config_eos_ids = frozenset()
    found = generate(model, source, Speculative(model), max_new_tokens=40, seed=1)
    assert len(found.tokens) == 15
    short = make(positions="learned", context=13)
    assert len(generate(model, source, Speculative(short), max_new_tokens=12, seed=1).tokens) == 12
    with pytest.raises(ValueError, match="and 13 new ones exceed the draft"):
        generate(model, source, Speculative(short), max_new_tokens=13)


def test_a_target_beyond_learnt_positions_is_refused_in_words():
    model = make(positions="learned", context=4)
    _, state = model.start([[3]])
    for _ in range(3):
        _, state = model.step(state, torch.tensor([5]))
    with pytest.raises(ValueError, match="a row has 5 tokens, but the model has 4 learned positions"):
        model.step(state, torch.tensor([5]))
    with pytest.raises(ValueError, match="a row has 6 tokens, but the model has 4 learned positions"):
        model(torch.tensor([[3, EOS]]), torch.tensor([2]), torch.tensor([[BOS, 5, 5, 5, 5, 5]]))


@pytest.mark.parametrize("width", [64, 512])
@pytest.mark.parametrize(
    "changes",
    [{}, {"norm_place": "post"}, {"norm_place": "both"}, {"positions": "sinusoidal"}, {"tied": False}],
    ids=str,
)
@torch.no_grad()
def test_random_targets_cost_little_more_than_ln_v_at_any_width(width, changes):
    V = 4000
    model = make(vocab_size=V, width=width, heads=4, inner_width=2 * width, **changes)
    source, inputs, targets = torch.randint(3, V, (3, 16, 20))
    logp = model(source, torch.full((16,), 20), inputs)
    # Random logits of variance 1 cost half a nat.
    assert -logp.gather(-1, targets[..., None]).mean() < math.log(V) + 0.65


@torch.no_grad()
def test_embeddings_are_multiplied_and_normalised_where_the_settings_say_so():
    tokens, lengths = torch.tensor([[3, EOS]]), torch.tensor([2])
    plain, halved = make(embed_scale=1.0), make(embed_scale=0.5)
    halved.load_state_dict(plain.state_dict())
    halved.embed.weight.mul_(2)  # the head is tied, so its logits double
    torch.testing.assert_close(
        halved.hidden(tokens, halved.read(tokens, lengths)), plain.hidden(tokens, plain.read(tokens, lengths))
    )
    normed, louder = (make(embed_scale=scale, embed_norm=True, norm_eps=0.0) for scale in (1.0, 7.0))
    louder.load_state_dict(normed.state_dict())  # what is normalised does not care for a factor
    torch.testing.assert_close(
        louder(tokens, lengths, tokens), normed(tokens, lengths, tokens), atol=1e-5, rtol=1e-5
    )
    assert {"embed_norm.weight", "encoder.embed_norm.weight"} <= normed.state_dict().keys()


@torch.no_grad()
def test_a_bos_in_front_of_a_source_stays_where_the_settings_say_so():
    kept = make(source_bos=True)
    left_out = make()
    assert torch.equal(left_out.start([[BOS, 5]])[0].logp_NV, left_out.start([[5]])[0].logp_NV)
    assert not torch.allclose(kept.start([[BOS, 5]])[0].logp_NV, kept.start([[5]])[0].logp_NV)


@torch.no_grad()
def test_relative_positions_tell_the_order_and_both_ways_agree():
    model = make(positions="relative", kv_heads=None, relative_buckets=8, relative_distance=12)
    for table in (model.relative, model.encoder.relative):
        table.weight.normal_()
    sources, tokens = [[5, 6, 7, 8], [8, 7, 6, 5]], torch.randint(3, 9, (2, 16))
    tokens[:, 0] = BOS
    framed = torch.tensor([[*source, EOS] for source in sources])
    whole = model(framed, torch.tensor([5, 5]), tokens)
    assert not torch.allclose(whole[0], whole[1], atol=1e-3)
    for engine in ("torch", "compiled"):
        model.engine = engine
        step, state = model.start(sources)
        for place in range(1, 8):
            torch.testing.assert_close(step.logp_NV, whole[:, place - 1], atol=1e-5, rtol=1e-5)
            step, state = model.step(state, tokens[:, place])
        step, state = model.extend(state, tokens[:, 8:])
        torch.testing.assert_close(step.logp_NV, whole[:, 8:].flatten(0, 1), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"relative_buckets": 3}, "relative_buckets is 3, but must be a whole number ≥ 4"),
        ({"relative_distance": 16}, "relative_distance=16 must be more than half of relative_buckets=32"),
        ({"heads": 2, "kv_heads": 1}, "with keys of their own for every head"),
        ({"attention": "keyless"}, "is for attention = 'query_key'"),
    ],
)
def test_relative_positions_that_cannot_be_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        make(positions="relative", **{"kv_heads": None} | changes)


def test_names_of_the_weights():
    names = {name for name, _ in make(decoder_layers=1).named_parameters()}
    assert names == {
        "embed.weight",
        "encoder.blocks.0.attention.qkv.weight",
        "encoder.blocks.0.attention.out.weight",
        "encoder.blocks.0.attention_norm.weight",
        "encoder.blocks.0.feed_forward.up.weight",
        "encoder.blocks.0.feed_forward.down.weight",
        "encoder.blocks.0.feed_forward_norm.weight",
        "encoder.norm.weight",
        "blocks.0.attention.qkv.weight",
        "blocks.0.attention.out.weight",
        "blocks.0.attention_norm.weight",
        "blocks.0.cross_attention.query.weight",
        "blocks.0.cross_attention.kv.weight",
        "blocks.0.cross_attention.out.weight",
        "blocks.0.cross_attention_norm.weight",
        "blocks.0.feed_forward.up.weight",
        "blocks.0.feed_forward.down.weight",
        "blocks.0.feed_forward_norm.weight",
        "norm.weight",
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoder_layers": 0}, "encoder_layers is 0, but must be a whole number ≥ 1"),
        ({"heads": 3}, "heads=3 must divide width=8"),
        ({"eos": None}, "needs an EOS token"),
        ({"bos": 9}, "token 9 is outside the vocabulary 0…8"),
    ],
)
def test_shapes_that_cannot_be_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        make(**changes)


def test_sources_may_have_a_vocabulary_and_an_embedding_of_their_own():
    model = make(source_vocab_size=20)
    assert (model.vocab_size, model.source_vocab_size) == (9, 20)
    assert model.source_embed.weight.shape == (20, 8)
    one, other = (model.start([[word, EOS]])[0].logp_NV for word in (18, 19))
    assert one.shape == (1, 9)
    assert not torch.allclose(one, other, atol=1e-3)
    assert make().source_embed is None
    assert make().source_vocab_size is None
    with pytest.raises(ValueError, match="source_vocab_size is 0"):
        make(source_vocab_size=0)


def test_attention_weights_of_both_sides_are_returned():
    torch.manual_seed(0)
    shape = {"width": 8, "heads": 2, "inner_width": 12, "encoder_layers": 1, "decoder_layers": 3}
    model = TransformerSeq2SeqConfig(vocab_size=9, bos=1, eos=2, **shape).build().eval()
    tokens, source = torch.tensor([[1, 3, 4], [1, 5, 0]]), torch.tensor([[5, 6, 7, 2], [5, 2, 0, 0]])
    lengths = torch.tensor([3, 2]), torch.tensor([4, 2])
    batch = Batch(tokens, lengths[0], tokens, torch.ones(2, 3), source, lengths[1])
    hidden, (encoder, decoder) = model.attention_reading.read_attention(batch)
    torch.testing.assert_close(hidden, model.hidden_for(batch), atol=1e-5, rtol=1e-5)
    assert (len(encoder.layers), len(decoder.layers)) == (1, 3)
    assert encoder.layers[0].shape == (2, 2, 4, 4)
    assert not encoder.layers[0][1, :, :, 2:].any()  # nobody looks at padding
    assert decoder.layers[0].triu(1).abs().sum() == 0


def test_it_tells_where_it_looks_at_the_source():
    model = make(decoder_layers=3, heads=4, kv_heads=2)
    tokens, source = torch.tensor([[1, 3, 4], [1, 5, 0]]), torch.tensor([[5, 6, 7, 2], [5, 2, 0, 0]])
    lengths = torch.tensor([3, 2]), torch.tensor([4, 2])
    batch = Batch(tokens, lengths[0], tokens, torch.ones(2, 3), source, lengths[1])
    stack = model.source_attention_reading.read_source_attention(batch)
    assert [tuple(alpha.shape) for alpha in stack.layers] == [(2, 4, 3, 4)] * 3
    assert not stack.layers[0][1, :, :, 2:].any()  # nobody looks at padding
    torch.testing.assert_close(stack.layers[1].sum(-1), torch.ones(2, 4, 3))
    # Averaged over the heads, the last layer's is what a step tells.
    step, _ = model.start([[5, 6, 7]])
    torch.testing.assert_close(step.attention[0], stack.layers[2][0, :, 0].mean(0), atol=1e-5, rtol=1e-5)
