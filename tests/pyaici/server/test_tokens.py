"""`/tokenize`, `/detokenize` and `/version`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyaici
from tests.pyaici.engines.batching.support import BOS
from tests.pyaici.server.serving import Serving
from tests.pyaici.server.small import Bytes, served, small_engine


def test_tokens_of_texts_and_chats(server: Serving, tokens: dict[str, str]) -> None:
    with server.client(tokens["eve"]) as client:
        text = "Héllo, world!\n"
        found = client.post("/tokenize", json={"prompt": text, "return_token_strs": True}).json()
        assert found["count"] == len(found["tokens"]) == len(found["token_strs"]) > 3
        assert found["max_model_len"] > found["count"] and found["token_strs"][-1] == "\n"
        assert client.post("/detokenize", json={"tokens": found["tokens"]}).json() == {"prompt": text}
        chat = client.post("/tokenize", json={"messages": [{"role": "user", "content": text}]}).json()
        whole = client.post("/detokenize", json={"tokens": chat["tokens"]}).json()["prompt"]
        assert text.strip() in whole and "<|im_start|>user" in whole and "token_strs" in chat
        for body in ({}, {"prompt": "a", "messages": []}, {"prompt": "a", "model": "other"}):
            assert client.post("/tokenize", json=body).status_code in (400, 404)
        refused = client.post("/detokenize", json={"tokens": [10**8]})
        assert refused.status_code == 400 and refused.json()["error"]["param"] == "tokens"


def test_clients_of_vllm_need_no_tokenizer(exact_server: Serving, tokens: dict[str, str]) -> None:
    """The requests by which lm-eval-harness finds and uses the server's tokenizer."""
    with exact_server.client(tokens["eve"]) as client:
        info = client.get("/tokenizer_info").json()
        assert info["eos_token"] == "<|im_end|>" and info["bos_token"] == "<|im_start|>"
        assert "im_start" in info["chat_template"] and info["model_max_length"] == 8192

        def encode(**body: Any) -> list[int]:
            found: list[int] = client.post("/tokenize", json=body).json()["tokens"]
            return found

        assert len(encode(prompt=info["eos_token"], add_special_tokens=False)) == 1
        messages = [{"role": "user", "content": "Hi"}]
        chat, open_end = encode(messages=messages), encode(messages=messages, add_generation_prompt=False)
        begun = client.post("/detokenize", json={"tokens": chat[len(open_end) :]}).json()
        assert chat[: len(open_end)] == open_end and begun == {"prompt": "<|im_start|>assistant\n"}


def test_special_tokens_around_prompts_are_optional() -> None:
    class Framing(Bytes):
        def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
            return [*([BOS] if add_special_tokens else []), *text.encode()]

    model = replace(served(small_engine()), tokenizer=Framing())
    assert model.encode("a") == [BOS, 97] and model.encode("a", special=False) == [97]


def test_the_version_needs_no_token(server: Serving) -> None:
    with server.client() as client:
        assert client.get("/version").json() == {"version": pyaici.__version__}
