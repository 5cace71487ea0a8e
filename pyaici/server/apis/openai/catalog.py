"""Routes `GET /v1/models` and `GET /v1/models/{name}`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel

from pyaici.server.http.access import Runner
from pyaici.server.models import ServedModel

router = APIRouter(tags=["openai"])


class Model(BaseModel):
    """The model that the server serves."""

    id: str
    object: str = "model"
    created: int
    owned_by: str = "aici"
    max_model_len: int


class ModelList(BaseModel):
    """A list with the one model."""

    object: str = "list"
    data: list[Model]


@router.get("/v1/models")
async def list_models(request: Request, user: Runner) -> ModelList:
    """Lists the model that is served."""
    return ModelList(data=[_describe(request.app.state.service.model)])


@router.get("/v1/models/{name:path}")
async def describe_model(request: Request, name: Annotated[str, Path(max_length=256)], user: Runner) -> Model:
    """Describes the served model, if it has this name."""
    model: ServedModel = request.app.state.service.model
    model.check_name(name)
    return _describe(model)


def _describe(model: ServedModel) -> Model:
    return Model(id=model.name, created=int(model.created), max_model_len=model.max_context)
