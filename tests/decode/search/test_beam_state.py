from dataclasses import replace

import pytest

from unspool.decode.hypothesis import Hypothesis, Job
from unspool.decode.ranking import FirstFull, Length
from unspool.decode.search.beam_state import BeamOptions, BeamState, Tree, best_texts, stop_finished_beams
from unspool.decode.search.candidates import Candidate

EOS = 0
JOB = Job(((1, 2), (3,)), (3, 3), (0, 0), 2, frozenset({EOS}))


def candidates(*entries):
    """(parent, token, total) each, best first."""
    return [Candidate(parent, token, -1.0, -1.0, total, 0.0, total) for parent, token, total in entries]


def beam_state(width=2, tree=None, **options):
    return BeamState(BeamOptions(width, **options), JOB, 1, tree or Tree())


def tokens(beam):
    return [one.hypothesis.tokens for one in beam]


def test_the_best_unfinished_candidates_stay_live_and_the_first_finished_ones_enter_the_pool():
    one = beam_state()
    taken = one.take(candidates((0, 5, -1.0), (0, EOS, -2.0), (0, 6, -3.0), (0, 7, -4.0)))
    assert tokens(one.live) == [(5,), (6,)]
    assert tokens(one.pool) == [(EOS,)]
    assert [candidate.token for candidate in taken] == [5, EOS, 6]


def test_a_finished_candidate_beyond_the_width_is_dropped():
    one = beam_state()
    one.take(candidates((0, 5, -1.0), (0, 6, -2.0), (0, EOS, -3.0)))
    assert tokens(one.live) == [(5,), (6,)]
    assert one.pool == []


def test_rows_follow_their_parents():
    one = beam_state()
    one.take(candidates((0, 5, -1.0), (0, 6, -2.0)))
    one.first_row = 7
    one.take(candidates((1, 5, -3.0), (1, 6, -4.0)))
    assert [hypothesis.row for hypothesis in one.live] == [8, 8]
    assert tokens(one.live) == [(6, 5), (6, 6)]


def test_a_hypothesis_at_the_length_limit_enters_the_pool():
    one = beam_state()
    for total in (-1.0, -2.0, -3.0):
        one.take(candidates((0, 5, total), (0, 6, total - 0.5)))
    assert one.live == []
    assert [ended.hypothesis.finish_reason for ended in one.pool] == ["length", "length"]


def test_the_pool_keeps_the_best_and_of_equal_scores_the_earlier():
    one = beam_state(length_penalty=Length(1.0))
    one.take(candidates((0, EOS, -2.0), (0, 5, -2.0), (0, 6, -2.5)))
    one.take(candidates((0, EOS, -4.0), (1, EOS, -4.5), (0, 5, -5.0)))
    assert [(ended.hypothesis.tokens, ended.score) for ended in one.pool] == [
        ((EOS,), -2.0),
        ((5, EOS), -2.0),
    ]
    assert one.pool[0].hypothesis.total == -2.0


def test_the_stop_rule_decides_when_a_full_pool_ends_the_search():
    patient, hasty = beam_state(), beam_state(stop=FirstFull())
    for one in (patient, hasty):
        one.take(candidates((0, EOS, -3.0), (0, 5, -3.0), (0, 6, -3.0)))
        stop_finished_beams([one], rising=False)
        assert tokens(one.live) == [(5,), (6,)]
        one.take(candidates((0, EOS, -6.0), (0, 5, -3.5), (1, 6, -7.0)))
        stop_finished_beams([one], rising=False)
    assert tokens(patient.live) == [(5, 5), (6, 6)]
    assert hasty.live == []
    assert tokens(hasty.unfinished) == [(5, 5), (6, 6)]


def test_texts_are_ranked_and_the_first_has_the_tree():
    one = beam_state(stop=FirstFull())
    one.take(candidates((0, EOS, -3.0), (0, 5, -4.0), (0, 6, -5.0)))
    one.take(candidates((0, EOS, -4.5), (0, 5, -5.0), (1, 6, -7.0)))
    stop_finished_beams([one], rising=False)
    first, second = best_texts([one], 2)
    assert (first.sample, first.tokens, second.sample, second.tokens) == (0, (EOS,), 1, (5, EOS))
    assert [(node.token, node.status) for node in first.notes["tree"]] == [
        (EOS, "eos"),
        (5, "grown"),
        (6, "grown"),
        (EOS, "eos"),
        (5, "open"),
        (6, "open"),
    ]
    assert "tree" not in second.notes


def test_texts_of_several_beams_alternate_without_duplicates():
    tree = Tree()
    left, right = beam_state(tree=tree), beam_state(tree=tree)
    left.take(candidates((0, EOS, -1.0), (0, 5, -1.5)))
    left.take(candidates((0, EOS, -2.0), (0, 6, -9.0)))
    right.take(candidates((0, EOS, -3.0), (0, 6, -3.5)))
    right.take(candidates((0, EOS, -4.0), (0, 6, -9.0)))
    assert [path.tokens for path in best_texts([left, right], 4)] == [(EOS,), (5, EOS), (6, EOS)]


def test_a_request_without_a_text_is_an_error():
    one = beam_state()
    one.take([])
    with pytest.raises(ValueError, match="request 1: the transforms cut every next token"):
        best_texts([one], 1)


class Written:
    """A watch whose text is cut before the first 9."""

    def __init__(self, tokens=()):
        self.tokens = tokens
        self.text = "".join(map(str, tokens)).split("9")[0]
        self.finish_reason = "stop" if 9 in tokens else None

    def push(self, token):
        return Written((*self.tokens, token))

    def close(self):
        return self.text


def test_of_equal_texts_the_one_with_the_better_score_stays():
    job = Job(((1,),), (9,), (0,), 2, frozenset(), (Written(),))
    one = BeamState(BeamOptions(3), job, 0, Tree())
    one.take(candidates((0, 9, -1.0), (0, 5, -2.0), (0, 6, -3.0)))
    one.take(candidates((0, 9, -2.5), (1, 9, -3.5), (0, 7, -4.0), (0, 8, -5.0)))
    assert [ended.hypothesis.detokenizer.close() for ended in one.pool] == ["", "5", "6"]
    again = BeamState(BeamOptions(3), job, 0, Tree())
    again.live = [replace(again.live[0], hypothesis=Hypothesis(0, 0, (1,), detokenizer=Written()))]
    again.take(candidates((0, 9, -4.0), (0, 5, -2.0)))
    again.end(replace(again.pool[0].hypothesis, tokens=(9, 9)), candidates((0, 9, -1.0))[0])
    assert [(ended.hypothesis.tokens, ended.score) for ended in again.pool] == [((9, 9), -1.0)]


def test_a_closed_beam_continues_until_later_beams_have_stopped():
    first, second = beam_state(stop=FirstFull()), beam_state(stop=FirstFull())
    first.take(candidates((0, EOS, -3.0), (0, 5, -4.0), (0, 6, -5.0)))
    first.take(candidates((0, EOS, -4.5), (0, 5, -5.0), (1, 6, -7.0)))
    second.take(candidates((0, 5, -4.0), (0, 6, -5.0)))
    stop_finished_beams([first, second], rising=False)
    assert first.closed
    assert first.live
    kept = list(first.pool)
    first.take(candidates((0, EOS, -0.1), (0, 5, -5.0)))
    assert first.pool == kept
    second.take(candidates((0, EOS, -4.5), (1, EOS, -5.5), (0, 5, -6.0)))
    stop_finished_beams([first, second], rising=False)
    assert first.live == second.live == []
