"""The planner: contents of plans, and errors before any file is generated."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qola.aiter.includes import include_dirs
from qola.aiter.missing_names import missing_macros
from qola.aiter.tree import CONFIG_FILE, AiterTree, ModuleConfig, read_tree
from qola.common.answers import AnswerCache
from qola.common.folder import Folder
from qola.fetch.pins import PatchPin
from qola.manifest.load import loads
from qola.plan import resolve as resolve_module
from qola.plan.inputs import watched_dirs
from qola.plan.model import Plan
from qola.plan.planner import build_plan, explain
from qola.plan.request import Request
from qola.plan.resolve import configure as configure_module
from qola.plan.resolve import resolve
from qola.plan.spec import BuildSpec
from qola_base.errors import AiterError, Finding, ManifestError, PlanError, QolaError
from tests.support.folders import write
from tests.support.plans import plan_text

HEAD = """\
[qola]
[build]
architectures = ["gfx950"]
mode = "cpp_itfs"
[[modules]]
name = "libmha_fwd"
receipt = 700
"""
VARIANT = """
[[mha_fwd_variants]]
dtype = "bf16"
hdim = 128
mode = "group"
has_bias = false
has_alibi = false
has_dropout = false
"""
TEXT = HEAD + VARIANT


PlanFunction = Callable[..., Plan]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> AnswerCache:
    """Return a cache of generator answers, which the tests of this file share."""
    return AnswerCache(tmp_path_factory.mktemp("answers"), lambda: "this tree")


@pytest.fixture
def plan(tree: AiterTree, tmp_path: Path, answers: AnswerCache) -> PlanFunction:
    """Return a function that plans the text of a manifest."""

    def run(text: str = TEXT, **changes: object) -> Plan:
        return plan_text(text, tree, tmp_path, answers=answers, **changes)

    return run


@pytest.mark.thorough
def test_plan_lists_every_generated_file(plan: PlanFunction, tmp_path: Path) -> None:
    """Prevents: targets without a file, and generated files that no action compiles."""
    result = plan()
    (module,) = result.modules
    listed = {f"libmha_fwd/kernels/{result.kernels[i].name}.cpp" for i in module.kernels}
    listed |= {source.file for source in module.sources}
    listed |= {batch.file for unit in result.units for batch in unit.batches}
    listed |= {source.file for source in (*module.stubs, *module.entry_sources)}
    listed |= {module.entry_source.file, module.kernel_names.file, module.public_header.file}
    assert module.code_objects, "bf16 with head dim 128 is AITER's own domain"
    listed.add("libmha_fwd/include/qola_asm_domain.h")
    found = {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file()}
    assert found == listed
    assert len(module.kernels) == 2
    assert {s.name for s in module.sources} >= {"fmha_fwd_api", "fmha_fwd_splitkv_api", "mha_fwd"}


def test_batches_replace_get_name(plan: PlanFunction, tmp_path: Path) -> None:
    """Prevents: larger libraries because a new use of GetName disables its replacement."""
    (unit,) = plan().units
    (batch,) = unit.batches
    text = (tmp_path / batch.file).read_text("utf-8")
    assert text.count("#define QOLA_NAME ") == len(batch.kernels) == 2


def test_additional_kernels_keep_the_entry_source(plan: PlanFunction) -> None:
    """Prevents: templates of entry points recompiled for each changed variant."""
    without = TEXT.replace("receipt = 700", "receipt = 700\nhsa_subdirs = []")
    few, many = plan(without), plan(without.replace('mode = "group"', ""))
    (before,), (after,) = few.modules, many.modules
    assert len(before.kernels) < len(after.kernels)
    assert before.kernel_names != after.kernel_names
    for attribute in ("entry_source", "public_header", "copts", "macros", "headers", "entries"):
        assert getattr(before, attribute) == getattr(after, attribute)
    assert few.header_set(before.headers) == many.header_set(after.headers)


@pytest.mark.thorough
def test_kernel_group_determines_the_archs(plan: PlanFunction) -> None:
    """Prevents: objects for two archs in a library of a manifest with a single arch."""
    texts = [
        TEXT.replace('"gfx950"', archs) for archs in ('"gfx942"', '"gfx90a"', '"gfx90a", "gfx942"')
    ]
    archs: dict[tuple[str, str], tuple[str, ...]] = {}
    for result in map(plan, texts):
        for unit in result.units:
            for kernel in (result.kernels[index] for index in unit.kernels):
                key = (unit.kernel_group, kernel.name)
                assert archs.setdefault(key, kernel.archs) == kernel.archs


def test_header_sets_contain_included_headers(plan: PlanFunction, tree: AiterTree) -> None:
    """Prevents: a sandboxed compile without CK's headers, or with all headers of AITER."""
    result = plan()
    sets = {h.name: h for h in result.header_sets}
    assert set(sets) == {"fwd", "libmha_fwd"}
    assert f"{tree.fmha_dir}/fmha_fwd.hpp" in sets["fwd"].files
    assert f"{tree.csrc_dir}/include/mha_fwd.h" in sets["libmha_fwd"].files
    assert f"{tree.csrc_dir}/include/mha_fwd.h" not in sets["fwd"].files
    assert 100 < len(sets["fwd"].files) < 500
    for header_set in sets.values():
        assert all(
            any(f.startswith(f"{d}/") for f in header_set.files) for d in header_set.include_dirs
        )
        assert set(header_set.files) <= set(result.inputs)
    assert list(result.inputs) == sorted(result.inputs)
    assert all((tree.root / file).is_file() for file in result.inputs)


def test_requested_archs_replace_the_manifests(plan: PlanFunction) -> None:
    """Prevents: --arch ignored, or refused because of an unsupported arch in the manifest."""
    result = plan(TEXT.replace("gfx950", "gfx90a"), spec=BuildSpec(("gfx942", "gfx942")))
    assert result.archs == ("gfx942",)
    assert {k.archs for k in result.kernels} == {("gfx942",)}


@pytest.mark.thorough
def test_source_for_several_archs_is_one_kernel(plan: PlanFunction) -> None:
    """Prevents: split-KV kernels planned once per arch, which define the same symbols twice."""
    text = TEXT.replace("receipt = 700", 'receipt = 600\ndrop_directions = ["fwd"]')
    result = plan(
        text.replace('"gfx950"', '"gfx950", "gfx942"') + "has_lse = true\nhas_mask = true\n"
    )
    names = [k.name for k in result.kernels]
    assert len(set(names)) == len(names)
    assert [u.name for u in result.units if u.headers == "fwd_splitkv"] == [
        "libmha_fwd/fwd_splitkv_gfx942_gfx950"
    ]
    assert {k.archs for k in result.kernels} == {("gfx942", "gfx950")}


@pytest.mark.thorough
def test_changed_flags_make_another_kernel_group(plan: PlanFunction) -> None:
    """Prevents: a kernel with changed flags in the kernel group that other manifests share."""
    default, added, replaced, included = (
        plan(TEXT.replace("receipt = 700", f"receipt = 700\n{line}"))
        for line in (
            "verbose = true",
            'add_flags_extra_hip = ["-DADDED"]',
            'flags_extra_hip = ["-DALONE"]',
            'add_includes = ["aiter_meta/csrc/include/ck_tile"]',
        )
    )
    units = [p.units[0] for p in (default, added, replaced, included)]
    groups = [unit.kernel_group for unit in units]
    assert groups[0] == "fwd"
    assert len(set(groups)) == 4
    assert all(re.fullmatch("fwd_[0-9a-f]{8}", name) for name in groups[1:])
    copts = default.modules[0].copts
    assert added.modules[0].copts == (*copts, "-DADDED")
    assert units[1].copts == (*copts, "-DADDED")
    assert replaced.modules[0].copts == ("-DALONE",)
    assert included.modules[0].copts == copts


def test_include_directories_of_a_manifest_come_first(tree: AiterTree) -> None:
    """Prevents: AITER's header included instead of the header from the manifest's directory."""
    config = replace(tree.module("libmha_fwd"), include_dirs=("mine", tree.fmha_dir))
    dirs = include_dirs(tree, config)
    assert dirs[-2:] == ("mine", tree.fmha_dir)
    assert dirs[1] == f"{tree.ck_dir}/include"


@pytest.mark.thorough
def test_sources_of_the_module_are_compiled(
    plan: PlanFunction, tree: AiterTree, tmp_path: Path
) -> None:
    """Prevents: a link error because a .cu file with an entry point is not compiled."""
    folder = f"{tree.csrc_dir}/kernels"
    names = sorted(p.name for p in (tree.root / folder).iterdir() if p.suffix == ".cu")[:2]
    srcs = ", ".join(f"\"f'{{AITER_CSRC_DIR}}/kernels/{name}'\"" for name in names)
    more = f'receipt = 700\nsrcs = [{srcs}]\ndrop_srcs = ["{names[1]}"]'
    more += f'\nadd_includes = ["{tree.csrc_dir}/include/ck_tile"]'
    result = plan(TEXT.replace("receipt = 700", more))
    stem = names[0].removesuffix(".cu")
    (source,) = (s for s in result.modules[0].sources if "/sources/" in s.file)
    assert (source.name, source.role) == (stem, "entry")
    assert source.file == f"libmha_fwd/sources/{stem}.cpp"
    assert (tmp_path / source.file).read_bytes() == (tree.root / folder / names[0]).read_bytes()
    assert "drop_srcs" not in " ".join(w.place for w in result.warnings)


def test_paths_must_lie_in_the_tree(tree: AiterTree, tmp_path: Path) -> None:
    """Prevents: headers and sources outside of the AITER tree in a library, through a link."""
    root, outside = tmp_path / "tree", tmp_path / "outside"
    write(outside, {"a.h": "", "a.cu": "", "generate.py": ""})
    root.mkdir()
    # Bazel's repository of a local tree has links to the directories of the tree.
    for entry in tree.root.iterdir():
        (root / entry.name).symlink_to(entry)
    (root / "mine").symlink_to(outside)
    # Another AITER tree is outside of this tree, too.
    write(outside / "other", {CONFIG_FILE: "{}", "csrc/a.h": ""})
    (root / "other").symlink_to(outside / "other")
    linked = read_tree(root)

    def configure(line: str) -> ModuleConfig:
        manifest = loads(TEXT.replace("receipt = 700", line), file="m.toml")
        return configure_module(Request("m", manifest, linked), manifest.modules[0])

    config = configure(f'add_includes = ["{tree.csrc_dir}/include/ck_tile", "{tree.fmha_dir}"]')
    assert config.include_dirs[:2] == (f"{tree.csrc_dir}/include/ck_tile", tree.fmha_dir)
    for line in (
        'add_includes = ["mine"]',
        'add_includes = ["other/csrc"]',
        'extra_include = ["mine/."]',
        'srcs = ["mine/a.cu"]',
        'blob_gen_cmd = "mine/generate.py --output_dir {}"',
    ):
        with pytest.raises(ManifestError, match="a link that leads out of the tree") as caught:
            configure(line)
        assert f"m.toml:7 [[modules]].{line.split()[0]}\n" in str(caught.value)
    # Patched files are regular files of Bazel's repository, in regular directories.
    (root / "aiter").unlink()
    write(root, {CONFIG_FILE: (tree.root / CONFIG_FILE).read_text("utf-8")})
    linked = read_tree(root)
    assert configure(f'add_includes = ["{tree.fmha_dir}"]').include_dirs[0] == tree.fmha_dir


def test_module_is_configured_once(
    tree: AiterTree, answers: AnswerCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: a plan, watched directories and checks with different configurations."""
    configured_names: list[str] = []

    def configure(*args: Any, **kwargs: Any) -> ModuleConfig:
        configured_names.append(args[1].name)
        return configure_module(*args, **kwargs)

    monkeypatch.setattr(resolve_module, "configure", configure)
    text = TEXT.replace("receipt = 700", 'receipt = 700\ndrop_srcs = ["gone.cu"]')
    resolved = resolve(Request("m", loads(text, file="m.toml"), tree, answers=answers))
    build_plan(resolved, Folder(tmp_path))
    watched_dirs(resolved)
    assert configured_names == ["libmha_fwd"]


def test_explain_agrees_with_the_plan(
    plan: PlanFunction, tree: AiterTree, tmp_path: Path, logged: list[str]
) -> None:
    """Prevents: "in" for a kernel that the library lacks, or no progress messages."""
    result = plan()
    with AnswerCache(tmp_path / "own", lambda: "this tree") as answers:
        request = Request("m", loads(TEXT, file="m.toml"), tree, answers=answers)
        ((spec, explanations),) = explain(request)
    assert logged == ["m: comparing with every kernel of the receipts in use"]
    assert spec.name == "libmha_fwd"
    included = {e.name: e for e in explanations if not e.dropped_by}
    assert {k.name for k in result.kernels} == set(included)
    for kernel in result.kernels:
        assert dict(included[kernel.name].fields) == dict(kernel.fields)
        assert included[kernel.name].archs == kernel.archs
        assert included[kernel.name].kept_by == kernel.variants == (0,)
    assert all(e.dropped_by and not e.kept_by for e in explanations if e.name not in included)


def test_plan_records_patches_of_the_tree(plan: PlanFunction) -> None:
    """Prevents: a refused plan for a patched tree, or a plan that omits the patches."""
    text = TEXT.replace("[qola]", '[qola]\npatches_dir = "patches"')
    result = plan(text, patches=PINS, aiter_patches=PINS)
    assert result.aiter.patches == PINS
    assert plan(aiter_patches=PINS[:1]).aiter.patches == PINS[:1]


def test_plan_contains_warnings(plan: PlanFunction) -> None:
    """Prevents: a questionable manifest that builds without a warning."""
    text = TEXT.replace("[qola]", '[qola]\naiter_commit = "abcdef1"')
    result = plan(text + VARIANT, spec=BuildSpec(override_aiter_commit=True))
    assert {w.severity for w in result.warnings} == {"warning"}
    found = {w.place.partition(" ")[2]: w for w in result.warnings}
    assert "overridden" in found["[qola].aiter_commit"].found
    assert found["[[mha_fwd_variants]]"].place.startswith("m.toml:18 ")


PINS = (PatchPin("1.patch", "aa"), PatchPin("2.patch", "bb"))
LONG = "x" * 300
CK = "aiter_meta/3rdparty/composable_kernel"


@pytest.mark.parametrize(
    ("line", "error", "found", "fix"),
    [
        (
            'extra_ldflags = ["-lm"]',
            PlanError,
            "extra_ldflags, a key of ROCm/QoLA that a plan does not support",
            "remove extra_ldflags",
        ),
        (
            """flags_extra_hip_per_source = { "mha_fwd.cu" = ["'-O1'"] }""",
            PlanError,
            "(('mha_fwd.cu', ('-O1',)),), for libmha_fwd",
            "remove flags_extra_hip_per_source; flags_extra_hip applies to all sources of the "
            "module",
        ),
        (
            'hsa_subdirs = ["fmha_v3_fwd", "fmoe"]',
            PlanError,
            "fmoe, whose code objects nothing in libmha_fwd launches",
            'hsa_subdirs = ["fmha_v3_fwd"]',
        ),
        (
            "extra_include = [\"f'{CK_DIR}/nowhere'\"]",
            ManifestError,
            f"{CK}/nowhere is not in the tree",
            "",
        ),
        (
            f'add_includes = ["/usr/include", "aiter_meta/../..", "{LONG}"]',
            ManifestError,
            f"/usr/include, aiter_meta/../.., {LONG}: no such directory in the tree",
            "",
        ),
        (
            "flags_extra_hip = [\"f'-I{CK_DIR}/include'\"]",
            PlanError,
            f"-I@AITER@/{CK}/include",
            "",
        ),
    ],
)
def test_unsupported_keys_are_refused(
    plan: PlanFunction, tmp_path: Path, line: str, error: type[QolaError], found: str, fix: str
) -> None:
    """Prevents: a library that ignores a key of the manifest, or an error without a correction."""
    with pytest.raises(error) as caught:
        plan(HEAD.replace("receipt = 700", line))
    assert type(caught.value) is error
    finding = next(f for f in caught.value.findings if f.severity == "error")
    assert finding.place == f"m.toml:7 [[modules]].{line.partition(' ')[0]}"
    assert (finding.found, finding.fix) == (found, fix)
    assert finding.expected
    assert list(tmp_path.iterdir()) == [], "something was generated first"


@pytest.mark.parametrize("module", ["module_norm", "module_mha_fwd", "module_aiter_enum"])
def test_module_without_a_cpp_interface_is_refused(plan: PlanFunction, module: str) -> None:
    """Prevents: mode cpp_itfs accepted for a torch or Python module, which has no C++ interface."""
    texts = {HEAD: {}, HEAD.replace("cpp_itfs", "pybind"): {"spec": BuildSpec(mode="cpp_itfs")}}
    for text, changes in texts.items():
        with pytest.raises(PlanError) as caught:
            plan(text.replace("libmha_fwd", module), **changes)
        finding = caught.value.findings[0]
        assert finding.place == "m.toml:5 [[modules]].mode"
        assert finding.found == f"{module} in mode cpp_itfs"
        assert finding.fix == f'write mode = "pybind" in the [[modules]] table of {module}'


@pytest.mark.parametrize(
    ("archs", "changes", "place", "found", "fix"),
    [
        ("", {"native": lambda: ("gfx1999",)}, "native: the GPUs", "gfx1999", "mean gfx950?"),
        ("", {"default_archs": ("gfx951",)}, "GPU_ARCHS", "gfx951", "mean gfx950?"),
        ("gfx950", {"spec": BuildSpec(("gfx999",))}, "the archs asked", "gfx999", "mean gfx950?"),
        ("", {"spec": BuildSpec(("native", "gfx950"))}, "the archs asked", "native, gfx950", ""),
    ],
)
def test_unknown_archs_are_refused(
    plan: PlanFunction, archs: str, changes: dict[str, object], place: str, found: str, fix: str
) -> None:
    """Prevents: a library for an unknown arch, or an error with a wrong origin of the arch."""
    line = 'architectures = ["gfx950"]'
    with pytest.raises(PlanError) as caught:
        plan(HEAD if archs else HEAD.replace(line, ""), **changes)
    (finding,) = caught.value.findings
    assert finding.place.startswith(place)
    assert (finding.found, finding.fix.endswith(fix)) == (found, True)


@pytest.mark.parametrize(
    ("patches", "applied", "found"),
    [
        (PINS, (), "no patches: 1.patch (is not applied), 2.patch (is not applied)"),
        (PINS, PINS[:1], "1 patch: 2.patch (is not applied)"),
        (
            PINS,
            (*PINS[:1], PatchPin("2.patch", "cc")),
            "2 patches: 2.patch (is applied in another form)",
        ),
        (PINS[:1], PINS, "2 patches: 2.patch (is applied, and not in it)"),
        (PINS, PINS[::-1], "2 patches: the same in another order"),
    ],
)
def test_different_patches_are_refused(
    plan: PlanFunction, patches: tuple[PatchPin, ...], applied: tuple[PatchPin, ...], found: str
) -> None:
    """Prevents: a library from a source that has other patches than the manifest's."""
    text = HEAD.replace("[qola]", '[qola]\npatches_dir = "../patches"')
    with pytest.raises(PlanError) as caught:
        plan(text, patches=patches, aiter_patches=applied)
    (finding,) = caught.value.findings
    assert finding.place == "m.toml:2 [qola].patches_dir"
    assert finding.found == f"../patches, while the AITER tree has {found}"
    assert finding.fix == (
        'qola.aiter_wheel(..., patches_dir = "../patches") in MODULE.bazel '
        "(or qola.aiter_git, qola.aiter_local); "
        "without Bazel: qola checkout --patches-dir ../patches"
    )


@pytest.mark.parametrize(
    ("listed", "changes", "expected"),
    [
        ('["gfx950"]', {"spec": BuildSpec(archs=("gfx942",))}, ("gfx942",)),
        ('["gfx950"]', {"default_archs": ("gfx942",)}, ("gfx950",)),
        ('["native"]', {"default_archs": ("gfx942",)}, ("gfx950",)),
        ("", {"default_archs": ("gfx950", "gfx942")}, ("gfx942", "gfx950")),
        ("", {}, ("gfx950",)),
        ('["gfx942"]', {"spec": BuildSpec(archs=("native",))}, ("gfx950",)),
    ],
)
def test_precedence_of_archs(
    tree: AiterTree, listed: str, changes: dict[str, object], expected: tuple[str, ...]
) -> None:
    """Prevents: a wrong precedence of --arch, [build].architectures, GPU_ARCHS and native."""
    text = HEAD.replace('architectures = ["gfx950"]', f"architectures = {listed}" if listed else "")
    request = Request("m", loads(text, file="m.toml"), tree, native=lambda: ("gfx950",))
    assert resolve(replace(request, **changes)).archs == expected  # type: ignore[arg-type]


def test_gpus_are_detected_only_for_native(tree: AiterTree) -> None:
    """Prevents: a plan that detects GPUs although the manifest lists its archs."""

    def detect() -> tuple[str, ...]:
        raise AssertionError

    request = Request("m", loads(HEAD, file="m.toml"), tree, native=detect)
    assert resolve(request).archs == ("gfx950",)


def test_all_findings_are_reported_together(plan: PlanFunction) -> None:
    """Prevents: a manifest that users must correct one error at a time."""
    keys = 'receipt = 700\nextra_ldflags = ["-lm"]\nhipify = true\nmd_name = "x"'
    with pytest.raises(PlanError) as caught:
        plan(HEAD.replace("receipt = 700", keys))
    assert [f.place for f in caught.value.findings] == [
        f"m.toml:{line} [[modules]].{key}"
        for line, key in ((8, "extra_ldflags"), (9, "hipify"), (10, "md_name"))
    ]
    keys = '[qola]\naiter_commit = "33f2e6af5"\nrocm_versions = ["6.4"]'
    with pytest.raises(ManifestError) as invalid:
        plan(HEAD.replace("700", "601").replace("[qola]", keys), rocm_version="7.2.4")
    assert len(invalid.value.findings) == 3


def test_tree_without_headers_is_refused(plan: PlanFunction, tree: AiterTree) -> None:
    """Prevents: targets without headers, from a tree with an unknown layout."""
    moved = replace(tree, csrc_dir="elsewhere", ck_dir=tree.ck_dir)
    with pytest.raises(AiterError) as caught:
        plan(tree=moved)
    assert isinstance(caught.value.findings[0], Finding)
    assert "elsewhere/include/mha_fwd.h" in str(caught.value)


@pytest.mark.thorough
def test_supported_archs_depend_on_the_tree(plan: PlanFunction) -> None:
    """Prevents: an arch refused although CK has kernels for it, or accepted without kernels."""
    result = plan(HEAD.replace("gfx950", "gfx1201") + VARIANT)
    assert {kernel.archs for kernel in result.kernels} == {("gfx1201",)}
    partly = "gfx1201, for which qola's tests build only forward kernels"
    untested = [w for w in result.warnings if w.found == partly]
    assert [w.place for w in untested] == ["m.toml:3 [build].architectures"]
    with pytest.raises(QolaError) as caught:
        plan(HEAD.replace("gfx950", "gfx1100") + VARIANT)
    assert "gfx1100" in str(caught.value)


def test_archs_that_ck_does_not_know_are_refused(plan: PlanFunction, tree: AiterTree) -> None:
    """Prevents: a plan for gfx1250 whose first compile fails in a header of Composable Kernel."""
    with pytest.raises(PlanError) as caught:
        plan(HEAD.replace('"gfx950"', '"gfx1250", "gfx950"') + VARIANT)
    (finding,) = caught.value.findings
    assert finding.place == "m.toml:3 [build].architectures"
    assert "gfx1250: aiter_meta/3rdparty/composable_kernel/include/ck_tile/core/" in finding.found
    assert "CK_TILE_BUFFER_RESOURCE_3RD_DWORD" in finding.found
    assert finding.fix.startswith("--arch gfx950, or an AITER")
    headers = (tree.root / tree.ck_dir / "include/ck_tile/core").rglob("*.hpp")
    files = sorted(path.relative_to(tree.root).as_posix() for path in headers)
    for arch in ("gfx908", "gfx942", "gfx1031", "gfx1151", "gfx1200"):
        assert missing_macros(tree, files, ["gfx942", "gfx1201"], arch) == ()
    # Archs of the families that this header does not list.
    for arch in ("gfx1010", "gfx1153", "gfx1300"):
        assert missing_macros(tree, files, ["gfx942", "gfx1201"], arch)
