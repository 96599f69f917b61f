import pytest

import unspool as us
from unspool.serve.page.views import beam_tree
from unspool.testing import random_table


@pytest.fixture(scope="module")
def bible():
    return us.load("bible")


def said(tree, node):
    return () if node < 0 else (*said(tree, tree.nodes[node].parent), tree.nodes[node].token)


def test_a_beam_of_one_is_a_line():
    tree = beam_tree(random_table(5, seed=1), [1], us.Beam(1), 4)
    assert [node.parent for node in tree.nodes] == [-1, 0, 1, 2]
    assert [node.status for node in tree.nodes] == ["grown"] * 3 + ["length"]
    assert [text.node for text in tree.texts] == [3]


def test_texts_stand_in_the_tree(bible):
    prompt, search = "And God said unto Moses,", us.Beam(4, length_penalty=us.GNMT(0.6))
    tree = beam_tree(bible, prompt, search, 8)
    outputs = us.generate(bible, prompt, search, max_new_tokens=8, n=4)
    assert [(text.text, text.total, text.finish_reason) for text in tree.texts] == [
        (out.text, out.total, out.finish_reason) for out in outputs
    ]
    for text, out in zip(tree.texts, outputs, strict=True):
        assert said(tree, text.node) == out.tokens
        assert tree.nodes[text.node].score == pytest.approx(sum(out.logps), rel=1e-6)
    assert tree.nodes[0].text == bible.tokenizer.show(tree.nodes[0].token)
    assert "dropped" in {node.status for node in tree.nodes}


@pytest.mark.parametrize("search", [us.DiverseBeam(4, groups=2, penalty=0.5), us.StochasticBeam(3)])
def test_other_beams_have_trees(bible, search):
    tree = beam_tree(bible, "And God said", search, 4)
    assert tree.nodes
    assert 1 < len(tree.texts) <= search.width
    assert None not in [text.node for text in tree.texts]


def test_what_keeps_no_tree_is_refused():
    with pytest.raises(ValueError, match=r"Greedy\(\) keeps no tree.*Beam"):
        beam_tree(random_table(5, seed=1), [1], us.Greedy())
