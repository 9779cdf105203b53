"""Reading of AITER trees: the pinned wheel, and small trees of later configuration formats."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from qola.aiter.core_file import core_defines
from qola.aiter.tree import (
    ARCH_TOKEN,
    CONFIG_FILE,
    TREE_TOKEN,
    AiterTree,
    configs,
    read_tree,
)
from qola_base.errors import AiterError
from tests.support.folders import write

GENERATE = "3rdparty/composable_kernel/example/ck_tile/01_fmha/generate.py"
CK = "f'{CK_DIR}/example/ck_tile/01_fmha/generate.py -d %s --receipt 600 --output_dir {{}}'"


def fwd_entry(**changes: Any) -> dict[str, Any]:
    """Return libmha_fwd as trees around d32b0cb define it."""
    entry: dict[str, Any] = {
        "srcs": [
            "f'{AITER_CSRC_DIR}/cpp_itfs/mha_fwd.cu'",
            "f'{AITER_CSRC_DIR}/cpp_itfs/mha_fwd_split.cu'",
            "f'{AITER_CSRC_DIR}/cpp_itfs/mha_fwd_batch_prefill.cu'",
        ],
        "flags_extra_cc": [],
        "flags_extra_hip": [
            "'-DCK_TILE_FMHA_FWD_FAST_EXP2=1'",
            "f'-DCK_TILE_FLOAT_TO_BFLOAT16_DEFAULT="
            '{os.environ.get("CK_TILE_FLOAT_TO_BFLOAT16_DEFAULT", 2)}\'',
        ],
        "extra_ldflags": "None",
        "extra_include": ["f'{CK_DIR}/example/ck_tile/01_fmha'"],
        "verbose": "False",
        "is_python_module": "False",
        "torch_exclude": "True",
        "blob_gen_cmd": [CK % "fwd", CK % "fwd_splitkv", CK % "batch_prefill"],
    }
    return {**entry, **changes}


def make_tree(root: Path, entry: dict[str, Any], *, header: str = "", core: str = "") -> Path:
    """Write a checkout that contains only the files that `entry` references."""
    files = {
        "aiter/jit/optCompilerConfig.json": json.dumps({"libmha_fwd": entry}),
        "aiter/jit/core.py": core,
        "csrc/include/mha_fwd.h": header,
        "hsa/codegen.py": "",
        GENERATE: "",
        **{f"csrc/cpp_itfs/{n}.cu": "" for n in ("mha_fwd", "mha_fwd_split")},
        "csrc/cpp_itfs/mha_fwd_batch_prefill.cu": "",
    }
    return write(root, files)


def failing(tree: AiterTree, **arguments: Any) -> str:
    with pytest.raises(AiterError) as error:
        tree.module("libmha_fwd", **arguments)
    return str(error.value)


def test_wheel(aiter_tree: Path) -> None:
    """Prevents: qola misreads the configuration of the pinned wheel."""
    tree = read_tree(aiter_tree)
    assert (tree.generation, tree.meta_dir) == ("wheel", "aiter_meta")
    assert tree.version.startswith("0.1.7")
    assert tree.ck_dir == "aiter_meta/3rdparty/composable_kernel"
    assert "libmha_fwd" in tree.module_names()
    fwd = tree.module("libmha_fwd")
    assert fwd.srcs == ()
    assert fwd.torch_exclude
    assert not fwd.is_python_module
    assert fwd.flags_hip == (
        "-DCK_TILE_FMHA_FWD_FAST_EXP2=1",
        "-DCK_TILE_FLOAT_TO_BFLOAT16_DEFAULT=2",
        "-DCK_TILE_FMHA_FWD_SPLITKV_API=1",
    )
    assert fwd.include_dirs == (tree.fmha_dir,)
    assert [g.script for g in fwd.generators] == [
        *3 * [f"{tree.fmha_dir}/generate.py"],
        "aiter_meta/csrc/cpp_itfs/mha_fwd_generate.py",
        f"aiter_meta/hsa/{ARCH_TOKEN}/fmha_v3_fwd/codegen.py",
    ]
    assert [g.option("-d") for g in fwd.generators[:3]] == ["fwd", "fwd_splitkv", "batch_prefill"]
    assert fwd.generators[0].option("--receipt") == "600"
    assert fwd.generators[0].args[-2:] == ("--output_dir", "{}")
    assert fwd.generators[4].per_arch
    filter_option = tree.module("libmha_bwd").generators[1].option("--filter")
    assert filter_option == "*@*_ndeterministic@*_nbias*_dropout*_ndeterministic*"


def test_every_module_of_the_wheel_is_read(aiter_tree: Path) -> None:
    """Prevents: the evaluator or the reader rejects an entry of the wheel's configuration."""
    tree = read_tree(aiter_tree)
    for name in tree.module_names():
        tree.module(name)
    new, old = (tree.module("module_moe_ck2stages", rocm=rocm) for rocm in ("7.2.4", "6.4"))
    assert set(new.flags_hip) - set(old.flags_hip) == {"--misched-prera-direction=bottomup"}
    assert "-DENABLE_TORCH_FP8" in tree.module("module_hipbsolgemm").flags_hip
    assert set(tree.merged_tables) == {
        f"{TREE_TOKEN}/aiter/configs/merged/a8w8_{name}_tuned_gemm.csv"
        for name in ("blockscale", "bpreshuffle", "blockscale_bpreshuffle")
    }


def test_sources_generation(tmp_path: Path) -> None:
    """Prevents: qola reads trees around d32b0cb, whose entry points are sources, as a wheel."""
    tree = read_tree(make_tree(tmp_path, fwd_entry(is_experimental="False", md_name="'mha_fwd_2'")))
    assert (tree.generation, tree.meta_dir, tree.version) == ("cpp_itfs", "", "")
    module = tree.module("libmha_fwd")
    assert module.srcs == (
        "csrc/cpp_itfs/mha_fwd.cu",
        "csrc/cpp_itfs/mha_fwd_split.cu",
        "csrc/cpp_itfs/mha_fwd_batch_prefill.cu",
    )
    assert module.flags_hip[1] == "-DCK_TILE_FLOAT_TO_BFLOAT16_DEFAULT=2"
    assert module.md_name == "mha_fwd_2"
    assert [g.script for g in module.generators] == 3 * [GENERATE]


def test_asm_codegen_generation(tmp_path: Path) -> None:
    """Prevents: qola does not detect trees around 33f2e6af, with one generator for all archs."""
    command = "f'{AITER_META_DIR}/hsa/codegen.py -m fmha_v3_fwd --output_dir {{}}'"
    entry = fwd_entry(
        blob_gen_cmd=[CK % "fwd", command],
        third_party=["'composable_kernel'"],
        # Plain text as in AITER, or an expression.
        flags_extra_hip_per_source={"device.cu": ["-D__HIPCC_RTC__", "'-DA'"]},
    )
    tree = read_tree(make_tree(tmp_path, entry))
    assert tree.generation == "asm_codegen"
    module = tree.module("libmha_fwd")
    assert module.generators[1].script == "hsa/codegen.py"
    assert module.generators[1].option("-m") == "fmha_v3_fwd"
    assert not module.generators[1].per_arch
    assert module.third_party == ("composable_kernel",)
    assert module.flags_hip_per_source == (("device.cu", ("-D__HIPCC_RTC__", "-DA")),)


def test_only_requested_modules_are_evaluated(tmp_path: Path) -> None:
    """Prevents: an invalid entry blocks builds of other modules."""
    root = make_tree(tmp_path, fwd_entry())
    path = root / "aiter/jit/optCompilerConfig.json"
    entries = {**json.loads(path.read_text()), "bad": {"srcs": ["exec('x')"]}}
    path.write_text(json.dumps(entries))
    tree = read_tree(root)
    assert tree.module_names() == ("libmha_fwd", "bad")
    assert tree.module("libmha_fwd").srcs


def test_later_tuning_tables(tmp_path: Path) -> None:
    """Prevents: `AITER_CONFIGS.NAME` is unknown, or a merged table counts as a file."""
    core = (
        "class AITER_CONFIG:\n"
        "    @property\n"
        "    def AITER_CONFIG_FMOE_FILE(self):\n"
        "        return self.get_config_file('AITER_CONFIG_FMOE', 'd', 'tuned_fmoe')\n"
    )
    entry = fwd_entry(flags_extra_cc=["f'-DT={AITER_CONFIGS.AITER_CONFIG_FMOE_FILE}'"])
    root = make_tree(tmp_path, entry, core=core)
    flags = read_tree(root).module("libmha_fwd").flags_cc
    assert flags == (f"-DT={TREE_TOKEN}/aiter/configs/tuned_fmoe.csv",)
    tree = read_tree(write(root, {"aiter/configs/model_configs/tuned_fmoe_big.csv": ""}))
    (path,) = tree.merged_tables
    assert path == f"{TREE_TOKEN}/aiter/configs/merged/tuned_fmoe.csv"
    assert tree.module("libmha_fwd").flags_cc == (f"-DT={path}",)
    more = ("tuned_fmoe", "untuned_fmoe", "model_configs/tuned_fmoe_alpha")
    write(root, {f"aiter/configs/{n}.csv": "" for n in (*more, "model_configs/untuned_fmoe_big")})
    table = read_tree(root).merged_tables[path]
    assert [file.rpartition("/")[2] for file in table.files] == [
        *("tuned_fmoe.csv", "tuned_fmoe_alpha.csv", "tuned_fmoe_big.csv"),
    ]
    assert table.untuned == "aiter/configs/untuned_fmoe.csv"


def test_overrides_replace_values(tmp_path: Path) -> None:
    """Prevents: qola ignores manifest keys that replace AITER's, or evaluates them as code."""
    tree = read_tree(make_tree(tmp_path, fwd_entry()))
    module = tree.module(
        "libmha_fwd",
        overrides=[
            ("flags_extra_hip", ("-DPLAIN=1", "'-DQUOTED=1'", "f'-DD={CK_DIR}'")),
            ("torch_exclude", False),
            ("flags_extra_hip_per_source", (("a.cu", ("-DA",)),)),
        ],
    )
    root = f"{TREE_TOKEN}/3rdparty/composable_kernel"
    assert module.flags_hip == ("-DPLAIN=1", "-DQUOTED=1", f"-DD={root}")
    assert not module.torch_exclude
    assert module.flags_hip_per_source == (("a.cu", ("-DA",)),)


def test_all_errors_of_an_entry_are_reported(tmp_path: Path) -> None:
    """Prevents: a user corrects an invalid entry one error per run."""
    entry = fwd_entry(
        srcs=["f'{AITER_CSRC_DIR}/absent.cu'"],
        flags_extra_hip=["__import__('os')"],
        torch_exclude="'yes'",
        verbose=["True"],
        md_name={},
        new_key="1",
        flags_extra_hip_per_source=["x"],
        blob_gen_cmd=["'\"unclosed'", "f'{CK_DIR}/absent.py'"],
    )
    # The second module keeps the CK command by which qola detects the generation.
    tree = read_tree(make_tree(tmp_path, fwd_entry()))
    config = tmp_path / "aiter/jit/optCompilerConfig.json"
    config.write_text(json.dumps({"libmha_fwd": entry, "libmha_x": fwd_entry()}))
    tree = read_tree(tmp_path)
    text = failing(tree)
    for expected in (
        "libmha_fwd.srcs",
        "csrc/absent.cu is not in the tree",
        "libmha_fwd.flags_extra_hip",
        "the call `__import__('os')`",
        "'yes'",
        "True or False",
        "unknown key new_key",
        "md_name",
        "['x']",
        "No closing quotation",
        "absent.py is not in the tree",
    ):
        assert expected in text


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        # A library that is written elsewhere, or adds to a linker script.
        *(
            ("md_name", name, r"libmha_fwd\.md_name")
            for name in ("../x", "x/y", "a b", "é", "x" * 201)
        ),
        ("md_name", "a; }; { global: *", r"libmha_fwd\.md_name"),
        # A flag that breaks a line of the lazy library's index or of a BUILD file.
        ("flags_extra_hip", ("'a\\nb'",), r"flags_extra_hip(.|\n)*the character U\+"),
        ("flags_extra_hip", ("'\\x1b[2J'",), r"the character U\+001B"),
        ("flags_extra_hip", ("'\\ud800'",), r"the character U\+D800"),
        ("flags_extra_hip", ("'a\\u202eb'.split('a')[1]",), r"the character U\+202E"),
    ],
)
def test_values_that_would_leave_their_place(
    tmp_path: Path, key: str, value: object, message: str
) -> None:
    """Prevents: a value of a tree that writes elsewhere, or into another file's next line."""
    tree = read_tree(make_tree(tmp_path, fwd_entry()))
    with pytest.raises(AiterError, match=message):
        tree.module("libmha_fwd", overrides=[(key, value)])


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("__version__ = version = '0.1.7.post2+g1a2b'", "0.1.7.post2+g1a2b"),
        ("version = '0.1\n[prebuilt]\nurls = []'", ""),
        ("version = '0.1\x1b[2J'", ""),
        ("version = '0.1 of mine'", ""),
    ],
)
def test_version_of_a_tree(tmp_path: Path, line: str, version: str) -> None:
    """Prevents: a tree's version that adds lines to a manifest, or writes to a terminal."""
    root = make_tree(tmp_path, fwd_entry())
    file = root / "aiter/_version.py"
    file.write_text(f"{line}\n")
    assert read_tree(root).version == version
    file.unlink()
    os.mkfifo(file)
    assert read_tree(root).version == "", "neither blocked nor read"


@pytest.mark.parametrize(
    "path",
    ["/etc", "../x", "csrc/../../x", "f'{AITER_META_DIR}/../x'", "x" * 300, "y/" * 900, "fifo"],
)
def test_paths_of_an_entry_are_inside_the_tree(tmp_path: Path, path: str) -> None:
    """Prevents: a library uses headers, sources or a generator outside of the tree."""
    root = make_tree(tmp_path / "tree", fwd_entry())
    (tmp_path / "x").mkdir()
    os.mkfifo(root / "fifo")
    tree = read_tree(root)
    for key in ("extra_include", "srcs", "blob_gen_cmd"):
        with pytest.raises(AiterError, match=f"{key}(.|\n)*is not in the tree"):
            tree.module("libmha_fwd", overrides=[(key, (path,))])


def test_names_of_tables_are_not_patterns(tmp_path: Path) -> None:
    """Prevents: a table name in core.py matches files outside the tree, or gives a traceback."""
    core = "X = get_config_file('X', 'd', '**/../x**')\nY = get_config_file('Y', 'd', '*')\n"
    root = make_tree(tmp_path, fwd_entry(), core=core)
    write(root, {"aiter/configs/model_configs/tuned.csv": ""})
    assert read_tree(root).module("libmha_fwd").srcs


def test_file_names_that_are_not_utf8_are_rejected(tmp_path: Path) -> None:
    """Prevents: a file name that is not UTF-8 fails only when qola writes plan.json."""
    root = make_tree(tmp_path, fwd_entry())
    (root / "aiter/configs").mkdir(parents=True)
    Path(os.fsdecode(os.fsencode(root) + b"/aiter/configs/a\xff.csv")).touch()
    with pytest.raises(AiterError, match=r"a\\udcff\.csv"):
        configs(read_tree(root), ())


def test_unknown_module(tmp_path: Path) -> None:
    """Prevents: an error about a misspelt module does not list the modules of the tree."""
    tree = read_tree(make_tree(tmp_path, fwd_entry()))
    with pytest.raises(AiterError, match=r"no module libmha_fvd(.|\n)*one of libmha_fwd"):
        tree.module("libmha_fvd")


def test_tree_without_composable_kernel(tmp_path: Path) -> None:
    """Prevents: a missing submodule fails late, or fails modules that do not use CK."""
    make_tree(tmp_path, fwd_entry())
    (tmp_path / GENERATE).unlink()
    tree = read_tree(tmp_path)
    assert not tree.has_ck
    assert "git clone --recurse-submodules" in failing(tree)
    (tmp_path / ".git").mkdir()
    assert f"git -C {tmp_path} submodule update --init --recursive" in failing(tree)
    without_ck = tree.module("libmha_fwd", overrides=[("blob_gen_cmd", ("hsa/codegen.py -m x",))])
    assert without_ck.include_dirs == ()


CORE = """\
def build_module(flags_extra_cc, flags_extra_hip):
    flags_cc = ["-O3"]
    enable_ck = int(os.environ.get("ENABLE_CK", "1"))
    if not any("ENABLE_CK" in f for f in flags_extra_cc):
        flags_cc.append(f"-DENABLE_CK={enable_ck}")
    if int(os.environ.get("AITER_ASM_DEBUG", "0")) != 0:
        flags_cc.append("-DASM_DEBUG")
    other = compute()
    if not any("OTHER" in f for f in flags_extra_cc):
        flags_cc.append(f"-DOTHER={other}")
"""


DEFINE = """\
def build_module(flags):
    on = %s
    if not any("ON" in f for f in flags):
        %sflags.append(f"-DON={on}")
"""


@pytest.mark.parametrize(
    ("value", "before", "found"),
    [
        ('int(os.environ.get("ON", "1"))', "", "1"),
        ('int(os.environ.get("ON", 0))', "", "0"),
        ('int(os.getenv("ON", "1"))', "", "1"),
        ('os.environ.get("ON", "1")', "", "1"),
        ('"2" if int(os.environ.get("ON", "1")) > 0 else "3"', "", "2"),
        ('int(os.environ.get("ON", "1"))', "log(on); ", "1"),
        ('int(os.environ.get("OTHER", "1"))', "", None),
        ('int(os.environ["ON"])', "", None),
        ("compute('ON')", "", None),
    ],
)
def test_forms_of_a_macro(value: str, before: str, found: str | None) -> None:
    """Prevents: a macro is missing because core.py writes its default in another form."""
    assert dict(core_defines(DEFINE % (value, before))).get("ON") == found


def test_macro_value_comes_from_its_function() -> None:
    """Prevents: a macro gets the value of a variable with this name in another function."""
    other = 'def other():\n    on = int(os.environ.get("ON", "0"))\n'
    core = DEFINE % ('int(os.environ.get("ON", "1"))', "")
    assert core_defines(other + core) == core_defines(core + other) == (("ON", "1"),)
    assert core_defines(other + DEFINE % ("compute()", "")) == ()


def test_macros_of_core_are_added_to_modules(tmp_path: Path) -> None:
    """Prevents: a library compiles without Composable Kernel because a macro is missing."""
    assert core_defines(CORE) == (("ENABLE_CK", "1"),)
    assert core_defines("no Python (") == core_defines("x = 1") == ()
    tree = read_tree(make_tree(tmp_path, fwd_entry(), core=CORE))
    assert tree.module("libmha_fwd").flags_cc == ("-DENABLE_CK=1",)
    overridden = tree.module("libmha_fwd", overrides=[("flags_extra_cc", ("-DENABLE_CK=0",))])
    assert overridden.flags_cc == ("-DENABLE_CK=0",)


def test_tree_without_composable_kernel_disables_it(tmp_path: Path) -> None:
    """Prevents: without CK, 80 of 124 modules fail because their headers include CK."""
    root = make_tree(tmp_path, fwd_entry(blob_gen_cmd="''"), core=CORE)
    (root / GENERATE).unlink()
    tree = read_tree(root)
    assert tree.module("libmha_fwd").flags_cc == ("-DENABLE_CK=0",)
    overridden = tree.module("libmha_fwd", overrides=[("flags_extra_cc", ("-DENABLE_CK=1",))])
    assert overridden.flags_cc == ("-DENABLE_CK=1",)


def test_unknown_keys(tmp_path: Path) -> None:
    """Prevents: qola ignores an unknown key that has a value."""
    root = make_tree(tmp_path, fwd_entry(later="''", more=[]))
    tree = read_tree(root)
    assert tree.unknown_keys() == {"libmha_fwd": ("later", "more")}
    assert tree.module("libmha_fwd").srcs
    assert read_tree(make_tree(tmp_path, fwd_entry())).unknown_keys() == {}
    assert "unknown key later" in failing(read_tree(make_tree(tmp_path, fwd_entry(later="'x'"))))


def test_modules_that_define_a_macro(tmp_path: Path) -> None:
    """Prevents: a report of an unknown macro does not name the AITER modules that define it."""
    tree = read_tree(make_tree(tmp_path, fwd_entry(flags_extra_cc=["'-DFAV9_ON=1'"])))
    assert tree.modules_that_define("FAV9_ON") == ("libmha_fwd",)
    assert tree.modules_that_define("FAV9") == ()


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        (CONFIG_FILE, "", r"no aiter/jit/optCompilerConfig\.json"),
        (CONFIG_FILE, "FIFO", "not a regular file"),
        (CONFIG_FILE, "{", "not JSON"),
        (CONFIG_FILE, "[]", "a list"),
        (CONFIG_FILE, '{"a": 1}', "a JSON object of objects"),
        # No RecursionError, and no excessive memory.
        (CONFIG_FILE, "[" * 100_000, "error: aiter/jit"),
        (CONFIG_FILE, "{}" + " " * (5 << 20), "error: aiter/jit"),
        (CONFIG_FILE, '{"a": ' * 5000, "error: aiter/jit"),
        (CONFIG_FILE, "1" * 5000, "error: aiter/jit"),
        (
            CONFIG_FILE,
            json.dumps({"libmha_fwd": fwd_entry(srcs=["f'{AITER_CSRC_DIR}/else.cu'"])}),
            "wheels, around d32b0cb or 33f2e6af",
        ),
        ("aiter/jit/core.py", "# \xff\n", r"aiter/jit/core\.py(.|\n)*cannot be read: 'utf-8'"),
    ],
    ids=range(11),
)
def test_broken_trees(tmp_path: Path, file: str, content: str, message: str) -> None:
    """Prevents: a traceback, a wait or a guess for a damaged or an unknown configuration."""
    root = make_tree(tmp_path, fwd_entry())
    (root / file).unlink()
    if content == "FIFO":
        os.mkfifo(root / file)
    elif content:
        (root / file).write_text(content, "latin-1")
    with pytest.raises(AiterError, match=message):
        read_tree(root)


def test_symlinks_do_not_extend_the_tree(tmp_path: Path) -> None:
    """Prevents: a symlink makes any directory of the machine part of the tree."""
    outside = tmp_path / "outside"
    outside.mkdir()
    root = make_tree(tmp_path / "tree", fwd_entry())
    (root / "hsa/codegen.py").unlink()
    (root / "hsa").rmdir()
    (root / "hsa").symlink_to(outside / "hsa")
    (root / "csrc/out").symlink_to(outside)
    tree = read_tree(root)
    assert tree.holds("csrc/include/mha_fwd.h")
    assert not tree.holds("csrc/out/a.h")
