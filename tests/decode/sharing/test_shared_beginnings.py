from unspool.decode.prefix_cache import Fork, RowTexts, next_pass

LONG = list(range(100))


def test_prompts_that_begin_alike_wait_for_the_first_of_them():
    texts = RowTexts()
    prompts = [[*LONG, 1], [*LONG, 2], [5, 6], [*LONG[:50], 3]]
    now, later = next_pass(texts, prompts, [0, 1, 2, 3])
    assert now == [Fork(0, 0, 0), Fork(2, 0, 0), Fork(3, 0, 0)]  # 50 tokens are not worth another pass
    assert later == [1]
    texts.add([prompts[0], prompts[2], prompts[3]])
    assert next_pass(texts, prompts, later) == ([Fork(1, 0, 100)], [])


def test_the_last_token_is_always_read():
    texts = RowTexts()
    texts.add([[1, 2, 3, 4]])
    assert next_pass(texts, [[1, 2, 3], [1, 2, 3, 4, 5]], [0, 1]) == ([Fork(0, 0, 2), Fork(1, 0, 4)], [])
