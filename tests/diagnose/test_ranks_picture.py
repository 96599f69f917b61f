import pytest
import torch

import unspool as us
from unspool.diagnose.ranks_picture import DEFAULT_RULES, RankPicture, draw_ranks, label_line, rank_picture
from unspool.protocols import Step
from unspool.testing import bigram

WEIGHT = torch.tensor([[0.55], [0.71], [0.29]])


class Letters:
    def encode(self, text):
        return ["abc".index(letter) for letter in text]

    def decode(self, ids):
        return "".join("abc"[i] for i in ids)


class WorkedExample:
    """The example of three tokens, as a model."""

    vocab_size, context, text, output_matrix = 3, None, Letters(), WEIGHT

    def start(self, prompts):
        return Step((2.55 * WEIGHT[:, 0]).log_softmax(-1)[None]), None

    def step(self, state, tokens_N):
        raise AssertionError("one look is enough")


def look(model, *specs, top=3):
    return rank_picture(model, "a", [us.parse(spec) for spec in specs], specs, top=top)


def test_by_hand():
    basis, threshold = "Sample(BasisAware(0.474, rank=None))", "Sample(Epsilon(0.474))"
    found = look(WorkedExample(), basis, threshold)
    # p = 0.331, 0.498, 0.171: the test cuts a and keeps b and the less probable c
    assert found.tokens == ("b", "a", "c")
    assert found.p == pytest.approx((0.498, 0.331, 0.171), abs=1e-3)
    assert found.kept == {basis: (True, False, True), threshold: (True, False, False)}
    assert found.exceptions(basis) == [2]
    assert found.exceptions(threshold) == []


def test_truncations_keep_what_survives_all_of_them():
    model = bigram([[0.5, 0.3, 0.2]] * 3, text=Letters())
    found = look(model, "Sample(TopP(0.7))", "Sample(TopK(2), MinP(0.9))", "Sample()", top=99)
    assert list(found.kept.values()) == [(True, True, False), (True, False, False), (True, True, True)]


def test_what_cannot_be_shown_is_refused():
    with pytest.raises(ValueError, match="no tokenizer"):
        look(bigram([[0.5, 0.5]] * 2), "Sample()")
    with pytest.raises(ValueError, match="prompt is empty"):
        rank_picture(WorkedExample(), "", [], [])
    with pytest.raises(ValueError, match="top is 0"):
        look(WorkedExample(), "Sample()", top=0)


def test_default_rules_can_be_parsed():
    assert [type(us.parse(rule)) for rule in DEFAULT_RULES] == [us.Sample] * len(DEFAULT_RULES)


def test_the_picture_sets_exceptions_off_and_obeys_no_markup(tmp_path):
    plain = RankPicture("a $x$\nb", ("$a$", "<b>", "中"), (0.5, 0.3, 0.0), {"rule": (True, True, False)})
    odd = RankPicture("p" * 200, ("a", "b", "c"), (0.5, 0.3, 0.2), {"rule": (True, False, True)})
    orange = "#e67e22"
    for picture, name in ((plain, "plain.svg"), (odd, "odd.svg")):
        draw_ranks(picture, tmp_path / name)
    assert orange not in (tmp_path / "plain.svg").read_text()
    assert orange in (tmp_path / "odd.svg").read_text()


def test_a_prompt_stays_on_its_line():
    assert label_line("a\nb") == "a⏎b"
