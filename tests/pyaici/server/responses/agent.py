"""An agent of pydantic-ai at a server of the Responses API: ``python agent.py URL`` prints what it finds."""

from __future__ import annotations

import json
import os
import sys
from typing import Annotated, Any

from pydantic import BaseModel, Field
from pydantic_ai import Agent, ModelSettings, NativeOutput
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider


class City(BaseModel):
    """A city, as the model has to write it."""

    name: Annotated[str, Field(max_length=12)]
    capital: bool


def main(url: str) -> None:
    """Prints answers of each kind, as JSON."""
    provider = OpenAIProvider(base_url=f"{url}/v1", api_key=os.environ["AICI_TOKEN"])
    model = OpenAIResponsesModel("default", provider=provider)
    settings = ModelSettings(temperature=0, max_tokens=60)
    stored: Any = {**settings, "openai_previous_response_id": "auto"}
    found: dict[str, Any] = {}
    agent = Agent(model, model_settings=settings)
    first = agent.run_sync("Count from 1 to 3.", model_settings=stored)
    found["text"] = first.output
    found["next"] = agent.run_sync(
        "And on?", message_history=first.all_messages(), model_settings=stored
    ).output
    found["tokens"] = first.usage.output_tokens
    found["streamed"] = "".join(agent.run_stream_sync("Count from 1 to 3.").stream_text(delta=True))
    # the answer is the call of a tool, and then a text that follows a schema
    for name, kind in (("call", City), ("schema", NativeOutput(City))):
        asked: Any = Agent(model, output_type=kind, model_settings=settings).run_sync("Is Oslo a capital?")
        found[name] = asked.output.model_dump()
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
