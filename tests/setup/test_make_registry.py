"""tools/setup/make_registry.py: the local registry that replaces the Bazel Central Registry."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tools.setup import make_registry

HERE = Path(__file__).absolute().parent

RULES_CC = """\
module(
    name = "rules_cc",
    version = "0.0.11",
    compatibility_level = 1,
)

bazel_dep(name = "platforms", version = "0.0.10")
bazel_dep(name = "stardoc", version = "0.7.0", dev_dependency = True)
"""
PLATFORMS = """\
module(name = "platforms")
"""
BAZEL_TOOLS = """\
module(name = "bazel_tools")
bazel_dep(name = "rules_cc", version = "0.0.11")
bazel_dep(name = "platforms", version = "0.0.9")
bazel_dep(name = "buildozer", version = "7.1.2")
"""


def _debian(root: Path, modules: dict[str, str], bazel_tools: str = BAZEL_TOOLS) -> Path:
    for path, text in {"embedded_tools": bazel_tools, **modules}.items():
        (root / path).mkdir(parents=True)
        (root / path / "MODULE.bazel").write_text(text)
    return root


MODULES = [
    make_registry.Module("rules_cc", "/usr/share/bazel/rules/cc", RULES_CC),
    make_registry.Module("platforms", "/usr/share/bazel/tools/platforms", PLATFORMS),
]


def test_golden(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: an unnoticed change of the modules that builds in a tree resolve."""
    few = {"platforms": ("0.0.4",), "rules_cc": ("0.0.9",)}
    monkeypatch.setattr(make_registry, "RELEASES", few)
    files = make_registry.registry(MODULES, BAZEL_TOOLS, "/usr/share/qola/registry")
    text = "".join(f"==> {name} <==\n{files[name]}" for name in sorted(files))
    assert text == (HERE / "golden/registry.txt").read_text()


def test_only_the_version_changes() -> None:
    """Prevents: Bazel rejects a MODULE.bazel whose version differs from its directory."""
    assert make_registry.with_version(RULES_CC, "0.0.9") == RULES_CC.replace("0.0.11", "0.0.9")
    added = make_registry.with_version(PLATFORMS, "0.0.4")
    assert added == 'module(version = "0.0.4", name = "platforms")\n'


def test_development_dependencies_are_ignored() -> None:
    """Prevents: the registry needs modules (stardoc) that a consumer's build never loads."""
    assert make_registry.dependencies(RULES_CC) == {("platforms", "0.0.10")}


def test_every_served_module_has_its_name_and_version() -> None:
    """Prevents: Bazel cannot read a served MODULE.bazel."""
    files = make_registry.registry(MODULES, 'bazel_dep(name = "zlib", version = "1")', "/r")
    served = [name for name in files if name.startswith("modules/") and name.endswith(".bazel")]
    for name in ("rules_cc", "platforms"):
        releases = make_registry.RELEASES[name]
        assert {f"modules/{name}/{version}/MODULE.bazel" for version in releases} <= set(served)
    assert "0.0.9" in make_registry.RELEASES["rules_cc"]
    for name in served:
        _, module_name, version, _ = name.split("/")
        # The first call is module().
        call = next(n for n in ast.walk(ast.parse(files[name])) if isinstance(n, ast.Call))
        keywords = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
        assert (keywords["name"], keywords["version"]) == (module_name, version)


def test_missing_module_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: an incomplete registry, which fails later and elsewhere."""
    debian = _debian(tmp_path / "bazel", {"rules/cc": RULES_CC})
    code = make_registry.main(["--bazel", str(debian), "--out", str(tmp_path / "out")])
    assert code == 1
    assert capsys.readouterr().err == (
        "make_registry: modules that are asked for and not packaged: platforms; "
        "add its Debian package to third_party/debian/packages.conf\n"
    )
    assert not (tmp_path / "out").exists()


def test_written_registry_points_at_the_packaged_sources(tmp_path: Path) -> None:
    """Prevents: the registry contains paths of the build machine."""
    debian = _debian(tmp_path / "bazel", {"rules/cc": RULES_CC, "tools/platforms": PLATFORMS})
    assert make_registry.main(["--bazel", str(debian), "--out", str(tmp_path / "out")]) == 0
    source = (tmp_path / "out/modules/rules_cc/0.0.11/source.json").read_text()
    assert source == f'{{"type": "local_path", "path": "{debian}/rules/cc"}}\n'


@pytest.mark.skipif(
    not Path("/usr/share/qola/registry").is_dir(), reason="runs in the private tree only"
)
def test_registry_of_this_tree_is_current() -> None:
    """Prevents: another version of the script wrote the registry of the tree."""
    bazel, out = Path("/usr/share/bazel"), Path("/usr/share/qola/registry")
    tools = (bazel / "embedded_tools/MODULE.bazel").read_text()
    for name, text in make_registry.registry(
        make_registry.packaged_modules(bazel), tools, str(out)
    ).items():
        assert (out / name).read_text() == text
