"""`/tokenize`, `/detokenize` and `/version`."""

from __future__ import annotations

import pyaici
from tests.pyaici.server.serving import Serving


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


def test_the_version_needs_no_token(server: Serving) -> None:
    with server.client() as client:
        assert client.get("/version").json() == {"version": pyaici.__version__}
