import pytest
import torch

from unspool.data.conllu import TreeSentence, TreeWord
from unspool.diagnose.dependency_agreement import agreements
from unspool.interfaces import Abilities, AttentionStack
from unspool.models.rnn_models import RNNConfig
from unspool.tokenization.vocabulary import train_words

TEXT = train_words(["I prefer the flight"])
SENTENCE = TreeSentence(
    "I prefer the flight",
    (
        TreeWord("I", 0, 1, 1, "nsubj"),
        TreeWord("prefer", 2, 8, None, "root"),
        TreeWord("the", 9, 12, 3, "det"),
        TreeWord("flight", 13, 19, 1, "obj"),
    ),
)


class Looking(Abilities):
    """Two layers of two heads: 0.0 looks at the word before, 1.1 from "flight" at "prefer"; others at BOS."""

    tokenizer, context = TEXT, None

    @property
    def attention_reading(self):
        return self

    def parameters(self):
        return iter([torch.zeros(1)])

    def read_attention(self, batch):
        N, T = batch.inputs_NT.shape
        first = torch.zeros(N, 2, T, T)
        first[..., 0] = 1.0
        before, flight = first.clone(), first.clone()
        before[:, 0] = torch.eye(T).roll(-1, 1).tril()
        begin = T - 4
        flight[:, 1, begin + 3] = 0.0
        flight[:, 1, begin + 3, begin + 1] = 1.0
        return None, (AttentionStack((before, flight), batch.lengths_N),)


def test_by_hand():
    found = {it.label: it for it in agreements(Looking(), [SENTENCE] * 3, min_arcs=1)}
    assert set(found) == {"nsubj", "det", "obj"}
    obj = found["obj"]
    assert (obj.arcs, obj.layer, obj.head, obj.agreement) == (3, 1, 1, 1.0)
    assert (obj.offset, obj.offset_agreement) == (2, 1.0)
    assert (found["det"].layer, found["det"].head, found["det"].agreement) == (0, 0, 1.0)
    assert found["det"].offset == 1
    assert len(obj.every) == 2
    assert obj.every[1][1] == 1.0


def test_labels_may_be_chosen():
    assert [it.label for it in agreements(Looking(), [SENTENCE], ["obj"])] == ["obj"]
    with pytest.raises(ValueError, match="does not contain the label 'iobj'"):
        agreements(Looking(), [SENTENCE], ["iobj"])


def test_models_without_attention_heads_raise():
    with pytest.raises(ValueError, match="RNNLM is not supported"):
        agreements(RNNConfig(vocab_size=9, width=4, layers=1).build(), [SENTENCE])
