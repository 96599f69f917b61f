from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings, strategies as st
from tokenizers import models, pre_tokenizers

from unspool.data.batch import Batch, ragged_from_lists
from unspool.data.batches import Bucketed, Packed
from unspool.data.chats import Chats, messages
from unspool.tokenization import train_bpe
from unspool.tokenization.tokenizer import Tokenizer

TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
TOKENS = ["<s>", "</s>", "<user>", "<assistant>", "a", "b", "c"]


def codec(template: str | None = TEMPLATE, *, add_bos: bool = False) -> Tokenizer:
    tokenizer = tokenizers.Tokenizer(
        models.WordLevel({token: at for at, token in enumerate(TOKENS)}, unk_token="c")
    )
    tokenizer.add_special_tokens(TOKENS[:4])
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return Tokenizer(
        tokenizer, bos_id=0, eos_ids=frozenset({1}), chat_template=template, eos_token="</s>", add_bos=add_bos
    )


def test_what_counts_by_hand() -> None:
    row = ("user", "ab", "assistant", "b", "user", "a", "assistant", "ba")
    ((ids, loss_mask),) = Chats().encode([row], codec())
    assert [TOKENS[it] for it in ids] == [
        *("<user>", "a", "b", "</s>", "<assistant>", "b", "</s>"),
        *("<user>", "a", "</s>", "<assistant>", "b", "a", "</s>"),
    ]
    assert loss_mask == [0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 1, 1]


def test_targets_are_what_follows_so_that_the_first_token_of_an_answer_is_one() -> None:
    encoded = Chats().encode([("user", "a", "assistant", "b")], codec())
    batch = (
        Chats()
        .examples([ragged_from_lists([row[at] for row in encoded]) for at in (0, 1)])
        .batch(np.array([0]))
    )
    assert [TOKENS[it] for it in batch.targets_NU[0].tolist()] == ["a", "</s>", "<assistant>", "b", "</s>"]
    assert batch.weights_NU.tolist() == [[0, 0, 0, 1, 1]]
    examples = Chats().examples([ragged_from_lists([row[at] for row in encoded]) for at in (0, 1)])
    cut = replace(examples, limit=4)
    assert cut.batch(np.array([0])).weights_NU.tolist() == [[0, 0, 0, 1]]


@pytest.mark.parametrize("add_bos", [False, True])
def test_packed_batches_count_the_same_targets_as_bucketed_ones(add_bos: bool) -> None:
    text, dice = codec(add_bos=add_bos), Random(0)
    rows = [
        tuple(
            it for _ in range(dice.randint(1, 3)) for role in ("user", "assistant") for it in (role, said())
        )
        for said in [lambda: "".join(dice.choices("ab", k=dice.randint(1, 9)))] * 12
    ]
    encoded = Chats().encode(rows, text)
    examples = Chats().examples([ragged_from_lists([row[at] for row in encoded]) for at in (0, 1)])
    bucketed, packed = Bucketed(64), Packed(rows=2, length=10)

    def counted(batches: list[Batch]) -> list[int]:
        found = (batch.targets_NU[batch.weights_NU > 0].tolist() for batch in batches)
        return sorted(token for tokens in found for token in tokens)

    whole = [*examples.target.values.tolist()]  # type: ignore[attr-defined]
    answers = [token for _, loss_mask in encoded for token, count in zip(_, loss_mask, strict=True) if count]
    for kind in (bucketed, packed):
        assert counted(kind.validation_batches(examples, (0, 1), print)) == sorted(answers)
    # The feed: a token has the weight that it has in its conversation, wherever a block begins.
    feed = packed.feed(examples, (0, 1), 3, print)
    batches = [feed.batch(number) for number in range(feed.per_epoch)]
    assert counted(batches) == sorted(answers)
    assert all(batch.weight > 0 for batch in batches)
    weights = [count for _, loss_mask in encoded for count in loss_mask]
    feed = packed.feed(examples, (0, 1), 3, print)
    for number in range(2 * feed.per_epoch):
        batch = feed.batch(number)
        for row in range(len(batch.inputs_NT)):
            length = int(batch.lengths_N[row])
            block = [*batch.inputs_NT[row, :length].tolist(), int(batch.targets_NU[row, length - 1])]
            starts = [at for at in range(len(whole)) if whole[at : at + len(block)] == block]
            expected = [weights[at + 1 : at + len(block)] for at in starts]
            assert batch.weights_NU[row, :length].tolist() in expected


@settings(deadline=None, max_examples=20)
@given(st.lists(st.tuples(st.text("ab", min_size=1), st.text("ab", min_size=1)), min_size=1, max_size=3))
def test_answers_are_read_as_the_model_would_be_asked_for_them(turns: list[tuple[str, str]]) -> None:
    text = codec(add_bos=True)
    row = tuple(it for asked, said in turns for it in ("user", asked, "assistant", said))
    ((ids, loss_mask),) = Chats().encode([row], text)
    said, at = list(messages(row)), 0
    for number, (_, answer) in enumerate(turns):
        prompt = text.encode(text.chat(said[: 2 * number + 1]))
        assert ids[: len(prompt)] == prompt
        assert sum(loss_mask[at : len(prompt)]) == 0
        at = len(prompt) + len(answer) + 1
        assert loss_mask[len(prompt) : at] == [1] * (len(answer) + 1)
    assert at == len(ids)


def test_no_token_reaches_from_a_question_into_its_answer() -> None:
    template = (
        "{% for m in messages %}{{ m.role }}: {{ m.content }}<eos>{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    learnt = train_bpe(["assistant: a cat user: a cat"] * 3, 400)
    text = replace(learnt, chat_template=template, literal=False)
    assert text.encode(" a")[0] not in text.encode("assistant: ")  # " a" is one token
    ((ids, loss_mask),) = Chats().encode([("user", "cat", "assistant", "a cat")], text)
    prompt = text.encode(text.chat([{"role": "user", "content": "cat"}]))
    assert ids == [*prompt, *text.encode("a cat"), 2]
    assert loss_mask == [0] * len(prompt) + [1] * (len(ids) - len(prompt))


def test_unsuitable_chat_templates_are_refused() -> None:
    row = ("user", "a", "assistant", "b", "user", "a", "assistant", "b")
    with pytest.raises(ValueError, match="the vocabulary has none"):
        Chats().encode([row], codec(None))
    with pytest.raises(ValueError, match="does not end answers with an EOS token"):
        Chats().encode([row], codec(TEMPLATE.replace("</s>", "")))
    forgetful = "{% for m in messages[-2:] %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}<assistant>"
    with pytest.raises(ValueError, match="renders earlier turns differently"):
        Chats().encode([row], codec(forgetful))


def test_a_vocabulary_would_be_learnt_from_what_was_said() -> None:
    assert Chats().texts(("user", "a", "assistant", "b")) == ("a", "b")
    assert replace(Chats()).columns == 2


def test_special_tokens_in_training_messages_are_text_as_in_a_prompt() -> None:
    template = (
        "{% for m in messages %}{{ m.role }}: {{ m.content }}<eos>{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    text = replace(
        train_bpe(["assistant: a cat user: a cat"] * 3, 400), chat_template=template, literal=False
    )
    row = ("user", "a <eos> cat", "assistant", "cat<bos><eos>")
    ((ids, loss_mask),) = Chats().encode([row], text)
    prompt = text.encode(text.chat(list(messages(row))[:1]))
    answer = text.encode("cat<bos><eos>", special_tokens=False)
    assert ids == [*prompt, *answer, 2]
    assert ids.count(2) == 2
    assert loss_mask == [0] * len(prompt) + [1] * (len(answer) + 1)
