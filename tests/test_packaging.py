"""The distribution: contents of the wheel, reproducible builds, and the installed package."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import pyaici
from pyaici.toolchain import controller_folders, find_sdk
from tests.distribution import BUILD, RESOLUTIONS, ROOT, metadata, pythons, run, run_installed
from tests.thorough import thorough

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DIST_INFO = f"pyaici-{PROJECT['version']}.dist-info"


@pytest.fixture(scope="module")
def distributions(
    checkout: Path, built_wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path, Path]:
    """The wheel of the checkout, its sdist, and the wheel built from the sdist."""
    folder = tmp_path_factory.mktemp("sdist")
    run(*BUILD, "--outdir", folder, checkout, cwd=checkout)  # builds the sdist and a wheel from it
    (sdist,) = folder.glob("*.tar.gz")
    (again,) = folder.glob("*.whl")
    return built_wheel, sdist, again


def contents(wheel: Path) -> dict[str, str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: hashlib.sha256(archive.read(name)).hexdigest() for name in archive.namelist()}


def test_all_parts_have_the_same_version() -> None:
    assert pyaici.__version__ == PROJECT["version"]
    crate = tomllib.loads((ROOT / "controllers" / "sdk" / "rust" / "Cargo.toml").read_text())
    assert crate["package"]["version"] == PROJECT["version"]


def test_sdist_builds_the_same_wheel(distributions: tuple[Path, Path, Path]) -> None:
    wheel, _, again = distributions
    assert contents(wheel) == contents(again)
    assert wheel.name == again.name


def test_wheel_contains_packages_controllers_and_sdk(
    checkout: Path, distributions: tuple[Path, Path, Path]
) -> None:
    names = set(contents(distributions[0]))
    for folder in ("aicirt", "pyaici"):
        for source in (checkout / folder).rglob("*"):
            if source.is_file() and source.suffix not in {".pyc", ".wasm"}:
                assert str(source.relative_to(checkout)) in names
    built = {name for name in names if name.endswith(".wasm")}
    assert built == {f"pyaici/_wasm/{folder.name}.wasm" for folder in controller_folders(checkout)}
    objects = [name for name in names if re.fullmatch(r"pyaici/_sdk/lib/[0-9a-f]{64}\.o", name)]
    assert len(objects) == len(find_sdk().cxx_sources())
    sdk = checkout / "controllers" / "sdk"
    for part in ("include", "src", "zig", "rust/src", "assemblyscript"):
        for source in (sdk / part).rglob("*"):
            if source.is_file():
                assert f"pyaici/_sdk/{source.relative_to(sdk)}" in names
    assert {name for name in names if name.startswith("pyaici/_grammars/")} == {
        f"pyaici/_grammars/{grammar.name}" for grammar in (checkout / "controllers").glob("*/grammars/*")
    }
    assert {name for name in names if name.startswith("pyaici/_licenses/")} == {
        "pyaici/_licenses/MicroPython.txt",
        "pyaici/_licenses/QuickJS-ng.txt",
    }
    assert {name for name in names if name.startswith("pyaici/_sdk/rust/")} == {
        "pyaici/_sdk/rust/Cargo.toml",
        *(f"pyaici/_sdk/rust/src/{source.name}" for source in (sdk / "rust" / "src").iterdir()),
    }
    assert {name.split("/")[0] for name in names} == {"aicirt", "pyaici", DIST_INFO}


def test_sdist_contains_no_built_files(distributions: tuple[Path, Path, Path]) -> None:
    with tarfile.open(distributions[1]) as archive:
        names = archive.getnames()
    assert not [name for name in names if name.endswith((".wasm", ".o", ".a", ".so", ".pyc"))]
    assert [name for name in names if name.endswith("controllers/sdk/include/aici.h")]


def test_metadata_has_requirements_extras_and_licence(distributions: tuple[Path, Path, Path]) -> None:
    for found in map(metadata, distributions):
        assert found.requires_dist and found.classifiers
        required = [each.name for each in found.requires_dist if each.marker is None]
        assert sorted(required) == ["msgpack", "numpy", "wasmtime"]
        assert set(found.provides_extra or ()) == PROJECT["optional-dependencies"].keys()
        assert found.license_expression == "MIT"
        systems = [each for each in found.classifiers if each.startswith("Operating System")]
        assert systems == ["Operating System :: POSIX :: Linux"]


def test_description_on_pypi_has_no_links_into_the_repository(
    distributions: tuple[Path, Path, Path],
) -> None:
    """The page there cannot follow them."""
    readme = (ROOT / "README.md").read_text()
    links = re.compile(r"\[([^]]+)\]\((?!https?://)([^)]+)\)")
    pictures = [line for line in readme.splitlines() if line.startswith("![")]
    assert links.search(readme) and pictures
    expected = links.sub(r"\1", "\n".join(line for line in readme.splitlines() if line not in pictures))
    for found in map(metadata, distributions):
        assert found.description_content_type == "text/markdown"
        assert found.description is not None
        assert found.description.split() == expected.split()


def test_every_supported_python_is_a_classifier() -> None:
    found = PROJECT["classifiers"]
    minors = [re.fullmatch(r"Programming Language :: Python :: 3\.(\d+)", each) for each in found]
    assert PROJECT["requires-python"] == f">=3.{min(int(each[1]) for each in minors if each)}"


@pytest.mark.parametrize("python", list(pythons())[: None if thorough() else 1])
def test_installed_wheel_works_with_each_python(python: str, built_wheel: Path, tmp_path: Path) -> None:
    """Without the checkout. With the oldest dependencies on the first Python, the newest on all others.

    scripts/release.sh tries both on each.
    """
    resolution = RESOLUTIONS[python != next(iter(pythons()))]
    printed = run_installed(built_wheel, pythons()[python], resolution, tmp_path).splitlines()
    assert printed[0].startswith(f"python {python} pyaici {PROJECT['version']} ")
    assert len(printed) == 3


def test_editable_build_builds_no_controllers(checkout: Path, tmp_path: Path) -> None:
    """scripts/setup.sh builds them afterwards, as many as are needed."""
    folder = checkout / "pyaici" / "_wasm"
    before = sorted(folder.iterdir()) if folder.is_dir() else []
    program = "import sys, hatchling.build; print(hatchling.build.build_editable(sys.argv[1]))"
    run(sys.executable, "-c", program, tmp_path, cwd=checkout)
    assert (sorted(folder.iterdir()) if folder.is_dir() else []) == before
    (wheel,) = tmp_path.glob("*.whl")
    assert not [name for name in contents(wheel) if name.endswith((".wasm", ".h"))]


def test_import_on_other_systems_is_an_error() -> None:
    """The import fails at once with a clear message."""
    program = "import sys; sys.platform = 'darwin'\nimport {}"
    for package in ("aicirt", "pyaici", "pyaici.client.runtime"):
        done = subprocess.run(
            [sys.executable, "-c", program.format(package)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1
        assert done.stderr.strip().splitlines()[-1] == (
            "ImportError: aici runs on Linux only, not on darwin: use Linux, a container or WSL 2"
        )


def test_build_requirement_and_sdk_extra_name_the_same_compiler() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (ziglang,) = PROJECT["optional-dependencies"]["sdk"]
    assert ziglang in project["build-system"]["requires"]


def test_no_text_names_the_distribution_of_somebody_else() -> None:
    """On PyPI, `aici` belongs to another project; the distribution of this one is `pyaici`."""
    extra = r"(?<![\w-])aici\[(hf|llama|sdk|client|server|vllm)\b"
    other = re.compile(rf"pip install[^\n]*?[ '\"`]aici(?=[\s'\"`\[;,.)]|$)|{extra}", re.MULTILINE)
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if path.suffix in (".md", ".py", ".sh", ".toml", ".json", ".txt") and path != Path(__file__):
            found = other.search(path.read_text(errors="replace")) if path.is_file() else None
            assert found is None, f"{name}: {found and found[0]!r}"
