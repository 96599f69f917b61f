"""Start `unspool serve` and call it with the OpenAI client: a completion with a decoder, then a stream."""

import socket
import subprocess
import sys
import time

import openai

MODEL = "bible"

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
server = subprocess.Popen([sys.executable, "-m", "unspool", "serve", MODEL, "--port", str(port)])
try:
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0)
    for _ in range(120):
        try:
            client.models.list()
            break
        except openai.APIConnectionError:
            time.sleep(0.5)

    answer = client.completions.create(
        model=MODEL,
        prompt="In the beginning",
        max_tokens=12,
        seed=1,
        extra_body={"decoder": "Sample(Temperature(0.8), MinP(0.05))"},
    )
    print(answer.choices[0].text)

    for chunk in client.completions.create(
        model=MODEL, prompt="And the king", max_tokens=12, temperature=0, stream=True
    ):
        print(chunk.choices[0].text, end="", flush=True)
    print()
finally:
    server.terminate()
    server.wait()
