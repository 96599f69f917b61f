import pytest
import torch

from unspool.nn.attention_weights import label_arcs, picks, word_attention


def test_by_hand():
    # Tokens 0 (BOS), 1 and 2 (a word), 3 (another).
    alpha = torch.tensor([[[1.0, 0, 0, 0], [0.5, 0.5, 0, 0], [0.2, 0.4, 0.4, 0], [0.1, 0.2, 0.3, 0.4]]])
    found = word_attention(alpha, [(1, 2), (3,)])
    assert found[0].tolist() == [pytest.approx([0.65, 0.0]), pytest.approx([0.5, 0.4])]


def test_words_of_one_token_are_the_tokens():
    alpha = torch.randn(2, 4, 4).softmax(-1)
    torch.testing.assert_close(word_attention(alpha, [(0,), (1,), (2,), (3,)]), alpha)


def test_arcs_go_from_the_later_word_to_the_earlier():
    words = [(1, "nsubj"), (None, "root"), (1, "obj"), (1, "nsubj:pass")]
    assert label_arcs(words, "nsubj") == [(1, 0), (3, 1)]
    assert label_arcs(words, "nsubj", whole=True) == [(1, 0)]
    assert label_arcs(words, "nsubj:pass") == [(3, 1)]
    assert label_arcs(words, "root") == []


def test_a_head_named_after_a_label_finds_all_its_arcs():
    arcs = [(1, 0), (3, 1)]
    alpha = torch.full((2, 4, 4), 0.1)
    for later, earlier in arcs:
        alpha[0, later, earlier] = 1.0
    alpha[1] = torch.eye(4)  # looks at itself, which is left out; then the first word is as good as any
    assert picks(alpha, arcs).tolist() == [[True, True], [True, False]]
