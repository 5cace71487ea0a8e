"""Routes `GET /v1/models` and `GET /v1/models/{name}`; refuses embeddings."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel

from pyaici.server.http.access import Runner
from pyaici.server.http.errors import bad_request
from pyaici.server.models import ServedModel

router = APIRouter(tags=["openai"])


class Model(BaseModel):
    """The model that the server serves, with the fields of both APIs."""

    id: str
    object: str = "model"
    created: int
    owned_by: str = "aici"
    max_model_len: int
    type: str = "model"
    display_name: str
    created_at: datetime
    lifecycle: str = "active"
    max_input_tokens: int


class ModelList(BaseModel):
    """A list with the one model."""

    object: str = "list"
    data: list[Model]
    has_more: bool = False
    first_id: str
    last_id: str


@router.get("/api/v1/models")
@router.get("/v1/models")
async def list_models(request: Request, user: Runner) -> ModelList:
    """Lists the model that is served."""
    model = _describe(request.app.state.service.model)
    return ModelList(data=[model], first_id=model.id, last_id=model.id)


@router.get("/api/v1/models/{name:path}")
@router.get("/v1/models/{name:path}")
async def describe_model(request: Request, name: Annotated[str, Path(max_length=256)], user: Runner) -> Model:
    """Describes the served model, if it has this name."""
    model: ServedModel = request.app.state.service.model
    model.check_name(name)
    return _describe(model)


@router.post("/v1/embeddings", status_code=400)
@router.post("/api/embed", status_code=400)
@router.post("/api/embeddings", status_code=400)
async def embed(request: Request, user: Runner) -> None:
    """Refuses the request: the models that this server runs are made for generating text."""
    name = request.app.state.service.model.name
    message = f"{name} is a model that generates text: its hidden states are no embeddings, so it has none"
    raise bad_request(message, "model", "no_embeddings")


def _describe(model: ServedModel) -> Model:
    return Model(
        id=model.name,
        created=int(model.created),
        max_model_len=model.max_context,
        display_name=model.name,
        created_at=datetime.fromtimestamp(int(model.created), UTC),
        max_input_tokens=model.max_context,
    )
