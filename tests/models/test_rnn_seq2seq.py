import pytest
import torch

from unspool.models.rnn_models import RNNSeq2SeqConfig

BOS, EOS = 1, 2
SHAPE = {"vocab_size": 9, "width": 6, "bos": BOS, "eos": EOS}


def make(**changes):
    torch.manual_seed(0)
    return RNNSeq2SeqConfig(**{**SHAPE, **changes}).build().eval()


@torch.no_grad()
def test_attention_by_its_equations():
    model = make(context_kind="bilinear")
    source = torch.tensor([[3, 4, EOS]])
    h = model.encoder(source, torch.tensor([3]))[0]
    state = torch.tanh(model.begin(torch.cat((h[-1, :6], h[0, 6:])))).view(1, 1, 6)
    for token in (BOS, 5):
        alpha = torch.softmax(h @ model.score.key.weight.T @ state[0, 0], dim=0)
        c = alpha @ h
        s, state = model.rnn.step(torch.cat((model.embed.weight[token], c))[None], state)
        hidden = torch.tanh(model.readout(torch.cat((s[0], c))))
    want = (model.embed.weight @ hidden).log_softmax(-1)
    found = model(source, torch.tensor([3]), torch.tensor([[BOS, 5]]))
    torch.testing.assert_close(found[0, -1], want)
    step, state = model.start([[3, 4]])
    step, _ = model.step(state, torch.tensor([5]))
    torch.testing.assert_close(step.attention[0], alpha)


@pytest.mark.parametrize("kind", ["last", "mean"])
@torch.no_grad()
def test_a_fixed_context_by_its_equations(kind):
    model = make(context_kind=kind, bidirectional=False)
    source = torch.tensor([[3, 4, EOS]])
    h = model.encoder(source, torch.tensor([3]))[0]
    c = h[-1] if kind == "last" else h.mean(0)
    state = torch.tanh(model.begin(c)).view(1, 1, 6)
    for token in (BOS, 5):
        s, state = model.rnn.step(torch.cat((model.embed.weight[token], c))[None], state)
    want = (model.embed.weight @ torch.tanh(model.readout(torch.cat((s[0], c))))).log_softmax(-1)
    found = model(source, torch.tensor([3]), torch.tensor([[BOS, 5]]))
    torch.testing.assert_close(found[0, -1], want)
    assert model.start([[3, 4]])[0].attention is None


def test_it_learns_to_copy_and_looks_where_it_copies():
    torch.manual_seed(1)
    model = RNNSeq2SeqConfig(vocab_size=9, width=32, bos=BOS, eos=EOS).build()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    ends, begins = torch.full((32, 1), EOS), torch.full((32, 1), BOS)
    for _ in range(150):
        words = torch.randint(3, 9, (32, int(torch.randint(2, 6, ()))))
        source, inputs = torch.cat((words, ends), dim=1), torch.cat((begins, words), dim=1)
        logp = model(source, torch.full((32,), source.shape[1]), inputs)
        loss = -logp.gather(2, source[..., None]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    words = [3, 8, 5, 4]
    step, state = model.eval().start([words])
    said, looked = [], []
    for _ in range(5):
        said.append(int(step.logp_NV.argmax()))
        looked.append(step.attention[0])
        step, state = model.step(state, torch.tensor(said[-1:]))
    assert said == [*words, EOS]
    # Each word of the copy is read at its own place, or beside it, where the other direction carries it.
    places = torch.stack(looked).argmax(-1)
    assert ((places - torch.arange(5)).abs() <= 1).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cell": "x"}, "'x' is not a known value of RNNSeq2SeqConfig.cell"),
        ({"context_kind": "x"}, "one of 'additive', 'bilinear', 'dot', 'last', 'mean'"),
        ({"context_kind": "dot"}, "choose 'bilinear', or bidirectional=False"),
        ({"decoder_layers": 0}, "decoder_layers is 0"),
        ({"eos": None}, "needs an EOS token"),
    ],
)
def test_shapes_that_cannot_be_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        make(**changes)


def test_sources_may_have_a_vocabulary_and_an_embedding_of_their_own():
    model = RNNSeq2SeqConfig(vocab_size=9, width=6, bos=1, eos=2, source_vocab_size=20).build().eval()
    assert (model.vocab_size, model.source_vocab_size) == (9, 20)
    one, other = (model.start([[word, 2]])[0].logp_NV for word in (18, 19))
    assert one.shape == (1, 9)
    assert not torch.allclose(one, other, atol=1e-4)
