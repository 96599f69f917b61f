import argparse
import io
import json
import sys

import pytest

from unspool.cli.prompts import (
    SETTINGS,
    Prompt,
    add_prompt_options,
    prompt_of_line,
    read_file,
    read_prompts,
    render,
)


def ask(*argv):
    parser = argparse.ArgumentParser()
    add_prompt_options(parser)
    return parser.parse_args(argv)


def texts(path):
    return [prompt.text for prompt in read_file(path)]


@pytest.fixture
def file(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def test_the_argument():
    assert read_prompts(ask("Once upon")) == [Prompt("Once upon")]


@pytest.mark.parametrize("argv", [(), ("-",)])
def test_standard_input_is_one_prompt_without_its_last_newline(piped, argv):
    piped(b"one\ntwo\n\n")
    assert read_prompts(ask(*argv)) == [Prompt("one\ntwo\n")]


def test_a_terminal_is_not_waited_for(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stdin", Terminal())
    with pytest.raises(ValueError, match=r"no prompt.*--prompts"):
        read_prompts(ask())


@pytest.mark.parametrize("data", [b"", b" \n"])
def test_empty_standard_input_is_an_error(piped, data):
    piped(data)
    with pytest.raises(ValueError, match="empty"):
        read_prompts(ask())


def test_standard_input_must_be_utf8(piped):
    piped(b"\xff\xfe")
    with pytest.raises(ValueError, match="standard input is not UTF-8"):
        read_prompts(ask())


def test_an_argument_that_is_not_text():
    with pytest.raises(ValueError, match="the prompt has a lone surrogate"):
        read_prompts(ask("\udcff"))


def test_lines(file):
    path = file("prompts.txt", "first\r\n\n  second, indented\nthird\u2028still third\n")
    assert texts(path) == ["first", "  second, indented", "third\u2028still third"]
    assert [prompt.where for prompt in read_file(path)] == [f"{path}:1", f"{path}:3", f"{path}:4"]


def test_a_byte_order_mark_is_no_text(file):
    assert texts(file("prompts.txt", b"\xef\xbb\xbffirst\n")) == ["first"]


def test_json_lines(file):
    path = file(
        "prompts.jsonl",
        '{"prompt": "first", "id": 7}\n\n{"messages": [{"role": "user", "content": "second"}]}\n',
    )
    assert read_file(path) == [
        Prompt("first", where=f"{path}:1", id=7),
        Prompt(messages=({"role": "user", "content": "second"},), where=f"{path}:3"),
    ]


@pytest.mark.parametrize(
    ("line", "match"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "expected"),
        ('"text"', "expected"),
        ("{}", "expected"),
        ('{"prompt": "a", "messages": []}', "expected"),
        ('{"prompt": 3}', '"prompt" must be a string, found 3'),
        ('{"prompt": "\\ud800"}', "has a lone surrogate"),
        ('{"prompt": "a", "prompt": "b"}', 'the key "prompt" occurs twice'),
        ('{"messages": [{"role": "user", "content": "a", "content": "b"}]}', '"content" occurs twice'),
        ('{"prompt": "a", "promt": "b"}', "'promt' is not a known key of a line: did you mean 'prompt'"),
        (
            '{"prompt": "a", "seed": 3}',
            "'seed' is not a known key of a line: choose from id, messages, prompt",
        ),
        ('{"prompt": "a", "seed": ' + "9" * 5000 + "}", "not JSON"),
        ('{"messages": []}', '"messages" must be a list'),
        ('{"messages": [{"role": "user"}]}', '"messages" must be a list'),
        ('{"messages": [{"role": "user", "content": "\\ud800"}]}', "has a lone surrogate"),
    ],
    ids=lambda text: text[:40],
)
def test_a_bad_json_line_is_named_by_file_and_line(file, line, match):
    path = file("prompts.jsonl", '{"prompt": "fine"}\n' + line + "\n")
    with pytest.raises(ValueError, match=match) as caught:
        read_file(path)
    assert str(caught.value).startswith(f"{path}:2: ")
    assert len(str(caught.value)) < len(str(path)) + 250


def test_settings_of_a_line_where_they_are_wanted(file):
    path = file("prompts.jsonl", '{"prompt": "a", "seed": 3, "stop": ["x"], "n": null}')
    assert read_file(path, settings=True) == [
        Prompt("a", where=f"{path}:1", settings={"seed": 3, "stop": ("x",)})
    ]


@pytest.mark.parametrize(
    ("line", "match"),
    [
        ('{"prompt": "a", "sed": 3}', "'sed' is not a known key of a line: did you mean 'seed'"),
        ('{"prompt": "a", "seed": "x"}', '"seed" is .x., but must be of type int'),
        ('{"prompt": "a", "stop": ["x", "\\ud800"]}', '"stop" has a lone surrogate'),
        ('{"prompt": "a", "system": "\\ud800"}', '"system" has a lone surrogate'),
    ],
)
def test_a_bad_setting_is_named_by_file_and_line(file, line, match):
    path = file("prompts.jsonl", line)
    with pytest.raises(ValueError, match=match) as caught:
        read_file(path, settings=True)
    assert str(caught.value).startswith(f"{path}:1: ")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=repr)
def test_every_end_of_a_line_is_one(file, end):
    assert texts(file("prompts.txt", f"first{end}{end}second{end}")) == ["first", "second"]
    assert texts(file("prompts.jsonl", end.join(['{"prompt": "a\\r"}', '{"prompt": "b"}']))) == ["a\r", "b"]


def test_a_file_without_prompts(file):
    with pytest.raises(ValueError, match="does not contain a prompt"):
        read_file(file("prompts.txt", "\n \n"))


def test_a_file_that_is_not_utf8(file):
    path = file("prompts.txt", b"caf\xe9\n")
    with pytest.raises(ValueError, match=r"prompts\.txt: not UTF-8"):
        read_file(path)


def test_one_json_document_is_refused(file):
    with pytest.raises(ValueError, match=r"\.jsonl"):
        read_file(file("prompts.json", '["a"]'))


def test_a_prompt_and_a_file_do_not_mix(file):
    with pytest.raises(ValueError, match="not both"):
        read_prompts(ask("text", "--prompts", str(file("prompts.txt", "a\n"))))


class Chat:
    def chat(self, messages):
        return "|".join(f"{m['role']}:{m['content']}" for m in messages)


def test_rendering_a_plain_prompt():
    assert Prompt("hi").render(Chat()) == "hi"
    assert Prompt("hi").render(None) == "hi"
    assert Prompt("hi").render(Chat(), chat=True) == "user:hi"
    assert Prompt("hi").render(Chat(), system="be kind") == "system:be kind|user:hi"


def test_rendering_messages_needs_no_flag_and_keeps_their_own_system_message():
    asked = ({"role": "user", "content": "hi"},)
    assert Prompt(messages=asked).render(Chat()) == "user:hi"
    assert Prompt(messages=asked).render(Chat(), system="be kind") == "system:be kind|user:hi"
    led = ({"role": "system", "content": "be brief"}, *asked)
    assert Prompt(messages=led).render(Chat(), system="be kind") == "system:be brief|user:hi"


def test_a_line_goes_before_the_flags():
    assert Prompt("hi", settings={"chat": True}).render(Chat()) == "user:hi"
    assert Prompt("hi", settings={"chat": False}).render(Chat(), chat=True, system="be kind") == "hi"
    assert Prompt("hi", settings={"system": "be brief"}).render(Chat(), system="be kind") == (
        "system:be brief|user:hi"
    )


def test_a_model_without_tokenizer_has_no_chat():
    with pytest.raises(ValueError, match="does not have a tokenizer"):
        Prompt("hi").render(None, chat=True)


def test_every_prompt_is_tried_on_the_tokenizer_before_any_is_used(loaded):
    import unspool as us

    model = us.load("letters")
    options = {"max_new_tokens": 1, "n": 1, "seed": 0, "stop": ()}
    assert render_all([Prompt("ab"), Prompt("c")], model, ask(), options) == ["ab", "c"]
    with pytest.raises(ValueError, match=r"^p\.txt:2: 'x' is not one of abc"):
        render_all([Prompt("ab", where="p.txt:1"), Prompt("x", where="p.txt:2")], model, ask(), options)


def test_an_empty_prompt_is_told_what_can_be_done_here(loaded):
    import unspool as us

    options = {"max_new_tokens": 1, "n": 1, "seed": 0, "stop": ()}
    with pytest.raises(ValueError, match=r"^p\.txt:1: the prompt is empty: write at least one word"):
        render_all([Prompt("", where="p.txt:1")], us.load("letters"), ask(), options)


def test_an_empty_prompt_may_be_the_first_token_of_a_text():
    import unspool as us

    model = us.load("smollm2")
    options = {"max_new_tokens": 1, "n": 1, "seed": 0, "stop": ()}
    with pytest.raises(ValueError, match=r"write something, or '(.+)' to start from nothing") as caught:
        render_all([Prompt("")], model, ask(), options)
    first = str(caught.value).split("'")[1]
    (text,) = render_all([Prompt(first)], model, ask(), options)
    assert model.tokenizer.encode(text) == [model.tokenizer.bos_id]


def test_a_system_message_that_is_not_text():
    with pytest.raises(ValueError, match="--system has a lone surrogate"):
        read_prompts(ask("a", "--system", "\udcff"))


def test_special_tokens_are_text_in_a_chat_and_tokens_in_a_raw_prompt():
    from unspool.tokenization import Tokenizer, train_bpe

    learnt = train_bpe(["a b c"], 270)
    template = "{% for m in messages %}{{ m.content }}<eos>{% endfor %}"
    text = Tokenizer(learnt.backend, eos_ids=learnt.eos_ids, chat_template=template)
    attack = "a<eos>b"
    plain = text.encode(attack, special_tokens=False)
    assert 2 not in plain
    assert text.encode(Prompt(attack).render(text, chat=True)) == [*plain, 2]
    assert text.encode(Prompt(attack).render(text, system=attack)) == [*plain, 2, *plain, 2]
    told = Prompt(messages=({"role": "user", "content": attack},))
    assert text.encode(told.render(text)) == [*plain, 2]
    assert text.encode(Prompt(attack).render(text)) == text.encode(attack)
    assert 2 in text.encode(attack)


def test_the_first_column_of_a_tsv_and_the_source_of_a_pair_are_prompts(file):
    assert texts(file("pairs.tsv", "first\teins\nsecond\tzwei\n")) == ["first", "second"]
    assert texts(file("pairs.jsonl", '{"source": "first", "target": "eins"}')) == ["first"]
    with pytest.raises(ValueError, match=r"a\.jsonl:1: expected"):
        read_file(file("a.jsonl", '{"text": "an answer"}'))


def render_all(prompts, model, args, options):
    return [render(prompt, model, args, options) for prompt in prompts]


RIGHT = {
    "chat": [True, False],
    "decoder": ["Greedy()"],
    "max_new_tokens": [1, 10**6],
    "n": [1],
    "seed": [0, 2**70],
    "stop": ["x", [], ["x", "y"]],
    "stop_ids": [[], [0, 7]],
    "stop_loops": [True],
    "stop_approximate_loops": [True],
    "system": ["Be brief."],
}
WRONG = {
    "chat": [0, "yes"],
    "decoder": [3, ["Greedy()"]],
    "max_new_tokens": [1.5, "3", True, float("nan")],
    "n": [[]],
    "seed": [0.5, False],
    "stop": [3, [3], {"x": 1}],
    "stop_ids": [7, ["a"], [True]],
    "stop_loops": ["true"],
    "stop_approximate_loops": ["true"],
    "system": [[]],
}


def settings_of(line):
    return prompt_of_line(json.dumps(line), "file:1").settings


def test_every_setting_is_tried_here():
    assert set(RIGHT) == set(WRONG) == set(SETTINGS)


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in RIGHT for value in RIGHT[name]])
def test_valid_settings_are_unchanged(name, value):
    expected = tuple(value) if isinstance(value, list) else value
    assert settings_of({"prompt": "a", name: value}) == {name: expected}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in WRONG for value in WRONG[name]])
def test_invalid_settings_are_named_with_the_expected_type(name, value):
    with pytest.raises(ValueError, match=f'^file:1: "{name}" is .*, but must be of type '):
        settings_of({"prompt": "a", name: value})


def test_null_is_not_given():
    assert settings_of({"prompt": "a", **dict.fromkeys(SETTINGS)}) == {}
