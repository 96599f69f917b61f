from fastapi import FastAPI

from unspool.serve.openapi import described
from unspool.serve.request_fields import TokenizeRequest


async def chat(body: TokenizeRequest) -> dict[str, int]:
    return {"n": len(body.prompt)}


def test_refusals_are_told_as_openai_tells_them():
    app = FastAPI()
    app.post("/chat")(chat)
    app.post("/count")(chat)
    assert "422" in FastAPI.openapi(app)["paths"]["/chat"]["post"]["responses"]
    app.openapi_schema = None
    for path in described(app)["paths"].values():
        responses = path["post"]["responses"]
        assert set(responses) == {"200", "default"}
        error = responses["default"]["content"]["application/json"]["schema"]["properties"]["error"]
        assert set(error["properties"]) == {"message", "type", "param", "code"}
        assert set(responses["200"]["content"]) == {"application/json", "text/event-stream"}
