import re

import pytest
import torch

from unspool.data.batch import Batch
from unspool.models.encoders import RNNEncoderConfig, TransformerEncoderConfig
from unspool.models.labelling import TaggerConfig, predict
from unspool.models.loading.run_folder import load_folder, save
from unspool.tokenization.vocabulary import train_bpe, train_characters, train_words

ENCODERS = {
    "lstm": RNNEncoderConfig(width=16, cell="lstm"),
    "transformer": TransformerEncoderConfig(width=16, heads=2, inner_width=32, layers=2),
}
LABELS = ("noun", "verb", "article")


def make(encoder, text=None):
    torch.manual_seed(0)
    return TaggerConfig(vocab_size=12, labels=LABELS, encoder=ENCODERS[encoder]).build(text)


def sentences(count, generator):
    """Token 2 is an article; any other word is a noun right after it and a verb elsewhere."""
    lengths_N = torch.randint(2, 8, (count,), generator=generator)
    tokens_NT = torch.randint(3, 12, (count, 7), generator=generator)
    tokens_NT[torch.rand(count, 7, generator=generator) < 0.3] = 2
    before_NT = torch.cat((torch.zeros(count, 1, dtype=torch.long), tokens_NT[:, :-1]), dim=1)
    labels_NT = torch.where(tokens_NT == 2, 2, torch.where(before_NT == 2, 0, 1))
    real_NT = torch.arange(7) < lengths_N[:, None]
    return Batch(tokens_NT * real_NT, lengths_N, labels_NT * real_NT, real_NT.float())


@pytest.mark.parametrize("encoder", ENCODERS)
def test_it_learns_what_a_word_is_from_the_word_before(encoder):
    model, generator = make(encoder), torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(120):
        batch = sentences(32, generator)
        hidden_MD = model.hidden_for(batch).flatten(0, 1)
        loss, _ = model.head.loss(hidden_MD, batch.targets_NU.flatten(), batch.weights_NU.flatten())
        optimizer.zero_grad()
        (loss / batch.weight).backward()
        optimizer.step()
    held_out = sentences(100, generator)
    rows = [row[:n].tolist() for row, n in zip(held_out.inputs_NT, held_out.lengths_N, strict=True)]
    found = [each.label for tags in predict(model.eval(), rows) for each in tags]
    right = [LABELS[label] for label in held_out.targets_NU[held_out.weights_NU > 0].tolist()]
    assert sum(a == b for a, b in zip(found, right, strict=True)) > 0.95 * len(right)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_batch_mates_and_padding_never_change_an_answer(encoder):
    model = make(encoder).eval()
    texts = [[3, 4, 5, 6, 7], [8], [9, 2]]
    for text, tags in zip(texts, predict(model, texts), strict=True):
        assert len(tags) == len(text)
        assert [tag.p for tag in predict(model, [text])[0]] == pytest.approx(
            [tag.p for tag in tags], abs=1e-5
        )


def test_a_text_is_tagged_word_by_word_after_saving(tmp_path):
    model = make("lstm", train_words(["the cat saw the dog"])).eval()
    save(model, tmp_path / "run")
    found = load_folder(tmp_path / "run")
    assert found.config == model.config
    (tags,) = predict(found, ["the dog saw"])
    assert [tag.label for tag in tags] == [tag.label for tag in predict(model, ["the dog saw"])[0]]
    assert [tag.word for tag in tags] == ["the", "dog", "saw"]


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("make_text", [lambda lines: train_bpe(lines, 264, min_count=2), train_characters])
def test_a_word_of_several_tokens_has_one_tag(encoder, make_text):
    text = make_text(["the cat saw the dog"])
    model = (
        TaggerConfig(vocab_size=text.vocab_size, labels=LABELS, encoder=ENCODERS[encoder]).build(text).eval()
    )
    line = "  the cat  saw the dog"
    (tags,) = predict(model, [line])
    assert [tag.word for tag in tags] == line.split()
    with torch.no_grad():
        logp_TK = model(torch.tensor([text.encode(line)]), torch.tensor([len(text.encode(line))]))[0]
    starts = [match.start() for match in re.finditer(r"\S+", line)]
    offsets = text.backend.encode(line, add_special_tokens=False).offsets
    for tag, start in zip(tags, starts, strict=True):
        first = next(place for place, (_, end) in enumerate(offsets) if end > start)
        assert tag.p == pytest.approx(logp_TK[first].exp().max().item())
        assert tag.probabilities == pytest.approx(
            dict(zip(LABELS, logp_TK[first].exp().tolist(), strict=True)), abs=1e-6
        )


def test_words_need_a_tokenizer_that_knows_its_characters():
    class Other:
        encode = decode = detokenizer = None
        eos_ids = frozenset()

    with pytest.raises(TypeError, match="Other does not give character offsets"):
        predict(make("lstm", Other()), ["a b"])
    with pytest.raises(ValueError, match="lone surrogate"):
        predict(make("lstm", train_words(["a b"])), ["a \ud800"])


def test_tokens_are_shown_by_number_or_by_text():
    assert [it.word for it in predict(make("lstm"), [[3, 4]])[0]] == ["#3", "#4"]
    assert [it.word for it in predict(make("lstm", train_words(["a b"])), [[5, 4]])[0]] == ["b", "a"]


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
