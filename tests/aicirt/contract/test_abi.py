"""aicirt/contract/abi.py matches aici.h."""

from __future__ import annotations

from aicirt.contract import abi
from aicirt.contract.abi import CStruct, RowKind, Verb
from tests.controllers.sdk.test_bindings import c_header

HEADER = c_header()
STRUCTS = {
    "StepArg": abi.STEP_ARG,
    "Wait": abi.WAIT,
    "PreResult": abi.PRE_RESULT,
    "PostResult": abi.POST_RESULT,
    "MidResult": abi.MID_RESULT,
    "FoundResult": abi.FOUND_RESULT,
    "Bias": abi.BIAS,
    "Top": abi.TOP_ENTRY,
}
#: constants of the header that abi.py does not define: aicirt/vocab has those of the vocabulary image
ELSEWHERE = {"VOCABULARY_MAGIC", "VOCABULARY_VERSION"}


def test_every_constant_matches_the_header() -> None:
    ours = {name: value for name, value in vars(abi).items() if name in HEADER.constants}
    assert ours == {name: value for name, value in HEADER.constants.items() if name not in ELSEWHERE}


def test_verbs_and_row_kinds_match_the_header() -> None:
    runtime_only = {Verb.LATE, Verb.ERROR}
    assert {verb.name: int(verb) for verb in Verb if verb not in runtime_only} == {
        name: value for name, value in HEADER.constants.items() if name in Verb.__members__
    }
    assert {f"ROW_{kind.name}": int(kind) for kind in RowKind} == {
        name: value for name, value in HEADER.constants.items() if name.startswith("ROW_")
    }


def test_every_struct_matches_the_header() -> None:
    assert STRUCTS.keys() == HEADER.structs.keys() - {"VocabularyHeader"}
    for name, ours in STRUCTS.items():
        assert [(field, _zig(form)) for field, form in ours.fields.items()] == [
            (field, kind.replace("INLINE_TOKENS", "16").replace("INLINE_GROUP", "16"))
            for field, kind in HEADER.structs[name]
        ], name


def test_imports_match_the_header() -> None:
    assert list(abi.IMPORTS) == HEADER.imports


def test_struct_offsets_and_partial_packing() -> None:
    struct = CStruct(size="I", many="3I", last="f")
    assert struct.size == 20
    assert struct.offsets == {"size": 0, "many": 4, "last": 16}
    assert struct.packer("many", "last").pack(1, 2, 3, 0.0)[4:8] == b"\2\0\0\0"


def _zig(form: str) -> str:
    kind = {"I": "u32", "f": "f32"}[form[-1]]
    return f"[{form[:-1]}]{kind}" if form[:-1] else kind
