"""The base of all request bodies: null means the default, and unknown fields are kept to warn about them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema

TokenId = Annotated[int, Field(ge=0, le=10_000_000)]
Ids = Annotated[list[TokenId], Field(min_length=1, max_length=1_000_000)]
Int64 = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]

WITHOUT_EFFECT = frozenset(
    {
        *("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "verbosity"),
        *("cache_prompt", "id_slot", "request_id", "priority", "modalities", "prompt_cache_retention"),
        *("include", "background", "truncation", "include_reasoning", "skip_special_tokens", "encoding"),
        *("add_generation_prompt", "spaces_between_special_tokens", "cache_salt"),
    }
)
"""Fields that do not change a text here; accepted without a warning."""
MAX_NAMED = 10
"""How many ignored fields a warning names."""


class RequestModel(BaseModel):
    """A part of a request. Null means the default; unknown fields are kept in `model_extra`."""

    model_config = ConfigDict(extra="allow")

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        if isinstance(data, dict):
            return {name: value for name, value in data.items() if value is not None}
        return data

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """The schema, in which every optional field may be null."""
        reference = handler(core)
        schema = handler.resolve_ref_schema(reference)
        required = schema.get("required", ())
        schema["properties"] = {
            name: field if name in required else {"anyOf": [field, {"type": "null"}]}
            for name, field in schema.get("properties", {}).items()
        }
        return reference


class StrictModel(RequestModel):
    """A part of a request that rejects unknown fields."""

    model_config = ConfigDict(extra="forbid")


def ignored_fields(value: Any, path: str = "") -> Iterator[str]:
    """The paths of the unknown fields of a request, except those without an effect."""
    if isinstance(value, RequestModel):
        for name in value.model_extra or ():
            if name not in WITHOUT_EFFECT:
                yield f"{path}{name}"
        for name in type(value).model_fields:
            yield from ignored_fields(getattr(value, name), f"{path}{name}.")
    elif isinstance(value, list):
        for each in value:
            yield from ignored_fields(each, path)


def field_warning(names: list[str]) -> str:
    """The value of the header `Warning` for ignored fields (RFC 7234, code 299)."""
    shown = [re.sub(r"[^\w.-]", "?", name, flags=re.ASCII)[:60] for name in dict.fromkeys(names)]
    more = f" and {len(shown) - MAX_NAMED} more" if len(shown) > MAX_NAMED else ""
    return f'299 unspool "ignored: {", ".join(shown[:MAX_NAMED])}{more}"'
