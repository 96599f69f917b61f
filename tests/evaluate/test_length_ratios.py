import pytest

from unspool.evaluate.reference_overlap import length_ratio


def test_by_hand():
    assert length_ratio([["a"], ["b", "c"]], [["x", "y"], ["z", "w"]]).value == 3 / 4
    assert length_ratio(["ab"], ["abcd"]).value == 1 / 2


def test_bleu_has_the_same():
    from sacrebleu.metrics import BLEU

    outputs, references = ["a b c d e", "f g"], ["a b c", "f g h i j k"]
    score = BLEU(tokenize="none").corpus_score(outputs, [references])
    split = [[it.split() for it in texts] for texts in (outputs, references)]
    assert length_ratio(*split).value == pytest.approx(score.sys_len / score.ref_len)


@pytest.mark.parametrize(
    ("outputs", "references", "said"),
    [(["a"], ["a", "b"], "1 outputs but"), ([], [], "at least one"), (["a"], [""], "are empty")],
)
def test_empty_references_raise(outputs, references, said):
    with pytest.raises(ValueError, match=said):
        length_ratio(outputs, references)
