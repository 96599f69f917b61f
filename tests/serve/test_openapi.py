from fastapi import FastAPI

from unspool.serve.app import REFUSED, streamed
from unspool.serve.requests import TokenizeRequest
from unspool.serve.responses import Tokens


async def count(body: TokenizeRequest) -> dict[str, int]:
    return {"n": len(body.prompt)}


def test_answers_and_refusals_are_told():
    app = FastAPI(responses=REFUSED)
    app.post("/count", response_model=None, responses=streamed(Tokens))(count)
    document = app.openapi()
    responses = document["paths"]["/count"]["post"]["responses"]
    assert set(responses) == {"200", "default"}
    assert set(responses["200"]["content"]) == {"application/json", "text/event-stream"}
    whole = responses["200"]["content"]["application/json"]["schema"]["$ref"]
    refused = responses["default"]["content"]["application/json"]["schema"]["$ref"]
    assert (whole, refused) == ("#/components/schemas/Tokens", "#/components/schemas/Refusal")
    assert set(document["components"]["schemas"]) == {"TokenizeRequest", "Tokens", "Refusal", "ErrorFacts"}
