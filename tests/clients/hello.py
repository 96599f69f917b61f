"""The hello world of clients of OpenAI's API against `unspool serve`, with tools where the client has them.

    python tests/clients/hello.py --unspool .venv/bin/unspool     # what `make test-clients` runs

A client that is not installed is named, and does not fail the run. Other failures do.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

KEY = "a-key-for-these-clients"
MODEL = "smollm2"
QUESTION = "What is the weather in Paris?"
SHORT = 24
"""Tokens of a text: the machine may be slow."""


def openai(url):
    import json

    from openai import OpenAI

    client = OpenAI(base_url=url, api_key=KEY)
    messages = [{"role": "user", "content": "Say hello."}]
    answer = client.chat.completions.create(model=MODEL, messages=messages, max_tokens=SHORT)
    assert answer.choices[0].message.content
    weather = {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 20}},
            "required": ["city"],
        },
    }
    messages = [{"role": "user", "content": QUESTION}]
    called = client.chat.completions.create(
        model=MODEL,
        messages=messages,
        tools=[{"type": "function", "function": weather}],
        tool_choice="required",
        parallel_tool_calls=False,
        temperature=0,
    )
    (call,) = called.choices[0].message.tool_calls
    assert "city" in json.loads(call.function.arguments)
    result = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
    history = [*messages, called.choices[0].message, result]
    assert client.chat.completions.create(model=MODEL, messages=history, max_tokens=SHORT).choices
    with client.responses.stream(model=MODEL, input="Say hello.", max_output_tokens=SHORT) as stream:
        events = list(stream)
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert events[-1].response.output_text
    vectors = client.embeddings.create(model=MODEL, input=["a", "b"]).data
    assert len(vectors) == 2
    assert abs(sum(x * x for x in vectors[0].embedding) - 1) < 1e-3


def litellm(url):
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # do not ask the network
    import litellm

    tool = {
        "type": "function",
        "function": {"name": "rest", "parameters": {"type": "object", "properties": {}}},
    }
    answer = litellm.completion(
        model=f"openai/{MODEL}",
        api_base=url,
        api_key=KEY,
        messages=[{"role": "user", "content": "Rest."}],
        tools=[tool],
        tool_choice="required",
        parallel_tool_calls=False,
    )
    assert answer.choices[0].message.tool_calls[0].function.name == "rest"


def langchain_openai(url):
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI

    @tool
    def turn(on: bool) -> str:
        """Turn the light on or off."""
        return str(on)

    model = ChatOpenAI(model=MODEL, base_url=url, api_key=KEY, temperature=0, max_tokens=120)
    assert model.invoke("Say hello.").content
    (call,) = model.bind_tools([turn], tool_choice="turn").invoke("Turn the light on.").tool_calls
    assert isinstance(call["args"]["on"], bool)


def llm(url):
    with tempfile.TemporaryDirectory() as folder:
        settings = f"- model_id: served\n  model_name: {MODEL}\n  api_base: {url}\n  api_key_name: served\n"
        Path(folder, "extra-openai-models.yaml").write_text(settings)
        command = [Path(sys.executable).with_name("llm"), "-m", "served", "--key", KEY, "Say hello."]
        command += ["-o", "max_tokens", str(SHORT)]
        environment = {**os.environ, "LLM_USER_PATH": folder}
        assert subprocess.run(
            command, env=environment, check=True, capture_output=True, timeout=120
        ).stdout.strip()


def instructor(url):
    from typing import Literal

    import instructor
    from openai import OpenAI
    from pydantic import BaseModel

    class Person(BaseModel):
        name: Literal["Anna", "Bob"]
        is_adult: bool

    client = instructor.from_openai(OpenAI(base_url=url, api_key=KEY), mode=instructor.Mode.TOOLS)
    messages = [{"role": "user", "content": "Anna is 30 years old."}]
    person = client.chat.completions.create(
        model=MODEL, messages=messages, response_model=Person, max_retries=0
    )
    assert person.name in ("Anna", "Bob")


def pydantic_ai(url):
    from typing import Literal

    from pydantic import BaseModel
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    class Weather(BaseModel):
        sky: Literal["sunny", "cloudy"]

    model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=url, api_key=KEY))
    assert Agent(model).run_sync("Say hello.", model_settings={"max_tokens": SHORT}).output
    assert Agent(model, output_type=Weather).run_sync("It is sunny.").output.sky in ("sunny", "cloudy")


def dspy(url):
    import dspy

    model = dspy.LM(
        f"openai/{MODEL}", api_base=url, api_key=KEY, max_tokens=SHORT, temperature=0.5, cache=False
    )
    assert model("Say hello.")
    assert model(messages=[{"role": "user", "content": "Say hello."}])


def guidance(url):
    from guidance import assistant, gen, models, user

    model = models.OpenAI(MODEL, base_url=url, api_key=KEY, echo=False)
    with user():
        model += "Say hello."
    with assistant():
        model += gen("reply", max_tokens=SHORT)
    assert model["reply"]


def lm_eval(url):
    from lm_eval.api.instance import Instance
    from lm_eval.models.openai_completions import LocalCompletionsAPI

    os.environ["OPENAI_API_KEY"] = KEY
    model = LocalCompletionsAPI(
        base_url=f"{url}/completions",
        model=MODEL,
        tokenizer_backend=None,
        tokenized_requests=False,
        max_gen_toks=8,
    )
    asked = Instance("generate_until", {}, ("The sky is", {"until": ["\n"], "temperature": 0}), 0)
    (text,) = model.generate_until([asked], disable_tqdm=True)
    assert text


CLIENTS = (openai, litellm, langchain_openai, llm, instructor, pydantic_ai, dspy, guidance, lm_eval)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--unspool", default=".venv/bin/unspool", help="the program to start")
    parser.add_argument("--url", help="a server that runs already")
    parser.add_argument("clients", nargs="*", choices=[*(it.__name__ for it in CLIENTS), []])
    args = parser.parse_args()
    process = None
    if args.url is None:
        command = [args.unspool, "serve", MODEL, "--port", "0", "--weights", "int8"]
        environment = {**os.environ, "UNSPOOL_API_KEYS": KEY}
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
        )
        found = (re.search(r"running on (http://\S+)", line) for line in process.stderr)
        args.url = next(it[1] for it in found if it)
    failures = 0
    try:
        for client in CLIENTS:
            if args.clients and client.__name__ not in args.clients:
                continue
            began = time.monotonic()
            try:
                client(f"{args.url}/v1")
                result = f"ok, {time.monotonic() - began:.1f} s"
            except ModuleNotFoundError as error:
                result = f"not installed ({error.name})"
            except Exception:
                failures += 1
                result = f"failed\n{traceback.format_exc()}"
            print(f"{client.__name__:18}{result}", flush=True)
    finally:
        if process is not None:
            process.terminate()
            process.wait(60)
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main())
