import pytest

from unspool.serve.shared_model import Call, Extension, Round, Start


def test_prompts_of_a_round_have_so_many_tokens_or_are_one_askers():
    waiting = Round()
    starts = [Start(name, [[1] * size]) for name, size in (("a", 9), ("b", 3), ("c", 3), ("d", 1))]
    for ask in starts:
        ask.enter(waiting)
    step = Extension("e", None, [0], None)
    step.enter(waiting)
    now, later = waiting.split(6)
    assert (now.starts, now.extensions) == (starts[:1], [step])
    now, later = later.split(6)
    assert (now.starts, now.extensions) == (starts[1:3], [])
    assert later.starts == starts[3:]
    assert not later.split(6)[1]


def test_one_asker_is_taken_out():
    waiting = Round()
    mine, other = Call("a", len), Start("b", [[1]])
    mine.enter(waiting)
    other.enter(waiting)
    assert waiting.of("a") == [mine]
    assert list(waiting.without("a")) == [other]


def test_an_answer_is_heard_once_and_an_error_is_raised():
    ask = Call("a", len)
    ask.tell(ask.done("abc"))
    ask.tell(RuntimeError("late"))
    assert ask.answer.result(0) == 3
    failed = Call("a", len)
    failed.tell(failed.done(5))
    with pytest.raises(TypeError):
        failed.answer.result(0)
