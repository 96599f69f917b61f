"""Chats over the ASGI application: tools, reasoning, forms, and /v1/responses."""

import json
from dataclasses import replace

import pytest
import torch
from starlette.testclient import TestClient

import unspool as us
from unspool.models.transformer_lm import TransformerConfig
from unspool.serve.requests import Limits
from unspool.serve.scheduler import Scheduler
from unspool.serve.server import Server, create_app
from unspool.serve.streaming import WorkerPool

HERMES = (
    "{% if tools %}{% for t in tools %}{{ t.function.name }} {% endfor %}<tool_call>{% endif %}"
    "{% for m in messages %}{{ m.role }}: {{ m.content }}"
    "{% for c in m.tool_calls or [] %}[{{ c.function.name }} {{ c.function.arguments.who }}]{% endfor %}"
    "\n{% endfor %}And"
)
PLAIN = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}And"
THINKING = "{% for m in messages %}{{ m.content }}\n{% endfor %}{# <think> </think> #}And<think>\n"
USER = [{"role": "user", "content": "Who led the people?"}]
WHO = {"type": "object", "properties": {"who": {"enum": ["Moses", "Aaron"]}}, "required": ["who"]}
CLOSED = {**WHO, "additionalProperties": False}
TOOLS = [
    {"type": "function", "function": {"name": "ask", "description": "Ask a man", "parameters": WHO}},
    {"type": "function", "function": {"name": "rest", "parameters": {}}},
]
NAMED = {"type": "function", "function": {"name": "ask"}}


@pytest.fixture(scope="module")
def bible():
    """A random model with a long context, which takes every way that a grammar leaves open."""
    torch.manual_seed(0)
    tokenizer = us.load("bible").tokenizer
    shape = TransformerConfig(
        vocab_size=tokenizer.vocab_size,
        width=16,
        layers=1,
        heads=2,
        head_width=8,
        inner_width=16,
        context=2000,
    )
    model = shape.build().eval()
    model.tokenizer = tokenizer
    return model


@pytest.fixture(scope="module")
def server(bible):
    return Server({"bible": Scheduler(bible, 2**24)}, WorkerPool(4, 4), Limits(), {"gpt-4o": "bible"})


@pytest.fixture(scope="module")
def client(server):
    with TestClient(create_app(server), base_url="http://localhost") as found:
        yield found


@pytest.fixture
def template(bible, monkeypatch):
    """Sets the chat template of the model."""

    def use(text):
        monkeypatch.setattr(bible, "tokenizer", replace(bible.tokenizer, chat_template=text))

    return use


def chat(client, messages=USER, status=200, **fields):
    body = {"model": "bible", "messages": messages, "max_tokens": 150, "seed": 1, **fields}
    answer = client.post("/v1/chat/completions", json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


def events(answer):
    return [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]


def streamed_message(client, **fields):
    """The message that the deltas of a stream add up to, and its finish_reason."""
    body = {"model": "bible", "messages": USER, "max_tokens": 150, "seed": 1, "stream": True, **fields}
    message, reason = {"content": "", "tool_calls": []}, None
    for chunk in events(client.post("/v1/chat/completions", json=body)):
        (choice,) = chunk["choices"]
        message["content"] += choice["delta"].get("content") or ""
        for call in choice["delta"].get("tool_calls", ()):
            if "id" in call:
                assert call["index"] == len(message["tool_calls"])
                message["tool_calls"].append({"name": call["function"]["name"], "arguments": ""})
            message["tool_calls"][call["index"]]["arguments"] += call["function"]["arguments"]
        reason = choice["finish_reason"] or reason
    return message, reason


@pytest.mark.parametrize("text", [HERMES, PLAIN], ids=["hermes", "plain"])
@pytest.mark.parametrize("choice", ["required", NAMED], ids=["required", "named"])
def test_calls_fit_the_schemas_of_the_tools(client, template, text, choice):
    template(text)
    for seed in range(4):
        fields = {"tools": TOOLS, "tool_choice": choice, "seed": seed, "parallel_tool_calls": False}
        (whole,) = chat(client, **fields)["choices"]
        assert whole["finish_reason"] == "tool_calls"
        assert whole["message"]["content"] is None
        (call,) = whole["message"]["tool_calls"]
        arguments = json.loads(call["function"]["arguments"])
        if call["function"]["name"] == "ask":
            assert arguments["who"] in ("Moses", "Aaron")
            assert set(arguments) == {"who"}
        else:
            assert (choice, call["function"]["name"], arguments) == ("required", "rest", {})
        message, reason = streamed_message(client, **fields)
        assert (message["tool_calls"], reason) == ([call["function"]], "tool_calls")


def test_parallel_calls_are_separate(client, template):
    template(HERMES)
    fields = {"tools": TOOLS[:1], "tool_choice": "required", "max_tokens": 400}
    counts = set()
    for seed in range(6):
        message = chat(client, **fields, seed=seed)["choices"][0]["message"]
        counts.add(len(message["tool_calls"]))
        assert len({call["id"] for call in message["tool_calls"]}) == len(message["tool_calls"])
    assert max(counts) > 1


def test_without_a_choice_the_model_may_answer_in_text(client, template):
    template(HERMES)
    (choice,) = chat(client, tools=TOOLS, temperature=0)["choices"]
    assert choice["message"]["content"]
    assert "tool_calls" not in choice["message"]
    assert chat(client, tools=TOOLS, tool_choice="none", temperature=0)["choices"][0]["message"]["content"]


def test_tools_reach_the_prompt_of_every_template(client, template):
    def prompt(**fields):
        ids = client.post("/tokenize", json={"model": "bible", **fields}).json()["tokens"]
        return client.post("/detokenize", json={"tokens": ids}).json()["prompt"]

    history = [
        *USER,
        {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "function": {"name": "ask", "arguments": '{"who": "Moses"}'}}]},
        {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "Yes"}]},
        {"role": "assistant", "refusal": "I may not"},
        {"role": "developer", "content": "Be brief"},
    ]  # fmt: skip
    template(HERMES)
    text = prompt(messages=history, tools=TOOLS)
    for part in ("ask rest", "[ask Moses]", "tool: Yes", "assistant: I may not", "system: Be brief"):
        assert part in text
    template(PLAIN)
    text = prompt(messages=history, tools=TOOLS)
    for part in ("system: You may call functions", '"description": "Ask a man"', '"name": "ask"', "Moses"):
        assert part in text


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "x"}}}, "tool_choice"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}]}, "messages"),
        ({"thinking_budget": 3}, "thinking_budget"),
        ({"decoder": "MBR(4)", "response_format": {"type": "json_object"}}, None),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused(client, template, fields, param):
    template(HERMES)
    error = chat(client, status=400, **{"messages": USER, **fields})["error"]
    assert error["param"] == param
    assert len(error["message"]) > 10


def test_reasoning_is_split_off_and_limited(client, template, bible):
    template(THINKING)
    fields = {"temperature": 0, "thinking_budget": 4, "max_tokens": 150}
    message = chat(client, **fields)["choices"][0]["message"]
    assert message["reasoning_content"]
    assert len(bible.tokenizer.encode(message["reasoning_content"])) <= 8
    assert message["content"]
    assert "think>" not in message["content"] + message["reasoning_content"]
    answer = chat(
        client, **fields, response_format={"type": "json_schema", "json_schema": {"schema": CLOSED}}
    )
    message = answer["choices"][0]["message"]
    assert json.loads(message["content"])["who"] in ("Moses", "Aaron")
    assert message["reasoning_content"]


def test_unknown_fields_are_ignored_with_a_warning(client, template, server, monkeypatch):
    template(PLAIN)
    body = {"model": "bible", "messages": USER, "max_tokens": 2, "frequencey": 1, "user": "me", "stop": None}
    answer = client.post("/v1/chat/completions", json=body)
    assert answer.headers["warning"] == '299 unspool "ignored: frequencey"'
    streamed = client.post("/v1/chat/completions", json={**body, "stream": True})
    assert streamed.headers["warning"] == answer.headers["warning"]
    del body["frequencey"]
    assert "warning" not in client.post("/v1/chat/completions", json=body).headers
    monkeypatch.setattr(server, "is_strict", True)
    refused = client.post("/v1/chat/completions", json={**body, "frequencey": 1})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "frequencey")


def test_a_model_has_aliases(client):
    assert [it["id"] for it in client.get("/v1/models").json()["data"]] == ["bible", "gpt-4o"]
    body = {"model": "gpt-4o", "prompt": "In the", "max_tokens": 1}
    assert client.post("/v1/completions", json=body).json()["model"] == "gpt-4o"


def test_requests_have_ids(client):
    assert len(client.get("/health").headers["x-request-id"]) == 24
    assert client.get("/health", headers={"x-request-id": "mine-1"}).headers["x-request-id"] == "mine-1"
    assert client.get("/health", headers={"x-request-id": "a b"}).headers["x-request-id"] != "a b"


def test_prompt_logprobs_are_those_of_score(client, bible):
    body = {"model": "bible", "prompt": "In the beginning God", "max_tokens": 1, "prompt_logprobs": 2}
    (choice,) = client.post("/v1/completions", json=body).json()["choices"]
    ids = bible.tokenizer.encode("In the beginning God")
    first, *rest = choice["prompt_logprobs"]
    assert first is None
    found = [entry[str(token)]["logprob"] for token, entry in zip(ids[1:], rest, strict=True)]
    assert found == list(us.score(bible, ids[:1], ids[1:]).logps)
    assert all(2 <= len(entry) <= 3 for entry in rest)


def test_embeddings_are_means_of_hidden_states(client, bible):
    texts = ["In the beginning", "God said " * 80]
    answer = client.post("/v1/embeddings", json={"model": "bible", "input": texts}).json()
    for text, record in zip(texts, answer["data"], strict=True):
        hidden_MD, _, _ = bible.prompt_reading.read_all([bible.tokenizer.encode(text)])
        mean_D = hidden_MD.double().mean(dim=0)
        assert record["embedding"] == pytest.approx((mean_D / mean_D.norm()).tolist(), abs=1e-6)
    assert answer["usage"]["prompt_tokens"] == sum(len(bible.tokenizer.encode(text)) for text in texts)
    too_long = client.post("/v1/embeddings", json={"model": "bible", "input": "x " * 3000})
    assert too_long.status_code == 400


# ---- /v1/responses


def respond(client, status=200, **fields):
    body = {"model": "bible", "input": "Who?", "max_output_tokens": 150, "seed": 1, **fields}
    answer = client.post("/v1/responses", json=body)
    assert answer.status_code == status, answer.text
    return answer


FLAT = [{"type": "function", **it["function"]} for it in TOOLS]


def test_a_response_has_the_text_of_the_chat(client, template):
    template(PLAIN)
    messages = [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "Who?"}]
    expected = chat(client, messages, ignore_eos=True, max_tokens=40)
    fields = {"instructions": "Be brief", "ignore_eos": True, "max_output_tokens": 40}
    found = respond(client, **fields).json()
    (item,) = found["output"]
    assert item["content"][0]["text"] == expected["choices"][0]["message"]["content"]
    assert (found["status"], found["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    stream = events(respond(client, **fields, stream=True))
    assert [it["sequence_number"] for it in stream] == list(range(len(stream)))
    text = "".join(it["delta"] for it in stream if it["type"] == "response.output_text.delta")
    assert text == item["content"][0]["text"]
    assert stream[-1]["type"] == "response.incomplete"
    assert stream[-1]["response"]["usage"] == found["usage"]


def test_a_response_calls_functions(client, template):
    template(HERMES)
    fields = {"tools": FLAT, "tool_choice": {"type": "function", "name": "ask"}}
    (item,) = respond(client, **fields).json()["output"]
    assert (item["type"], item["name"]) == ("function_call", "ask")
    assert json.loads(item["arguments"])["who"] in ("Moses", "Aaron")
    stream = events(respond(client, **fields, stream=True))
    kinds = [it["type"].removeprefix("response.") for it in stream]
    assert kinds[:3] == ["created", "in_progress", "output_item.added"]
    assert kinds[-3:] == ["function_call_arguments.done", "output_item.done", "completed"]
    assert stream[-3]["arguments"] == item["arguments"]
    history = [
        {"role": "user", "content": [{"type": "input_text", "text": "Who?"}]},
        {"type": "function_call", "call_id": "a", "name": "ask", "arguments": '{"who": "Aaron"}'},
        {"type": "function_call_output", "call_id": "a", "output": "Yes"},
    ]
    assert respond(client, input=history, tools=FLAT).json()["output"]


def test_a_response_has_a_form(client, template):
    template(PLAIN)
    form = {"format": {"type": "json_schema", "name": "who", "schema": CLOSED}}
    (item,) = respond(client, text=form).json()["output"]
    assert json.loads(item["content"][0]["text"])["who"] in ("Moses", "Aaron")
    error = respond(client, status=400, previous_response_id="resp_1").json()["error"]
    assert error["param"] == "previous_response_id"
