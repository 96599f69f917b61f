from unspool.decode.prefix_cache import PrefixMatch, RowTokens, plan_prefill

LONG = list(range(100))


def test_prompts_that_begin_alike_wait_for_the_first_of_them():
    texts = RowTokens()
    prompts = [[*LONG, 1], [*LONG, 2], [5, 6], [*LONG[:50], 3]]
    now, later = plan_prefill(texts, prompts, [0, 1, 2, 3])
    assert now == [
        PrefixMatch(0, 0, 0),
        PrefixMatch(2, 0, 0),
        PrefixMatch(3, 0, 0),
    ]  # 50 tokens are not worth another pass
    assert later == [1]
    texts.add([prompts[0], prompts[2], prompts[3]])
    assert plan_prefill(texts, prompts, later) == ([PrefixMatch(1, 0, 100)], [])


def test_the_last_token_is_always_read():
    texts = RowTokens()
    texts.add([[1, 2, 3, 4]])
    assert plan_prefill(texts, [[1, 2, 3], [1, 2, 3, 4, 5]], [0, 1]) == (
        [PrefixMatch(0, 0, 2), PrefixMatch(1, 0, 4)],
        [],
    )
