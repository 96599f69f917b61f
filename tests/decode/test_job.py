from dataclasses import replace

from unspool.decode.hypothesis import Hypothesis, Job, SearchStep

JOB = Job(
    prompts=((7,), (8, 9)), limits=(3, 4), seeds=(0, 1), n=2, eos=frozenset({1}), stop_ids=frozenset({2, 1})
)


def test_every_prompt_has_n_paths_in_order():
    assert [(path.request, path.sample, path.prompt) for path in JOB.hypotheses()] == [
        (0, 0, (7,)),
        (0, 1, (7,)),
        (1, 0, (8, 9)),
        (1, 1, (8, 9)),
    ]
    assert [path.prompt for path in replace(JOB, is_encoder_decoder=True).hypotheses()] == [()] * 4


def test_batches_hold_as_many_rows_as_allowed_and_at_least_one_path():
    def sizes(rows, each):
        return [len(batch) for batch in replace(JOB, rows=rows).batches(each)]

    assert (sizes(3, 1), sizes(256, 1), sizes(3, 2), sizes(1, 5)) == ([3, 1], [4], [1] * 4, [1] * 4)


def test_without_a_text_what_a_path_says_is_its_tokens_but_the_end():
    path = Hypothesis(0, 0, (7,), (4, 5))
    assert JOB.content(path) == (4, 5)
    assert JOB.content(replace(path, tokens=(4, 2))) == (4,)
    assert JOB.ends == 2


def test_a_frontier_may_have_no_ended_path():
    assert SearchStep(()).ended == ()
