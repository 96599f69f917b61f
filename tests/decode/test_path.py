from dataclasses import dataclass, replace

import pytest

from unspool.decode.hypothesis import Hypothesis, Job, Ranked

JOB = Job(prompts=((7, 8),), limits=(3,), seeds=(0,), eos=frozenset({1}), stop_ids=frozenset({2}))
EMPTY = Hypothesis(0, 0, (7, 8))


@dataclass(frozen=True)
class StopAtFive:
    """A watch that stops at token 5."""

    text: str = ""
    finish_reason: str | None = None

    def push(self, token):
        return StopAtFive(self.text + str(token), "stop" if token == 5 else None)


def test_a_token_is_appended_with_what_it_counted_for():
    path = EMPTY.extend(4, -1.5, -0.5, JOB).extend(3, -2.0, -1.0, JOB, Ranked(((3, -2.0),), ((3, -1.0),)))
    assert (path.tokens, path.logps, path.scores) == ((4, 3), (-1.5, -2.0), (-0.5, -1.0))
    assert [ranked.model for ranked in path.ranked] == [((3, -2.0),)]
    assert path.finish_reason is None
    assert EMPTY.tokens == ()


@pytest.mark.parametrize(("token", "finish"), [(1, "eos"), (2, "stop"), (5, "stop"), (6, None)])
def test_a_token_or_its_text_may_end_it(token, finish):
    path = replace(EMPTY, detokenizer=StopAtFive()).extend(token, 0.0, 0.0, JOB)
    assert path.finish_reason == finish


def test_the_limit_ends_it_and_an_end_token_there_is_still_an_end():
    two = EMPTY.extend(4, 0.0, 0.0, JOB).extend(4, 0.0, 0.0, JOB)
    assert two.extend(4, 0.0, 0.0, JOB).finish_reason == "length"
    assert two.extend(1, 0.0, 0.0, JOB).finish_reason == "eos"


def test_the_judge_sees_what_goes_on_and_only_that():
    seen = []

    def judge(path):
        seen.append(path.tokens)
        return replace(path, finish_reason="loop")

    job = replace(JOB, stop_condition=judge)
    assert EMPTY.extend(4, 0.0, 0.0, job).finish_reason == "loop"
    assert EMPTY.extend(1, 0.0, 0.0, job).finish_reason == "eos"
    assert seen == [(4,)]


@pytest.mark.parametrize("wrong", [(float("nan"), 0.0), (0.0, float("nan"))])
def test_what_is_no_number_is_refused(wrong):
    with pytest.raises(ValueError, match="token 4 after 0 new ones"):
        EMPTY.extend(4, *wrong, JOB)
