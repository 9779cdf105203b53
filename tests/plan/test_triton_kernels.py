"""Triton kernels, from the table in a manifest to the Bazel target."""

from __future__ import annotations

import ast
import os
from collections import Counter
from functools import partial
from itertools import product
from pathlib import Path

import pytest

from qola.aiter.tree import AiterTree, read_tree
from qola.manifest.load import loads
from qola.plan.model import Plan
from qola.plan.triton_kernels import triton_files, triton_trees
from qola.query.kernels import items_of, select, triton_verdicts
from qola.repository.build_files import config_header, manifest_build_file
from qola.triton import own
from qola_base.errors import AiterError, ManifestError
from tests.support.folders import git, write
from tests.support.later_tree import write_later_tree
from tests.support.plans import plan_text

OWN = """\
[build]
architectures = ["gfx942"]
[[triton]]
kernels = ["attention_forward"]
archs = ["gfx1100", "gfx950"]
hdims = [64, 128]
dtypes = "fp16"
causal = ["no", "bottom_right"]
choices = { VARLEN = [false, true], num_warps = 4 }
"""
SCALE = """\
[build]
architectures = ["gfx942"]
[[triton]]
kernels = ["scale"]
file = "kernels/scale.py"
deps = ["kernels/parts.py"]
choices = { BLOCK = [256] }
timeout = 60
"""
FILES = {
    "kernels/scale.py": "import triton\nimport parts\n\n"
    'def scale(x: "*fp32:16", n: "i32", BLOCK: "tl.constexpr"):\n    pass\n',
    "kernels/parts.py": "",
}
NAMES = ("scale", "parts")
SIGNED = 'signature = { y = "*fp32:16", WIDTH = "=8" }\n'


def commit_manifest(remote: object, commit: str) -> str:
    """Return a manifest whose kernel is in a file of a commit."""
    more = f'remote = "{remote}"\ncommit = "{commit}"'
    return SCALE.replace("timeout = 60", more) + SIGNED


@pytest.fixture
def tree(tmp_path: Path) -> AiterTree:
    return read_tree(write_later_tree(tmp_path / "tree"))


def commit_files(repository: Path, files: dict[str, str]) -> str:
    """Commit files to a git repository, and return the commit."""
    write(repository, files)
    git(repository, "init", "-q")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "files")
    return git(repository, "rev-parse", "HEAD")


def plan_triton(tree: AiterTree, tmp_path: Path, text: str) -> Plan:
    write(tmp_path, FILES)
    loaded = loads(text, file="m.toml")
    files = triton_files(loaded, tmp_path / "m.toml")
    return plan_text(loaded, tree, tmp_path / "out", triton=files)


def test_kernels_of_qola(tree: AiterTree, tmp_path: Path) -> None:
    """Prevents: a combination that is not compiled, or copies of qola's own kernel files."""
    plan = plan_triton(tree, tmp_path, OWN)
    (kernel,) = plan.triton
    assert kernel.own
    assert [file.file for file in kernel.files] == [
        "kernels/attention_forward.py",
        "kernels/attention_parts.py",
    ]
    expected = {
        f"attention_forward-CAUSAL_{causal}-HDIM_{hdim}-VARLEN_{varlen}-dtype_fp16-num_warps_4-{arch}"
        for causal, hdim, varlen, arch in product(
            (0, 2), (64, 128), (False, True), ("gfx950", "gfx1100")
        )
    }
    assert {instance.name for instance in kernel.instances} == expected
    assert not (tmp_path / "out/triton").exists()
    again = Plan.from_json(plan.to_json())
    assert again.to_json() == plan.to_json()
    build = manifest_build_file(plan, source="m.toml", aiter="aiter")
    assert 'src = "@qola//qola/triton:kernels/attention_forward.py"' in build
    assert 'deps = ["@qola//qola/triton:kernels/attention_parts.py"]' in build
    assert "timeout" not in build


def test_kernels_of_a_user(tree: AiterTree, tmp_path: Path) -> None:
    """Prevents: a user's kernel for other archs than the manifest's, or without imported files."""
    plan = plan_triton(tree, tmp_path, SCALE)
    (kernel,) = plan.triton
    assert [instance.name for instance in kernel.instances] == ["scale-BLOCK_256-gfx942"]
    for file, path in zip(kernel.files, FILES, strict=True):
        assert (tmp_path / "out" / file.file).read_text("utf-8") == FILES[path]
    build = manifest_build_file(plan, source="m.toml", aiter="aiter")
    for line in (
        '"header_set", "manifest_targets", "qola_triton_kernel", "qola_triton_library")',
        '"plan": "plan.json"',
        'modules = [],\n    triton = ":triton_library"',
        'src = "triton/scale/scale.py"',
        'deps = ["triton/scale/parts.py"]',
        'archs = ["gfx942"]',
        "timeout = 60",
        'kernels = [\n        ":scale",\n    ]',
    ):
        assert line in build


def test_kernels_of_a_commit(
    tree: AiterTree, tmp_path: Path, request: pytest.FixtureRequest, logged: list[str]
) -> None:
    """Prevents: files of another commit, a fetch for every plan, or lost types of parameters."""
    # qola distrusts group-writable directories: it must create private ones despite this umask.
    request.addfinalizer(partial(os.umask, os.umask(0o002)))
    repository, signature = tmp_path / "other", '(y, x: "*fp32:16", n: "i32", WIDTH: "constexpr",'
    text = FILES["kernels/scale.py"].replace('(x: "*fp32:16", n: "i32",', signature)
    commit = commit_files(repository, {"kernels/scale.py": text, "kernels/parts.py": "# theirs\n"})
    commit_files(repository, {"kernels/scale.py": "later"})
    environ = {"XDG_CACHE_HOME": str(tmp_path / "cache")}

    def plan(manifest: str) -> Plan:
        loaded = loads(manifest, file="m.toml")
        files = triton_files(loaded, tmp_path / "m.toml", triton_trees(loaded, environ))
        return plan_text(loaded, tree, tmp_path / "out", triton=files)

    manifest = commit_manifest(repository, commit)
    (kernel,) = plan(manifest).triton
    assert [instance.name for instance in kernel.instances] == ["scale-BLOCK_256-gfx942"]
    assert (tmp_path / "out/triton/scale/scale.py").read_text("utf-8") == text
    assert (tmp_path / "out/triton/scale/parts.py").read_text("utf-8") == "# theirs\n"
    # The fetched commit is cached: the next plan does not read the repository.
    repository.rename(tmp_path / "gone")
    again = plan(manifest)
    assert logged == [f"fetching commit {commit} of {repository}"]
    assert Plan.from_json(again.to_json()).triton == again.triton
    # The plan must not contain the URL, which may contain a password.
    assert str(repository) not in again.to_json()
    build = manifest_build_file(again, source="m.toml", aiter="aiter")
    assert '"WIDTH": "=8",\n        "y": "*fp32:16",' in build
    assert triton_files(loads(manifest, file="m.toml"), tmp_path / "m.toml") == {}
    with pytest.raises(ManifestError, match=r"no_such\.py: No such file"):
        plan(manifest.replace("parts.py", "no_such.py"))
    with pytest.raises(
        AiterError, match=r"m.toml:9 \[\[triton\]\].commit(.*\n)+.*f{40} of /nowhere"
    ):
        plan(commit_manifest("/nowhere", "f" * 40))


def test_file_at_the_root_of_a_commit(tree: AiterTree, tmp_path: Path) -> None:
    """Prevents: an invalid label in the BUILD file, which contains the commit."""
    write(tmp_path / "there", {Path(path).name: text for path, text in FILES.items()})
    loaded = loads(
        commit_manifest("/r", "a" * 40).replace("kernels/", "").replace(SIGNED, ""), file="m"
    )
    files = triton_files(loaded, tmp_path / "m.toml", {"a" * 40: tmp_path / "there"})
    plan = plan_text(loaded, tree, triton=files)
    assert [file.file for file in plan.triton[0].files] == [f"triton/scale/{n}.py" for n in NAMES]


def test_link_that_leaves_a_commit_is_refused(tree: AiterTree, tmp_path: Path) -> None:
    """Prevents: another repository's link that makes qola compile a file of this machine."""
    (tmp_path / "there").mkdir()
    (tmp_path / "there/kernels").symlink_to(tmp_path)
    (tmp_path / "scale.py").write_text("")
    manifest = loads(commit_manifest("/r", "a" * 40), file="m.toml")
    with pytest.raises(ManifestError, match="a link that leads out of the tree"):
        triton_files(manifest, tmp_path / "m.toml", {"a" * 40: tmp_path / "there"})
    (tmp_path / "there/kernels").unlink()
    (tmp_path / "there/kernels").symlink_to("kernels")
    with pytest.raises(ManifestError, match=r"kernels/scale\.py: Too many levels"):
        triton_files(manifest, tmp_path / "m.toml", {"a" * 40: tmp_path / "there"})


def test_queries_find_triton_kernels(tree: AiterTree, tmp_path: Path) -> None:
    """Prevents: compiled kernels that `qola list` does not show."""
    items = items_of(plan_triton(tree, tmp_path, OWN))
    assert len(items) == 16
    assert len(select(items, ["hdim=64", "arch=gfx950", "dtype=fp16"])) == 4
    assert len(select(items, ["causal=2", "module=triton", "*-gfx1100"])) == 4


def test_launch_order(tree: AiterTree, tmp_path: Path) -> None:
    """Prevents: an [order] that generated headers lack, or a repeated kernel kind."""
    text = OWN + '[order]\nforward = ["triton", "assembly", "triton"]\n'
    plan = plan_triton(tree, tmp_path, text)
    assert plan.manifest["order"] == {"forward": ["triton", "assembly"]}
    header = config_header(plan, source="m.toml")
    assert "#define QOLA_ORDER_FORWARD Kind::triton, Kind::assembly\n" in header
    assert "QOLA_ORDER_BACKWARD" not in header
    assert "QOLA_ORDER" not in config_header(plan_triton(tree, tmp_path, OWN), source="m.toml")


def test_explanations_name_the_table(tree: AiterTree, tmp_path: Path) -> None:
    """Prevents: a planned kernel that `qola explain` does not show."""
    text = OWN + '[[triton]]\nkernels = ["attention_forward"]\nname = "more"\nhdims = 32\n'
    text += 'dtypes = "bf16"\n'
    verdicts = triton_verdicts(loads(text, file="m.toml"), plan_triton(tree, tmp_path, text).triton)
    assert len(verdicts) == 17
    by_table = Counter((verdict.reasons, verdict.word) for verdict in verdicts)
    assert by_table == {(("m.toml:3 [[triton]]",), "in"): 16, (("m.toml:10 [[triton]]",), "in"): 1}


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        (OWN.replace("forward", "foward"), "m.toml:4 [[triton]].kernels", "attention_foward"),
        (OWN.replace("VARLEN", "VARLN"), "m.toml:4 [[triton]].kernels: attention_f", "VARLN"),
        (OWN.replace("hdims = [64, 128]", ""), "m.toml:4 [[triton]].kernels", "nothing for HDIM"),
        (SCALE.replace('"scale"', '"scaled"'), "kernels/scale.py", "no function scaled"),
        (
            SCALE.replace("scale.py", "gone.py"),
            "m.toml:5 [[triton]].file",
            "kernels/gone.py: No su",
        ),
        (
            SCALE.replace("parts.py", "gone.py"),
            "m.toml:6 [[triton]].deps",
            "kernels/gone.py: No su",
        ),
        (OWN + 'deps = ["a.py"]\n' + OWN.partition("[[")[2].join(("[[", "")), "m.toml:", "already"),
        (
            commit_manifest("/r", "main"),
            "m.toml:9 [[triton]].commit",
            '"main"',
        ),
        *(
            (commit_manifest(remote, "a" * 40), "m.toml:8 [[triton]].remote", f'"{remote}"')
            for remote in ("--x", "some/directory", "fd::1", "ext::sh -c id", "git://host/x")
        ),
        (OWN + f'commit = "{"a" * 40}"\n', "m.toml:10 [[triton]].commit", "commit without remote"),
        (OWN + f'commit = "{"a" * 40}"\n', "m.toml:10 [[triton]].commit", "commit without file"),
        (SCALE + 'remote = "/r"\n', "m.toml:9 [[triton]].remote", "remote without commit"),
        (SCALE + "signature = { n = 1 }\n", "m.toml:9 [[triton]].signature", 'under "n": 1'),
        (SCALE + 'signature = { m = "i32" }\n', "kernels/scale.py: scale: signature", "m"),
        ("[[triton]]\nkernels = []\n", "m.toml:2 [[triton]].kernels", "empty"),
        ("triton = []\n", "m.toml:1 [[triton]]", "no kernel"),
        (OWN.replace("num_warps", "HDIM"), "m.toml:6 [[triton]].hdims", "HDIM in choices"),
    ],
)
def test_invalid_tables_are_refused(
    tree: AiterTree, tmp_path: Path, text: str, place: str, message: str
) -> None:
    """Prevents: a mistake in the manifest that is reported only by the compiler, or never."""
    with pytest.raises(ManifestError) as caught:
        plan_triton(tree, tmp_path, text)
    findings = [(finding.place, finding.found) for finding in caught.value.findings]
    assert any(place in where and message in found for where, found in findings), findings


def test_every_kernel_of_qola_is_registered() -> None:
    """Prevents: a Triton kernel of qola that no manifest can select."""
    kernels = {
        node.name: file.name
        for file in own.DIRECTORY.glob("*.py")
        for node in ast.parse(file.read_text("utf-8")).body
        if isinstance(node, ast.FunctionDef)
        if not node.name.startswith("_") and file.name not in own.PARTS
    }
    assert kernels == own.FILES
