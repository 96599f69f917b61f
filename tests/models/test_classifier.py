import pytest
import torch

from unspool.data.batch import Batch
from unspool.models.encoders import RNNEncoderConfig, TransformerEncoderConfig
from unspool.models.labelling import ClassifierConfig, predict
from unspool.models.loading.run_folder import load_folder, save

ENCODERS = {
    "gru": RNNEncoderConfig(width=16),
    "lstm": RNNEncoderConfig(width=16, cell="lstm", bidirectional=False),
    "transformer": TransformerEncoderConfig(width=16, heads=2, inner_width=32, layers=1),
}
LABELS = ("sad", "happy")
GOOD, BAD = range(2, 6), range(6, 10)


def make(encoder, **changes):
    torch.manual_seed(0)
    return ClassifierConfig(vocab_size=20, labels=LABELS, encoder=ENCODERS[encoder], **changes).build()


def reviews(count, generator):
    """Rows of neutral words with some of one side; the label says which side."""
    lengths_N = torch.randint(3, 9, (count,), generator=generator)
    tokens_NT = torch.randint(10, 20, (count, 8), generator=generator)
    labels_N = torch.randint(2, (count,), generator=generator)
    for row, (length, label) in enumerate(zip(lengths_N.tolist(), labels_N.tolist(), strict=True)):
        place = int(torch.randint(length, (), generator=generator))
        words = GOOD if label else BAD
        tokens_NT[row, place] = words[int(torch.randint(4, (), generator=generator))]
        tokens_NT[row, length:] = 0
    return Batch(tokens_NT, lengths_N, labels_N[:, None], torch.ones(count, 1))


@pytest.mark.parametrize("encoder", ENCODERS)
def test_it_learns_what_is_sad_and_what_is_happy(encoder):
    model, generator = make(encoder, dropout=0.1), torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(120):
        batch = reviews(32, generator)
        hidden_N1D = model.hidden_for(batch)
        assert hidden_N1D.shape[:2] == (32, 1)
        loss, _ = model.head.loss(hidden_N1D[:, 0], batch.targets_NU[:, 0], batch.weights_NU[:, 0])
        optimizer.zero_grad()
        (loss / 32).backward()
        optimizer.step()
    held_out = reviews(200, generator)
    rows = [row[:n].tolist() for row, n in zip(held_out.inputs_NT, held_out.lengths_N, strict=True)]
    found = [each.label for each in predict(model.eval(), rows)]
    right = [LABELS[int(label)] for label in held_out.targets_NU]
    assert sum(a == b for a, b in zip(found, right, strict=True)) > 0.95 * 200


@pytest.mark.parametrize("encoder", ENCODERS)
def test_batch_mates_and_padding_never_change_an_answer(encoder):
    model = make(encoder).eval()
    texts = [[3, 4, 12, 13, 14], [7], [11, 12]]
    together = predict(model, texts)
    for text, answer in zip(texts, together, strict=True):
        alone = predict(model, [text])[0]
        assert alone.label == answer.label
        assert alone.p == pytest.approx(answer.p, abs=1e-5)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_a_saved_model_loads_equal(encoder, tmp_path):
    model = make(encoder).eval()
    save(model, tmp_path / "run")
    found = load_folder(tmp_path / "run")
    assert found.config == model.config
    tokens, lengths = torch.tensor([[3, 4, 5]]), torch.tensor([3])
    torch.testing.assert_close(found(tokens, lengths), model(tokens, lengths), atol=1e-6, rtol=0)


def test_every_label_has_its_probability():
    (found,) = predict(make("gru").eval(), [[3, 4, 5]])
    assert found.label == next(iter(found.probabilities))
    assert found.p == max(found.probabilities.values()) == found.probabilities[found.label]
    assert set(found.probabilities) == set(LABELS)
    assert sum(found.probabilities.values()) == pytest.approx(1)


def test_strings_need_a_tokenizer():
    with pytest.raises(ValueError, match="has no tokenizer"):
        predict(make("gru"), ["good"])


def test_labels_are_checked():
    with pytest.raises(ValueError, match="at least two labels"):
        ClassifierConfig(vocab_size=20, labels=("one",), encoder=ENCODERS["gru"])


@pytest.mark.parametrize("encoder", ENCODERS)
def test_answers_in_train_mode_are_without_dropout(encoder):
    model = make(encoder).eval()
    want = predict(model, [[3, 4, 5], [7]])
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.5
    assert predict(model.train(), [[3, 4, 5], [7]]) == want
    assert all(part.training for part in model.modules())


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_normalised_and_says_nearly_the_same(encoder, dtype):
    model, tokens, lengths = make(encoder).eval(), torch.tensor([[3, 4, 5], [7, 0, 0]]), torch.tensor([3, 1])
    want = model(tokens, lengths)
    logp = model.to(dtype)(tokens, lengths)
    torch.testing.assert_close(logp.exp().sum(-1), torch.ones(logp.shape[:-1]))
    torch.testing.assert_close(logp[0], want[0], atol=0.05, rtol=0.0)
    torch.testing.assert_close(logp[1:, :1], want[1:, :1], atol=0.05, rtol=0.0)
