"""Start `unspool serve` and call it with the OpenAI client: a chat with a decoder, a stream, and a tool call."""

import socket
import subprocess
import sys
import time

import openai

MODEL = "smollm2"
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The current weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 20}},
            "required": ["city"],
        },
    },
}


def ask(question):
    return {"model": MODEL, "messages": [{"role": "user", "content": question}], "max_tokens": 40}


with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
command = [sys.executable, "-m", "unspool", "serve", MODEL, "--port", str(port)]
server = subprocess.Popen(command, stdout=subprocess.DEVNULL)  # without its log
try:
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0)
    for _ in range(120):
        try:
            client.models.list()
            break
        except openai.APIConnectionError:
            time.sleep(0.5)

    decoder = {"decoder": "Sample(Temperature(0.8), MinP(0.05))"}
    answer = client.chat.completions.create(**ask("Why is the sky blue?"), seed=1, extra_body=decoder)
    print(answer.choices[0].message.content)

    question = ask("What is the capital of France?")
    for chunk in client.chat.completions.create(**question, temperature=0, stream=True):
        print(chunk.choices[0].delta.content or "", end="", flush=True)
    print()

    called = client.chat.completions.create(
        **ask("What is the weather in Paris?"),
        temperature=0,
        tools=[TOOL],
        tool_choice="required",  # small models seldom decide to call a tool
        parallel_tool_calls=False,
    )
    function = called.choices[0].message.tool_calls[0].function
    print(function.name, function.arguments)
finally:
    server.terminate()
    server.wait()
