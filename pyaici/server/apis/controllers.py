"""Routes for controllers: upload, list, describe, tag, delete; and scripts in requests."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, Field

from aicirt.contract.errors import AiciError
from aicirt.contract.modules import MAX_NAME, NAME_PATTERN
from pyaici.bundled import DESCRIPTIONS, bundled_controllers
from pyaici.scripting.script import Script, requested_script
from pyaici.server.apis.fields import MAX_ARG, StrictBody
from pyaici.server.apis.json_bodies import JsonRoute
from pyaici.server.http.access import Runner, Uploader
from pyaici.server.http.errors import bad_request, check_text, from_aici
from pyaici.server.service import ControllerCall

if TYPE_CHECKING:
    from aicirt.contract.modules import ControllerInfo
    from pyaici.server.controller_store import ControllerStore


ARG_WITHOUT_CONTROLLER = "controller_arg needs a controller; use script.arg for the argument of a script"


class ScriptText(StrictBody):
    """A controller written as a script in the request."""

    language: Literal["python", "javascript"]
    source: Annotated[str, Field(min_length=1, max_length=MAX_ARG)] = Field(description="text of the script")
    name: Annotated[str, Field(max_length=MAX_NAME, pattern=NAME_PATTERN)] | None = Field(
        None, description="name of the script in messages; default: script.py or script.js"
    )


class ScriptBody(ScriptText):
    """A script to run, with its argument."""

    arg: Any = Field(None, description="argument of the script, any JSON")


def read_script(body: ScriptText, where: str = "") -> Script:
    """Returns the script, after checking that its text can be encoded as UTF-8.

    `where`: path of the body in the request, with a dot at its end. Raises ApiError.
    """
    script = requested_script(body.language, body.source, body.name)
    check_text(body.source, f"{where}source")
    check_text(script.name, f"{where}name")
    return script


def script_call(body: ScriptBody, where: str = "script") -> ControllerCall:
    """Returns the call of the controller that runs the script at `where` in the request. Raises ApiError."""
    script = read_script(body, f"{where}.")
    try:
        arg = json.dumps(body.arg, ensure_ascii=False, allow_nan=False)
    except ValueError:
        raise bad_request("NaN and Infinity are not JSON", f"{where}.arg") from None
    if len(arg) > MAX_ARG:
        raise bad_request(
            f"the argument has {len(arg)} characters; at most {MAX_ARG} are allowed", f"{where}.arg"
        )
    check_text(arg, f"{where}.arg")
    return ControllerCall(script.language.controller, script.argument(body.arg), where, f"{where}.source")


UPLOAD_PATH = "/v1/controllers"
#: most controllers in one answer: 1000 of them are about half a megabyte
MAX_CONTROLLERS = 1000
router = APIRouter(tags=["controllers"], route_class=JsonRoute)

Name = Annotated[str, Path(min_length=1, max_length=128, description="id or tag of the controller")]
Limit = Annotated[int, Query(ge=1, le=MAX_CONTROLLERS, description="most controllers in one answer")]
After = Annotated[str, Query(max_length=64, description="list only controllers with ids after this one")]
Tag = Annotated[str, Path(min_length=1, max_length=64, description="the tag")]


class Controller(BaseModel):
    """An uploaded controller."""

    object: str = "controller"
    id: str = Field(description="SHA-256 of the module or script")
    tags: list[str]
    owners: list[str] = Field(description="users who have uploaded it")
    created: float = Field(description="time of the first upload, in seconds since 1970; 0 = unknown")
    size: int = Field(description="size of the module, or of the script's text, in bytes")
    abi_version: int
    callbacks: list[str] = Field(description="callbacks that the controller has")


class StoredScript(Controller):
    """An uploaded script. `callbacks` are those of its interpreter."""

    language: str
    script: str = Field(description="name of the script in messages")
    interpreter: str = Field(description="id of the module that runs it")


class Bundled(BaseModel):
    """A controller that comes with the server."""

    object: str = "bundled_controller"
    name: str
    description: str
    example_arg: str | None


class ControllerList(BaseModel):
    """The controllers that the user can find."""

    object: str = "list"
    data: list[StoredScript | Controller]
    bundled: list[Bundled]
    has_more: bool = Field(False, description="whether there are more controllers after the last one of data")


class TagRequest(StrictBody):
    """The controller that the tag names."""

    controller: str = Field(min_length=1, max_length=128, description="id or tag of the controller")


class Deleted(BaseModel):
    """Confirms that the controller or tag was deleted."""

    object: str = "deleted"
    id: str


@router.post(
    UPLOAD_PATH,
    status_code=201,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/wasm": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def upload(request: Request, user: Uploader) -> Controller:
    """Uploads a controller: the body is the .wasm file. Uploading it again changes nothing."""
    wasm = await request.body()
    if not wasm:
        raise bad_request("the body is empty: send the .wasm file, e.g. curl --data-binary @my_ctrl.wasm")
    try:
        return describe_module(await _controller_store(request).upload(wasm, user))
    except AiciError as error:
        raise from_aici(error) from None


@router.post("/v1/scripts", status_code=201)
async def upload_script(request: Request, body: ScriptText, user: Uploader) -> StoredScript | Controller:
    """Uploads a script, which can then be used like any controller. Uploading it again changes nothing."""
    script = read_script(body)
    try:
        return describe_module(await _controller_store(request).upload_script(script, user))
    except AiciError as error:
        raise from_aici(error, "source") from None


@router.get("/v1/controllers")
async def list_controllers(
    request: Request, user: Runner, limit: Limit = MAX_CONTROLLERS, after: After = ""
) -> ControllerList:
    """Lists the user's controllers, all controllers with a tag, and the bundled controllers.

    All but the bundled controllers are sorted by id.
    """
    try:
        modules, more = await _controller_store(request).list(user, after, limit)
    except AiciError as error:
        raise from_aici(error) from None
    bundled = [
        Bundled(name=name, description=text, example_arg=example)
        for name in bundled_controllers()
        for text, example in [DESCRIPTIONS.get(name, ("", None))]
    ]
    return ControllerList(data=[describe_module(info) for info in modules], bundled=bundled, has_more=more)


@router.get("/v1/controllers/{name}")
async def describe(request: Request, name: Name, user: Runner) -> StoredScript | Controller:
    """Describes a controller."""
    try:
        return describe_module(await _controller_store(request).describe(name, user))
    except AiciError as error:
        raise from_aici(error, "name") from None


@router.delete("/v1/controllers/{name}")
async def delete(request: Request, name: Name, user: Uploader) -> Deleted:
    """Deletes a controller that the user has uploaded. Other users who uploaded it keep it."""
    store = _controller_store(request)
    try:
        info = await store.describe(name, user)
        await store.remove(info.id, user)
    except AiciError as error:
        raise from_aici(error, "name") from None
    return Deleted(id=info.id)


@router.put("/v1/tags/{tag}")
async def put_tag(request: Request, tag: Tag, body: TagRequest, user: Uploader) -> StoredScript | Controller:
    """Gives a controller a tag. A tag that the user has given to another controller moves."""
    store = _controller_store(request)
    try:
        await store.tag(body.controller, tag, user)
        return describe_module(await store.describe(tag, user))
    except AiciError as error:
        raise from_aici(error, "tag") from None


@router.delete("/v1/tags/{tag}")
async def delete_tag(request: Request, tag: Tag, user: Uploader) -> Deleted:
    """Removes a tag; the controller stays."""
    try:
        await _controller_store(request).untag(tag, user)
    except AiciError as error:
        raise from_aici(error, "tag") from None
    return Deleted(id=tag)


def describe_module(info: ControllerInfo) -> StoredScript | Controller:
    """Returns the module as clients see it."""
    has = {
        "init": info.has_init,
        "init_prompt": info.has_init_prompt,
        "pre": info.has_pre,
        "post": info.has_post,
    }
    common: dict[str, Any] = {
        "id": info.id,
        "tags": info.tags,
        "owners": info.owners,
        "created": info.created,
        "size": info.size,
        "abi_version": info.abi_version,
        "callbacks": [*(name for name, present in has.items() if present), "mid"],
    }
    if not info.script:
        return Controller(**common)
    return StoredScript(language=info.language, script=info.script, interpreter=info.interpreter, **common)


def _controller_store(request: Request) -> ControllerStore:
    store: ControllerStore = request.app.state.service.controllers
    return store
