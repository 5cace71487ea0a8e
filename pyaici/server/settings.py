"""Settings of `aici serve`: flags, environment variables (AICI_SERVE_...) or a TOML file."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import AliasChoices, Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from aicirt.contract.errors import AiciError
from pyaici.tools.settings import CALLS_HELP, HTTP_HELP, MCP_HELP, SECONDS_HELP, ToolSettings

PREFIX = "AICI_SERVE_"
_QUOTED = re.compile('"([a-z_]+)"')
_PORT, _CPC_PORT = 8000, 6969
#: where Ollama listens by default
_OLLAMA_URL = "http://localhost:11434"


class ServerSettings(BaseSettings):
    """All settings of `aici serve`; flags override the environment, which overrides the file."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True)

    # -- listening
    host: str = Field("127.0.0.1", description="address to listen on; 0.0.0.0 also accepts other machines")
    port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="port to listen on; 0 = any free port (default: 8000; 6969 with --cpc)",
    )
    cpc: bool = Field(
        False, description="serve character-prefix completion at port 6969, where editors look for it"
    )
    cors_origins: list[str] = Field(
        [], description="origins whose pages may call the API from a browser, e.g. http://localhost:3000"
    )

    allowed_hosts: list[str] = Field(
        [],
        description="names under which clients may reach the server, besides localhost; on an address other "
        "than loopback, also besides IP addresses and the machine's own name; * = any",
    )
    trusted_proxies: list[str] = Field(
        [], description="addresses or networks of proxies whose X-Forwarded-For is trusted (default: none)"
    )
    loopback_apart: bool = Field(
        False,
        description="count each address of 127.0.0.0/8 as a caller of its own, for tests with several "
        "callers on one machine; otherwise all of them, and ::1, are one caller",
    )

    # -- the model
    engine: Literal["llama", "hf", "vllm"] | None = Field(
        None,
        description="llama = llama.cpp, hf = Transformers, vllm = vLLM (default: hf for the folder or Hub "
        "name of a model, else llama)",
    )
    model: Path | None = Field(
        None,
        description="GGUF file, folder of a model, or a model's name on the Hugging Face Hub (default: "
        "SmolLM2-135M-Instruct)",
        validation_alias=AliasChoices("model", f"{PREFIX}MODEL", "HF_MODEL"),
    )
    model_name: str | None = Field(
        None,
        description="name of the model for clients (default: that of the model's file, folder or Hub page, "
        "or of the default model)",
    )
    model_aliases: list[str] = Field(
        ["rwkv-world"], description="other names that requests may use for the model"
    )
    messages_prompt: Literal["auto", "ai00", "template"] = Field(
        "auto",
        description="prompt format of /api/v1/messages: that of ai00, or the model's own chat template; "
        "auto = the chat template, if the model has one",
    )
    messages_validation: Literal["structural", "schema_aware"] = Field(
        "structural",
        description="bnf_validation of requests to /v1/messages with tools or thinking that do not set it; "
        "with schema_aware, calls match their schemas, as most clients of Claude expect",
    )
    device: str | None = Field(None, description="cpu, cuda, ... (default: cuda if available; only for hf)")
    trust_remote_code: bool = Field(
        False,
        description="run the Python files in the folder of a model whose architecture Transformers does not "
        "have (hf, vllm)",
    )
    second: list[str] = Field(
        [],
        description="NAME=MODEL: a second model with the same vocabulary, whose logits controllers mix into "
        "those of the first by this name; may be repeated (llama, hf)",
    )
    keep_prompts: int = Field(
        8,
        ge=0,
        le=256,
        description="number of ended sequences whose cache is kept for prompts with the same beginning (not "
        "for vllm)",
    )

    kv_cache_tokens: int | None = Field(
        None,
        ge=1024,
        description="tokens in the key-value cache. Default for llama: two contexts of the model, but at "
        "most an eighth of the free memory, allocated at the start; for hf: what fits into 40 % of the free "
        "memory, 64 % on a GPU. With hf, each request takes as many tokens as the longest one. Not for "
        "models without such a cache, e.g. Mamba",
    )
    threads: int | None = Field(
        None,
        ge=1,
        le=256,
        description="threads of the model (llama); more than idle processors make it slow (default: one for "
        "each processor core but one)",
    )
    llama_library: Path | None = Field(
        None, description="a libllama.so that you have built, e.g. for CUDA (default: that of xllamacpp)"
    )

    # -- controllers
    socket: Path | None = Field(None, description="socket of a running aicirt (default: start one)")
    store: Path | None = Field(
        None, description="folder of uploaded controllers, if the server starts aicirt"
    )
    workers: int | None = Field(
        None, ge=1, description="number of processes that run controllers, if the server starts aicirt"
    )
    isolate_owners: bool = Field(
        False, description="use separate worker processes for each user, if the server starts aicirt"
    )

    shared_store: str | None = Field(
        None,
        description="folder, or s3://BUCKET/FOLDER and the like, of controllers and tags that all replicas "
        "of this server share (default: each has its own)",
    )
    oci_allow: list[str] = Field(
        [],
        description="registries, or folders of registries, whose controllers requests may name, as in "
        "oci://registry.example/team/name:1.0 with registry.example/team; may be repeated",
    )
    oci_keys: list[Path] = Field(
        [],
        description="files of public keys, one of which must have signed such a controller with cosign; may "
        "be repeated",
    )

    # -- calls of controllers (docs/tools.md)
    mcp: list[str] = Field([], description=MCP_HELP)
    http_allow: list[str] = Field([], description=HTTP_HELP)
    tool_calls: int = Field(8, ge=1, description=CALLS_HELP)
    tool_seconds: float = Field(30, gt=0, description=SECONDS_HELP)

    # -- access
    users: Path | None = Field(None, description="file of users and tokens, written by `aici users`")
    anonymous: Literal["none", "run", "upload", "admin"] | None = Field(
        None, description="role of requests without a token (default: run; none if there is a file of users)"
    )
    requests_per_minute: int = Field(
        1200,
        ge=0,
        description="average number of requests a minute of each user, or of each address without a token; "
        "0 = unlimited",
    )

    # -- character-prefix completion; its environment variables keep their earlier names, too
    cpc_backend: Literal["pcas", "ollama"] = Field(
        "pcas",
        description="default backend of completions: the served model (pcas), or Ollama",
        validation_alias=AliasChoices("cpc_backend", f"{PREFIX}CPC_BACKEND", "CPC_BACKEND"),
    )
    ollama_url: str | None = Field(
        None,
        description="URL of an Ollama server, which requests may then select (default: none; "
        "http://localhost:11434 for --cpc-backend ollama)",
        validation_alias=AliasChoices("ollama_url", f"{PREFIX}OLLAMA_URL", "OLLAMA_URL"),
    )
    ollama_model: str = Field(
        "gpt-oss:20b",
        description="model of the Ollama server",
        validation_alias=AliasChoices("ollama_model", f"{PREFIX}OLLAMA_MODEL", "OLLAMA_MODEL"),
    )

    # -- limits
    max_streams: int = Field(64, ge=1, description="number of requests that generate at the same time")
    max_waiting: int = Field(
        256, ge=0, description="number of requests that may wait for their turn; further ones get status 503"
    )
    max_waiting_each: int = Field(
        128,
        ge=0,
        description="waiting requests of each user, or of each address without a token; further ones get "
        "status 429",
    )
    max_parked: int = Field(
        512,
        ge=0,
        description="requests whose controllers wait for messages or calls, and that do not count as "
        "generating meanwhile; further ones count",
    )
    max_parked_each: int = Field(64, ge=0, description="such requests of each user or address")
    max_body_bytes: int = Field(
        4 << 20, ge=1024, description="largest body of a request that is not an upload"
    )
    max_upload_bytes: int = Field(16 << 20, ge=1024, description="largest upload of a controller")
    max_tokens: int = Field(4096, ge=1, description="largest max_tokens that a request may have")
    send_timeout_s: float = Field(
        30, gt=0, description="end a stream whose reader takes nothing for this long"
    )
    max_connections: int = Field(
        512, ge=8, description="number of open connections; each takes a file descriptor and up to 0.3 MiB"
    )
    max_connections_each: int = Field(
        256,
        ge=4,
        description="open connections of each address, trusted proxies excepted; with the default, one "
        "address cannot use up all connections",
    )
    idle_timeout_s: float = Field(
        75,
        gt=0,
        description="close a connection this long after its last answer, unless another request has begun; "
        "most proxies and clients close theirs after 60 s or less, so that no request meets a closed one",
    )
    header_timeout_s: float = Field(
        10, gt=0, description="close a connection if the head of a request does not arrive within this time"
    )
    body_timeout_s: float = Field(
        30,
        gt=0,
        description="time for a body to arrive, plus one second for each 16 KiB that have arrived; a slow "
        "upload can finish, but a trickle of bytes cannot hold a connection",
    )
    max_bodies_bytes: int = Field(
        64 << 20,
        ge=1024,
        description="total size of the bodies of all requests under way; each caller may use a quarter, or "
        "one body",
    )
    max_stored: int = Field(
        1024,
        ge=0,
        description="number of responses of /v1/responses that are kept in memory for requests that continue "
        "them; 0 = none",
    )
    max_stored_bytes: int = Field(
        64 << 20,
        ge=1024,
        description="their total size, with the conversations before them; one of them may take a quarter",
    )
    stored_s: float = Field(
        86400, gt=0, description="drop a stored response that has not been used for this long"
    )
    cpc_max_evals: int = Field(
        512, ge=1, le=4096, description="largest number of model evaluations that a completion may ask for"
    )
    drain_s: float = Field(30, ge=0, description="time that requests under way have to end after SIGTERM")

    # -- log and traces
    otel: bool = Field(
        False,
        description="send traces of requests, and metrics, to the collector that the variables of "
        "OpenTelemetry name, such as OTEL_EXPORTER_OTLP_ENDPOINT",
    )
    log_format: Literal["text", "json"] = Field("text", description="text for people, or JSON for programs")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="lowest level that is logged"
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Returns the sources in order of precedence: flags, environment, file."""
        file = TomlConfigSettingsSource(settings_cls, _CONFIG_FILE.get("path"))
        return init_settings, env_settings, file

    @property
    def tools(self) -> ToolSettings:
        """The calls of controllers that the operator answers."""
        return ToolSettings(
            tuple(self.mcp),
            tuple(self.http_allow),
            self.tool_calls,
            self.tool_seconds,
            self.log_format,
            self.log_level,
        )

    @property
    def port_to_listen_on(self) -> int:
        """The configured port, or the default: 8000, or 6969 with `--cpc`."""
        return self.port if self.port is not None else _CPC_PORT if self.cpc else _PORT

    @property
    def last_words_s(self) -> float:
        """Seconds that cancelled requests have at the end to send their clients the error."""
        return 5.0

    @property
    def ollama(self) -> str | None:
        """URL of Ollama, if completions may come from there; else None."""
        return self.ollama_url or (_OLLAMA_URL if self.cpc_backend == "ollama" else None)

    @property
    def role_without_token(self) -> str:
        """The role of requests without a token."""
        return self.anonymous or ("none" if self.users else "run")


#: passes the path to `settings_customise_sources`, which pydantic-settings calls without arguments of ours
_CONFIG_FILE: dict[str, Path] = {}


def read_settings(flags: dict[str, Any], config: Path | None = None) -> ServerSettings:
    """Returns the settings from flags, environment and the file `config`.

    Raises AiciError for invalid settings; the message names the flag, the variable or the file.
    """
    _check_environment()
    _CONFIG_FILE.clear()
    try:
        if config is not None:
            config.open("rb").close()  # a missing file would count as an empty one
            _CONFIG_FILE["path"] = config
        return ServerSettings(**flags)
    except ValidationError as error:
        problems = (_problem(problem, flags, config) for problem in error.errors())
        raise AiciError("\n".join(problems)) from None
    except SettingsError as error:
        field = _QUOTED.search(str(error))
        name = f"{PREFIX}{field[1].upper()}" if field else "the environment"
        raise AiciError(f'{name}: write a list as JSON, for example ["one", "two"]') from None
    except (OSError, ValueError) as error:
        raise AiciError(f"--config {config}: {error}") from None
    finally:
        _CONFIG_FILE.clear()


def _check_environment() -> None:
    known = [_variable(name) for name in ServerSettings.model_fields]
    for name in os.environ:
        if name.startswith(PREFIX) and name not in known:
            meant = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {meant[0]}?" if meant else "; aici serve --help lists all"
            raise AiciError(f"there is no setting {name}{hint}")


def _variable(name: str) -> str:
    return f"{PREFIX}{name.upper()}"


def _problem(problem: Any, flags: dict[str, Any], config: Path | None) -> str:
    """Returns a line that names the flag, the variable or the file with the problem."""
    name = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        meant = difflib.get_close_matches(name, ServerSettings.model_fields, n=1)
        hint = f"; did you mean {meant[0]}?" if meant else "; aici serve --help lists all"
        return f"--config {config}: there is no setting {name!r}{hint}"
    field = name.partition(".")[0]
    if field in flags or (_variable(field) not in os.environ and field not in _file_names(config)):
        place = f"--{name.replace('_', '-')}"
    elif _variable(field) in os.environ:
        place = _variable(field)
    else:
        place = f"--config {config}: {name}"
    return f"{place}: {problem['msg']}"


def _file_names(config: Path | None) -> set[str]:
    return set(tomllib.loads(config.read_text("utf-8"))) if config is not None else set()
