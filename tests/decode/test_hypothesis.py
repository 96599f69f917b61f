from dataclasses import dataclass, replace

import pytest

from unspool.decode.hypothesis import Hypothesis, Job, Ranked, SearchStep

PATH_JOB = Job(prompts=((7, 8),), limits=(3,), seeds=(0,), eos=frozenset({1}), stop_ids=frozenset({2}))
EMPTY = Hypothesis(0, 0, (7, 8))


@dataclass(frozen=True)
class StopAtFive:
    """A watch that stops at token 5."""

    text: str = ""
    finish_reason: str | None = None

    def push(self, token):
        return StopAtFive(self.text + str(token), "stop" if token == 5 else None)


def test_a_token_is_appended_with_what_it_counted_for():
    path = EMPTY.extend(4, -1.5, -0.5, PATH_JOB).extend(
        3, -2.0, -1.0, PATH_JOB, Ranked(((3, -2.0),), ((3, -1.0),))
    )
    assert (path.tokens, path.logps, path.scores) == ((4, 3), (-1.5, -2.0), (-0.5, -1.0))
    assert [ranked.model for ranked in path.ranked] == [((3, -2.0),)]
    assert path.finish_reason is None
    assert EMPTY.tokens == ()


@pytest.mark.parametrize(("token", "finish"), [(1, "eos"), (2, "stop"), (5, "stop"), (6, None)])
def test_a_token_or_its_text_may_end_it(token, finish):
    path = replace(EMPTY, detokenizer=StopAtFive()).extend(token, 0.0, 0.0, PATH_JOB)
    assert path.finish_reason == finish


def test_the_limit_ends_it_and_an_end_token_there_is_still_an_end():
    two = EMPTY.extend(4, 0.0, 0.0, PATH_JOB).extend(4, 0.0, 0.0, PATH_JOB)
    assert two.extend(4, 0.0, 0.0, PATH_JOB).finish_reason == "length"
    assert two.extend(1, 0.0, 0.0, PATH_JOB).finish_reason == "eos"


def test_the_judge_sees_what_goes_on_and_only_that():
    seen = []

    def judge(path):
        seen.append(path.tokens)
        return replace(path, finish_reason="loop")

    job = replace(PATH_JOB, stop_condition=judge)
    assert EMPTY.extend(4, 0.0, 0.0, job).finish_reason == "loop"
    assert EMPTY.extend(1, 0.0, 0.0, job).finish_reason == "eos"
    assert seen == [(4,)]


@pytest.mark.parametrize("wrong", [(float("nan"), 0.0), (0.0, float("nan"))])
def test_nan_is_refused(wrong):
    with pytest.raises(ValueError, match="token 4 after 0 new ones"):
        EMPTY.extend(4, *wrong, PATH_JOB)


JOB_JOB = Job(
    prompts=((7,), (8, 9)), limits=(3, 4), seeds=(0, 1), n=2, eos=frozenset({1}), stop_ids=frozenset({2, 1})
)


def test_every_prompt_has_n_paths_in_order():
    assert [(path.request, path.sample, path.prompt) for path in JOB_JOB.hypotheses()] == [
        (0, 0, (7,)),
        (0, 1, (7,)),
        (1, 0, (8, 9)),
        (1, 1, (8, 9)),
    ]
    assert [path.prompt for path in replace(JOB_JOB, is_encoder_decoder=True).hypotheses()] == [()] * 4


def test_batches_hold_as_many_rows_as_allowed_and_at_least_one_path():
    def sizes(rows, each):
        return [len(batch) for batch in replace(JOB_JOB, rows=rows).batches(each)]

    assert (sizes(3, 1), sizes(256, 1), sizes(3, 2), sizes(1, 5)) == ([3, 1], [4], [1] * 4, [1] * 4)


def test_without_a_text_what_a_path_says_is_its_tokens_but_the_end():
    path = Hypothesis(0, 0, (7,), (4, 5))
    assert JOB_JOB.content(path) == (4, 5)
    assert JOB_JOB.content(replace(path, tokens=(4, 2))) == (4,)
    assert JOB_JOB.ends == 2


def test_a_frontier_may_have_no_ended_path():
    assert SearchStep(()).ended == ()
