"""Requests with a controller that `aici serve` and vLLM's server answer alike, with OpenAI's client."""

from __future__ import annotations

import json
from typing import Any

import openai

YEAR = " [A-Z][a-z]{2,7}, [0-9]{4}"
SCRIPT = """
from aici import *
async def main():
    await force(" 2 + 3 =")
    await gen(regex=" [0-9]")
    await force(f" and {arg}")
"""
SCHEMA = {
    "type": "object",
    "properties": {"whale": {"enum": ["fish", "mammal"]}},
    "required": ["whale"],
    "additionalProperties": False,
}


def answers(client: openai.OpenAI, model: str) -> list[str]:
    """Sends requests as clients of AICI in vLLM do; returns the texts of the answers."""

    def complete(xargs: dict[str, Any], **options: Any) -> Any:
        return client.completions.create(
            model=model,
            prompt="The capital of France is",
            temperature=0,
            max_tokens=40,
            extra_body={"vllm_xargs": xargs},
            **options,
        )

    pattern = {"aici_controller": "regex", "aici_arg": YEAR, "aici_keep": 1}
    chat = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": "Is a whale a fish? Answer in JSON."}],
        temperature=0,
        max_tokens=40,
        extra_body={"vllm_xargs": {"aici_controller": "json_schema", "aici_arg": json.dumps(SCHEMA)}},
    )
    script = json.dumps({"language": "python", "source": SCRIPT, "arg": 6})
    return [
        complete(pattern).choices[0].text,
        "".join(chunk.choices[0].text for chunk in complete(pattern, stream=True) if chunk.choices),
        chat.choices[0].message.content or "",
        complete({"aici_script": script, "aici_calls": "true"}).choices[0].text,
    ]
