import pytest

from unspool.decode.combine import Ensemble
from unspool.decode.generate import Output, generate, stream
from unspool.decode.search import Greedy, Sample
from unspool.testing import TableModel, bigram, random_table

LETTERS = "abcdefgh."


class LetterWatch:
    """A one-letter-per-token watch with stop strings, enough to test the loop without the text room."""

    def __init__(self, text="", stop=(), finish=None):
        self.whole, self.stop, self.finish = text, stop, finish

    @property
    def text(self):
        return (
            self.whole
            if self.finish
            else self.whole[: len(self.whole) - max(map(len, self.stop), default=1) + 1]
        )

    def push(self, token):
        whole = self.whole + LETTERS[token]
        for stop in self.stop:
            if stop in whole:
                return LetterWatch(whole[: whole.index(stop)], self.stop, "stop")
        return LetterWatch(whole, self.stop)

    def close(self):
        return self.whole


class Letters:
    vocab_size, bos_id, eos_ids = 9, 0, frozenset({8})

    def encode(self, text):
        return [LETTERS.index(letter) for letter in text]

    def decode(self, ids):
        return "".join(LETTERS[i] for i in ids if i != 8)

    def watch(self, stop=(), after=None):
        return LetterWatch(stop=tuple(stop))


def cycle(row):
    """a → b → … → h → . (the end)."""
    p = [0.01] * 9
    p[(row[-1] + 1) % 9] = 0.92
    return p


MODEL = TableModel(cycle, text=Letters(), context=40)


def test_one_prompt_gives_one_output():
    out = generate(MODEL, "c", max_new_tokens=3)
    assert isinstance(out, Output)
    assert (out.text, out.tokens, out.finish) == ("def", (3, 4, 5), "length")


def test_the_end_of_text_ends():
    out = generate(MODEL, "f")
    assert (out.text, out.tokens, out.finish) == ("gh", (6, 7, 8), "eos")


def test_a_list_gives_a_list_and_n_gives_lists():
    assert [o.text for o in generate(MODEL, ["a", "ef"], max_new_tokens=2)] == ["bc", "gh"]
    assert [o.text for o in generate(MODEL, ["a"], max_new_tokens=1)] == ["b"]
    assert [o.text for o in generate(MODEL, "a", n=2, max_new_tokens=1)] == ["b", "b"]
    assert [[o.text for o in group] for group in generate(MODEL, ["a", "b"], n=2, max_new_tokens=1)] == [
        ["b", "b"],
        ["c", "c"],
    ]


def test_token_ids_are_prompts_too():
    assert generate(MODEL, [0, 1], max_new_tokens=2).text == "cd"
    assert [o.text for o in generate(MODEL, [[0], [1]], max_new_tokens=1)] == ["b", "c"]


def test_stop_strings_cut_the_text():
    out = generate(MODEL, "a", stop="de")
    assert (out.text, out.tokens, out.finish) == ("bc", (1, 2, 3, 4), "stop")


@pytest.mark.parametrize("stop", [(), ("ef",), ("zz", "gh")])
def test_streamed_pieces_add_up_to_the_text(stop):
    out = generate(MODEL, "a", stop=stop)
    pieces = list(stream(MODEL, "a", stop=stop))
    assert "".join(piece.text for piece in pieces) == out.text
    assert sum((piece.tokens for piece in pieces), ()) == out.tokens
    assert [piece.finish for piece in pieces] == [None] * (len(pieces) - 1) + [out.finish]


def test_streams_of_several_rows_are_told_apart():
    search = Sample()
    outs = generate(MODEL, ["a", "bc"], search, n=2, seed=4)
    texts = {}
    for piece in stream(MODEL, ["a", "bc"], search, n=2, seed=4):
        texts[piece.request, piece.sample] = texts.get((piece.request, piece.sample), "") + piece.text
    assert texts == {(i, j): outs[i][j].text for i in range(2) for j in range(2)}


def test_the_context_is_a_limit():
    out = generate(bigram([[0.5, 0.5]] * 2), [0], max_new_tokens=7)
    assert len(out.tokens) == 7
    short = TableModel(lambda row: [0.5, 0.5], context=4)
    assert generate(short, [0], max_new_tokens=7).tokens == (0, 0, 0)
    assert [len(o.tokens) for o in generate(short, [[0], [0, 0, 0]], max_new_tokens=7)] == [3, 1]


def test_an_output_tells_the_seed_that_made_it():
    model = random_table(20, seed=1)
    out = generate(model, [1], Sample(), max_new_tokens=10)
    assert generate(model, [1], Sample(), max_new_tokens=10, seed=out.seed) == out
    several = generate(model, [[1], [2]], Sample(), max_new_tokens=10, seed=[5, 6])
    assert [o.seed for o in several] == [5, 6]
    assert several[1] == generate(model, [2], Sample(), max_new_tokens=10, seed=6)


def test_greedy_is_the_default():
    model = random_table(20, seed=1)
    assert generate(model, [1]).tokens == generate(model, [1], Greedy()).tokens


@pytest.mark.parametrize(
    ("prompts", "options", "message"),
    [
        ([], {}, "no prompt"),
        ("", {}, r"prompt 0 is empty.*\[0\]"),
        (["a", ""], {}, "prompt 1 is empty"),
        ([[0], []], {}, "prompt 1 is empty"),
        ("a", {"max_new_tokens": 0}, "max_new_tokens=0"),
        ("a", {"max_new_tokens": 2.5}, "max_new_tokens=2.5"),
        ("a", {"n": 0}, "n=0"),
        ("a", {"seed": [1, 2]}, "2 seeds for 1 prompts"),
        ([0, 9], {}, "token 9, outside the model's vocabulary 0…8"),
        ("a" * 40, {}, "40 tokens, and this model's context holds 40"),
    ],
)
def test_bad_input_is_named_before_the_model_is_called(prompts, options, message):
    with pytest.raises(ValueError, match=message):
        generate(MODEL, prompts, **options)
    with pytest.raises(ValueError, match=message):
        stream(MODEL, prompts, **options)


@pytest.mark.parametrize(
    ("prompts", "options"), [(3, {}), ([0, "a"], {}), ("a", {"seed": 1.5}), ([[0.5]], {})]
)
def test_wrong_types_are_named(prompts, options):
    with pytest.raises(TypeError):
        generate(MODEL, prompts, **options)


def test_a_model_without_text_says_so():
    model = random_table(5, seed=0)
    with pytest.raises(ValueError, match="no tokenizer"):
        generate(model, "hello")
    with pytest.raises(ValueError, match="stop strings need a tokenizer"):
        generate(model, [1], stop="x")
    assert generate(model, [1], max_new_tokens=2).text == ""


class Answers(TableModel):
    answers = True


def test_what_answers_a_source_does_not_go_on_after_it():
    seen = []

    class Watched(Letters):
        def watch(self, stop=(), after=None):
            seen.append(after)
            return super().watch(stop, after)

    for kind in (TableModel, Answers):
        model = kind(cycle, text=Watched())
        generate(Ensemble([model, model]), [0, 1], max_new_tokens=1)
        generate(model, [0, 1], max_new_tokens=1)
    assert seen == [1, 1, None, None]
