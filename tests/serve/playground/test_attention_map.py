import pytest
import torch

import unspool as us
from unspool.models.rnn_seq2seq import RNNSeq2SeqConfig
from unspool.serve.page.views import LONGEST, attention_map
from unspool.testing import random_table


@pytest.fixture(scope="module")
def bible():
    return us.load("bible")


@pytest.fixture(scope="module")
def dates():
    return us.load("dates")


def test_a_language_model_looks_back(bible):
    seen = attention_map(bible, "And God said", us.Greedy(), 4, layer=2)
    weights = torch.tensor(seen.weights)
    out = us.generate(bible, "And God said", us.Greedy(), max_new_tokens=4)
    assert "".join(seen.looking) == f"<bos>And God said{out.text}"
    assert weights.shape == (bible.config.heads, len(seen.looking), len(seen.looked_at))
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:2]), atol=2e-3, rtol=0)
    assert weights.triu(1).sum() == 0
    assert (seen.kind, seen.kinds, seen.layer, seen.layers) == ("self", ("self",), 2, bible.config.layers)


def test_a_translator_looks_at_its_source(dates):
    seen = attention_map(dates, "May 5th, 1921", us.Greedy(), 20, layer=1)
    assert (seen.kind, seen.kinds) == ("source", ("source", "encoder", "decoder"))
    assert "".join(seen.looked_at) == "May 5th, 1921<eos>"
    assert "".join(seen.looking) == "1921-05-05<eos>"
    weights = torch.tensor(seen.weights)
    assert weights.shape == (4, 11, 14)
    # Averaged over the heads, the last layer is what the steps tell.
    step, _ = dates.start([dates.tokenizer.encode("May 5th, 1921")])
    torch.testing.assert_close(weights[:, 0].mean(0), step.attention[0], atol=2e-4, rtol=0)
    for kind, size in (("encoder", 14), ("decoder", 11)):
        found = attention_map(dates, "May 5th, 1921", us.Greedy(), 20, kind)
        assert (len(found.looking), len(found.looked_at)) == (size, size)


def test_a_recurrent_translator_has_one_map():
    torch.manual_seed(0)
    model = RNNSeq2SeqConfig(vocab_size=9, width=8, bos=1, eos=2).build().eval()
    seen = attention_map(model, [3, 4, 5], us.Sample(), 3)
    assert (seen.kinds, seen.layers, seen.heads) == (("source",), 1, 1)
    assert seen.looked_at == ("<3>", "<4>", "<5>", "⟨end⟩")
    assert [sum(row) for row in seen.weights[0]] == pytest.approx([1] * len(seen.looking), abs=2e-3)


def test_the_model_itself_is_asked_where_another_stands_in(bible):
    asked = []

    def read(work):
        asked.append(work)
        return work(bible)

    seen = attention_map(bible, "And God", us.Greedy(), read=read)
    assert len(asked) == 1
    assert "".join(seen.looking) == "<bos>And God"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"kind": "source"}, "no source attention: choose from self"),
        ({"layer": 4}, "layer 4 is not there: choose from 0 to 3"),
        ({"prompt": [5] * LONGEST, "max_new_tokens": 1}, "shorten"),
    ],
)
def test_what_is_not_there_is_refused(bible, changes, said):
    with pytest.raises(ValueError, match=said):
        attention_map(**{"model": bible, "prompt": "And God", "decoder": us.Greedy(), **changes})


def test_a_model_without_attention_says_so():
    with pytest.raises(ValueError, match="no attention"):
        attention_map(random_table(5, seed=1), [1], us.Greedy())
