"""Kernels in Triton, from a table of the manifest to a target."""

from __future__ import annotations

import ast
import os
from collections import Counter
from functools import partial
from itertools import product
from pathlib import Path

import pytest

from qola.aiter.tree import AiterTree, read_tree
from qola.errors import AiterError, ManifestError
from qola.inspect.query import items_of, select, triton_verdicts
from qola.manifest.load import loads
from qola.plan.model import Plan
from qola.plan.triton_kernels import triton_files, triton_trees
from qola.repository.build_files import config_header, manifest_build_file
from qola.triton import own
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


def of_commit(remote: object, commit: str) -> str:
    """Return a manifest with a kernel of a commit."""
    more = f'remote = "{remote}"\ncommit = "{commit}"'
    return SCALE.replace("timeout = 60", more) + SIGNED


@pytest.fixture
def tree(tmp_path: Path) -> AiterTree:
    return read_tree(write_later_tree(tmp_path / "tree"))


def committed(repository: Path, files: dict[str, str]) -> str:
    """Commit files to a repository of git; return the commit."""
    write(repository, files)
    git(repository, "init", "-q")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "files")
    return git(repository, "rev-parse", "HEAD")


def planned(tree: AiterTree, tmp_path: Path, text: str) -> Plan:
    write(tmp_path, FILES)
    loaded = loads(text, file="m.toml")
    files = triton_files(loaded, tmp_path / "m.toml")
    return plan_text(loaded, tree, tmp_path / "out", triton=files)


def test_kernels_of_qola(tree: AiterTree, tmp_path: Path) -> None:
    """Prevents: a combination of the manifest's that is not compiled; files nobody has."""
    plan = planned(tree, tmp_path, OWN)
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
    assert {one.name for one in kernel.instances} == expected
    assert not (tmp_path / "out/triton").exists()
    again = Plan.from_json(plan.to_json())
    assert again.to_json() == plan.to_json()
    build = manifest_build_file(plan, source="m.toml", aiter="aiter")
    assert 'src = "@qola//qola/triton:kernels/attention_forward.py"' in build
    assert 'deps = ["@qola//qola/triton:kernels/attention_parts.py"]' in build
    assert "timeout" not in build


def test_kernels_of_a_user(tree: AiterTree, tmp_path: Path) -> None:
    """Prevents: a user's kernel for other archs than the manifest's, or without what it imports."""
    plan = planned(tree, tmp_path, SCALE)
    (kernel,) = plan.triton
    assert [one.name for one in kernel.instances] == ["scale-BLOCK_256-gfx942"]
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
    """Prevents: another tree than the pinned one; a fetch for every plan; types that are lost."""
    # What a group may write is not trusted, where it was qola that made it.
    request.addfinalizer(partial(os.umask, os.umask(0o002)))
    repository, other = tmp_path / "other", '(y, x: "*fp32:16", n: "i32", WIDTH: "constexpr",'
    text = FILES["kernels/scale.py"].replace('(x: "*fp32:16", n: "i32",', other)
    commit = committed(repository, {"kernels/scale.py": text, "kernels/parts.py": "# theirs\n"})
    committed(repository, {"kernels/scale.py": "later"})
    environ = {"XDG_CACHE_HOME": str(tmp_path / "cache")}

    def plan(manifest: str) -> Plan:
        loaded = loads(manifest, file="m.toml")
        files = triton_files(loaded, tmp_path / "m.toml", triton_trees(loaded, environ))
        return plan_text(loaded, tree, tmp_path / "out", triton=files)

    manifest = of_commit(repository, commit)
    (kernel,) = plan(manifest).triton
    assert [one.name for one in kernel.instances] == ["scale-BLOCK_256-gfx942"]
    assert (tmp_path / "out/triton/scale/scale.py").read_text("utf-8") == text
    assert (tmp_path / "out/triton/scale/parts.py").read_text("utf-8") == "# theirs\n"
    # It is kept: nobody asks the repository again.
    repository.rename(tmp_path / "gone")
    again = plan(manifest)
    assert logged == [f"fetching commit {commit} of {repository}"]
    assert Plan.from_json(again.to_json()).triton == again.triton
    # Where it was fetched from is this machine's, and may have a password in it.
    assert str(repository) not in again.to_json()
    build = manifest_build_file(again, source="m.toml", aiter="aiter")
    assert '"WIDTH": "=8",\n        "y": "*fp32:16",' in build
    assert triton_files(loads(manifest, file="m.toml"), tmp_path / "m.toml") == {}
    with pytest.raises(ManifestError, match=r"no_such\.py: No such file"):
        plan(manifest.replace("parts.py", "no_such.py"))
    with pytest.raises(
        AiterError, match=r"m.toml:9 \[\[triton\]\].commit(.*\n)+.*f{40} of /nowhere"
    ):
        plan(of_commit("/nowhere", "f" * 40))


def test_a_file_at_the_root_of_a_commit(tree: AiterTree, tmp_path: Path) -> None:
    """Prevents: a BUILD file whose label is none, with the commit in it."""
    write(tmp_path / "there", {Path(path).name: text for path, text in FILES.items()})
    loaded = loads(of_commit("/r", "a" * 40).replace("kernels/", "").replace(SIGNED, ""), file="m")
    files = triton_files(loaded, tmp_path / "m.toml", {"a" * 40: tmp_path / "there"})
    plan = plan_text(loaded, tree, triton=files)
    assert [file.file for file in plan.triton[0].files] == [f"triton/scale/{n}.py" for n in NAMES]


def test_a_link_out_of_a_commit(tree: AiterTree, tmp_path: Path) -> None:
    """Prevents: a file of this machine that somebody else's repository has compiled."""
    (tmp_path / "there").mkdir()
    (tmp_path / "there/kernels").symlink_to(tmp_path)
    (tmp_path / "scale.py").write_text("")
    manifest = loads(of_commit("/r", "a" * 40), file="m.toml")
    with pytest.raises(ManifestError, match="a link that leads out of the tree"):
        triton_files(manifest, tmp_path / "m.toml", {"a" * 40: tmp_path / "there"})
    (tmp_path / "there/kernels").unlink()
    (tmp_path / "there/kernels").symlink_to("kernels")
    with pytest.raises(ManifestError, match=r"kernels/scale\.py: Too many levels"):
        triton_files(manifest, tmp_path / "m.toml", {"a" * 40: tmp_path / "there"})


def test_queries_find_them(tree: AiterTree, tmp_path: Path) -> None:
    """Prevents: kernels that are compiled and that `qola list` does not know."""
    items = items_of(planned(tree, tmp_path, OWN))
    assert len(items) == 16
    assert len(select(items, ["hdim=64", "arch=gfx950", "dtype=fp16"])) == 4
    assert len(select(items, ["causal=2", "module=triton", "*-gfx1100"])) == 4


def test_the_order_of_kernels(tree: AiterTree, tmp_path: Path) -> None:
    """Prevents: an order in the manifest that programs do not see; a kind twice."""
    text = OWN + '[order]\nforward = ["triton", "assembly", "triton"]\n'
    plan = planned(tree, tmp_path, text)
    assert plan.manifest["order"] == {"forward": ["triton", "assembly"]}
    header = config_header(plan, source="m.toml")
    assert "#define QOLA_ORDER_FORWARD Kind::triton, Kind::assembly\n" in header
    assert "QOLA_ORDER_BACKWARD" not in header
    assert "QOLA_ORDER" not in config_header(planned(tree, tmp_path, OWN), source="m.toml")


def test_each_is_explained_by_its_table(tree: AiterTree, tmp_path: Path) -> None:
    """Prevents: a kernel in the plan of which `qola explain` says nothing."""
    text = OWN + '[[triton]]\nkernels = ["attention_forward"]\nname = "more"\nhdims = 32\n'
    text += 'dtypes = "bf16"\n'
    found = triton_verdicts(loads(text, file="m.toml"), planned(tree, tmp_path, text).triton)
    assert len(found) == 17
    by_table = Counter((verdict.reasons, verdict.word) for verdict in found)
    assert by_table == {(("m.toml:3 [[triton]]",), "in"): 16, (("m.toml:10 [[triton]]",), "in"): 1}


@pytest.mark.parametrize(
    ("text", "place", "words"),
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
            of_commit("/r", "main"),
            "m.toml:9 [[triton]].commit",
            '"main"',
        ),
        *(
            (of_commit(remote, "a" * 40), "m.toml:8 [[triton]].remote", f'"{remote}"')
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
def test_what_is_refused(
    tree: AiterTree, tmp_path: Path, text: str, place: str, words: str
) -> None:
    """Prevents: a slip in the manifest that shows only when it is compiled, or nowhere."""
    with pytest.raises(ManifestError) as caught:
        planned(tree, tmp_path, text)
    told = [(one.place, one.found) for one in caught.value.findings]
    assert any(place in where and words in found for where, found in told), told


def test_every_own_kernel_is_offered() -> None:
    """Prevents: a kernel that comes with qola and that no manifest can name."""
    every = {
        node.name: file.name
        for file in own.DIRECTORY.glob("*.py")
        for node in ast.parse(file.read_text("utf-8")).body
        if isinstance(node, ast.FunctionDef)
        if not node.name.startswith("_") and file.name not in own.PARTS
    }
    assert every == own.FILES
