"""Invalid manifests: a test case for each message, and all findings reported together."""

from __future__ import annotations

from pathlib import Path

import pytest

from qola.manifest.fields import TABLES, Kind
from qola.manifest.load import load, loads
from qola_base.errors import Finding, ManifestError

MODULES = '[[modules]]\nname = "libmha_fwd"\n[[modules]]\nname = "libmha_bwd"\n'
QOLA, BUILD = f"{MODULES}[qola]\n", f"{MODULES}[build]\n"
FWD = f"{MODULES}[[mha_fwd_variants]]\n"
BWD = f"{MODULES}[[mha_bwd_variants]]\n"
THIRD = f"{MODULES}[[modules]]\n"


def load_errors(text: str) -> tuple[Finding, ...]:
    with pytest.raises(ManifestError) as caught:
        loads(text, file="m.toml")
    return caught.value.findings


def load_error(text: str) -> Finding:
    (finding,) = load_errors(text)
    assert finding.severity == "error"
    return finding


def check(finding: Finding, place: str, found: str, expected: str, fix: str) -> None:
    assert finding.place == f"m.toml:{place}"
    assert found in finding.found
    assert expected in finding.expected
    assert fix in finding.fix
    assert bool(fix) is bool(finding.fix)


AITER = '[build]\nmode = "aiter"\n[[modules]]\nname = "module_norm"\n'
MHA = AITER.replace("module_norm", "module_mha_fwd")
NAME = "mha_fwd_{}_nbias_nmask_nlse_ndropout"
FUNCTION = '[[functions]]\nname = "pa"\n'


@pytest.mark.parametrize(
    ("text", "place", "found", "expected", "fix"),
    [
        # Tables.
        ("", "1", "no [[modules]] table", "at least one library", "[[modules]]\nname ="),
        ("modules = []", "1 [[modules]]", "no module", "at least one [[modules]]", ""),
        ('[modules]\nname = "a"', "1 [[modules]]", "[modules], one table", "", "write [[modules]]"),
        ("modules = 3", "1 [[modules]]", "3", "[[modules]]", "write [[modules]]"),
        (THIRD, "5 [[modules]]", "no name", "letters, digits", 'name = "..."'),
        (f"{MODULES}[[qola]]", "5 [qola]", "[[qola]]", "[qola]", "write [qola]"),
        (f"{MODULES}[qolla]", "5 qolla", 'table "qolla"', "[qola], [build]", "mean [qola]?"),
        (
            f"{MODULES}[[mha_fwd_variant]]",
            "5 mha_fwd_variant",
            'unknown table "mha_fwd_variant"',
            "[[mha_fwd_variants]]",
            "did you mean [[mha_fwd_variants]]?",
        ),
        (f"namespace = 1\n{MODULES}", "1 namespace", "outside of any", "[qola]", "under [qola]"),
        (f"zzz = 1\n{MODULES}", "1 zzz", "zzz outside of any table", "[qola]", ""),
        # Mode aiter: libraries that AITER's Python does not load, or would not find.
        (
            f'{AITER}mode = "pybind"',
            "5 [[modules]].mode",
            'mode "pybind" of',
            "without",
            "remove this",
        ),
        (
            f'{AITER}[qola]\nnamespace = "te"',
            "6 [qola].namespace",
            'namespace "te" in mode aiter',
            "no namespace",
            "remove namespace",
        ),
        (
            f'{AITER}[[modules]]\nname = "libmha_fwd"',
            "6 [[modules]].name",
            "libmha_fwd in mode aiter",
            "modules that Python imports",
            'mode = "cpp_itfs"',
        ),
        (
            f'{AITER}[[triton]]\nkernels = ["attention_forward"]',
            "5 [[triton]]",
            "[[triton]] in mode aiter",
            "modules of AITER only",
            "remove [[triton]]",
        ),
        # Names by which AITER would find a module without the kernels of that name.
        (
            f'{AITER}names = ["module_norm"]',
            "5 [[modules]].names",
            "module_norm, which is a module",
            "names of no module",
            "remove module_norm",
        ),
        (
            f'{AITER}names = ["a"]\n[[modules]]\nname = "b"\nnames = ["a"]',
            "8 [[modules]].names",
            '"a", which line 5 declares already',
            "every name once",
            "remove a here",
        ),
        (
            f'{MHA}names = ["{NAME.format("fp16")}"]\n[[mha_fwd_variants]]\ndtype = "bf16"',
            "5 [[modules]].names",
            f"{NAME.format('fp16')}, and no [[mha_fwd_variants]] table selects kernels with dtype "
            "= fp16",
            "names whose kernels the module has",
            "add the value to [[mha_fwd_variants]] in line 6",
        ),
        # Functions that AITER's Python does not find, or thousands by mistake.
        (FUNCTION, "1 [[functions]]", "second JIT", 'mode = "aiter"', "set that mode"),
        (f"{AITER}{FUNCTION}d = 1", "7 [[functions]].d", '"d"', "name or arg", "arguments.d"),
        (f"{AITER}[[functions]]", "5 [[functions]]", "no name", "letters", 'name = "..."'),
        (
            f"{AITER}{FUNCTION}arguments = {{ a = 1.5 }}",
            "7 [[functions]].arguments",
            'under "a": 1.5, a float',
            "a table of strings, integers, true and false",
            "",
        ),
        (
            f"{AITER}{FUNCTION}[functions.arguments]\n"
            + "".join(f"{key} = [{', '.join(map(str, range(70)))}]\n" for key in "ab"),
            "7 [[functions]].arguments",
            "4900 combinations of arguments",
            "4096 at most",
            "several [[functions]] tables",
        ),
    ],
)
def test_invalid_tables_are_errors(
    text: str, place: str, found: str, expected: str, fix: str
) -> None:
    """Prevents: an invalid table accepted, or reported at a wrong place or without a fix."""
    check(load_error(text), place, found, expected, fix)


def test_names_match_any_variant() -> None:
    """Prevents: a name refused although one of several variants selects its kernels."""
    names = f'names = ["{NAME.format("fp16")}", "{NAME.format("bf16")}", "other"]\n'
    tables = '[[mha_fwd_variants]]\ndtype = "fp16"\n[[mha_fwd_variants]]\ndtype = "bf16"\n'
    (module,) = loads(f"{MHA}{names}{tables}", file="m.toml").modules
    assert len(module.names) == 3


def test_manifest_with_only_functions() -> None:
    """Prevents: an error for a manifest with functions and without modules."""
    lines = "arguments = { a = [1, 2], b = 'x' }"
    manifest = loads(f'[build]\nmode = "aiter"\n{FUNCTION}{lines}', file="m.toml")
    (function,) = manifest.functions
    assert [*function.combinations()] == [{"a": 1, "b": "x"}, {"a": 2, "b": "x"}]
    assert manifest.to_json()["functions"] == [{"name": "pa", "arguments": {"a": [1, 2], "b": "x"}}]


def test_variants_do_not_add_modules_in_mode_aiter() -> None:
    """Prevents: modules with ROCm/QoLA's names, which AITER never loads."""
    errors = load_errors('[build]\nmode = "aiter"\n[[mha_fwd_variants]]')
    (fix,) = [error.fix for error in errors if error.found == "no [[modules]] table"]
    lines = fix.partition("\n")[2]
    assert [m.name for m in loads(f'[build]\nmode = "aiter"\n{lines}', file="m.toml").modules]


QOLA_KEYS = "aiter_commit, namespace, patches_dir or rocm_versions"


@pytest.mark.parametrize(
    ("table", "line", "found", "expected", "fix"),
    [
        (QOLA, "aiter_comit = 1", 'key "aiter_comit"', QOLA_KEYS, "did you mean aiter_commit?"),
        (QOLA, "architectures = 1", 'unknown key "architectures"', QOLA_KEYS, "under [build]"),
        (QOLA, 'aiter_commit = ""', "an empty string", "a commit", "leave the key"),
        (QOLA, 'aiter_commit = "a b"', '"a b"', "without blanks", ""),
        (QOLA, 'namespace = "a::b"', '"a::b"', "one C++ identifier", ""),
        (QOLA, 'namespace = "7up"', '"7up"', "no leading digit", ""),
        (QOLA, 'namespace = "ä"', '"ä"', "one C++ identifier", ""),
        (QOLA, 'namespace = "te\\n"', '"te\\n"', "one C++ identifier", ""),
        (QOLA, 'namespace = "xor"', "is a C++ keyword", "one", '"my_xor"'),
        (QOLA, 'namespace = "ck_tile"', "would hide ck_tile::", "", '"my_ck_tile"'),
        (QOLA, 'namespace = "linux"', "is a macro", "one", '"my_linux"'),
        (QOLA, 'namespace = "a__b"', "C++ reserves a__b", "one", '"my_a_b"'),
        (QOLA, 'namespace = "_Te"', "C++ reserves _Te", "one", '"my_Te"'),
        (QOLA, 'rocm_versions = "7"', '"7", a string', "a list", ""),
        (QOLA, 'rocm_versions = ["7.x"]', '"7.x"', "numbers and dots", ""),
        (QOLA, "rocm_versions = []", "an empty list", "a list", "leave rocm_"),
        (QOLA, "rocm_versions = [7]", "in the list: 7, an integer", "strings", ""),
        (BUILD, 'architectures = ["gfx95"]', '"gfx95"', "gfx950", '"gfx950"?'),
        (BUILD, 'architectures = ["gfx942:xnack-"]', '"gfx942:xnack-"', "gfx942", 'mean "gfx942"?'),
        (BUILD, 'architectures = ["native", "gfx950"]', "together with other", 'only "native"', ""),
        (BUILD, "max_bytes = 0", "0", "an integer from 1", ""),
        (BUILD, 'archs = ["gfx950"]', 'unknown key "archs"', "mode", "did you mean architectures?"),
        (THIRD, 'name = "a/b"', '"a/b"', "letters, digits and _", ""),
        (
            THIRD,
            'name = "libmha_fwd"',
            '"libmha_fwd", which line 2 declares already',
            "every module once",
            "merge the two [[modules]] tables of libmha_fwd",
        ),
        (MODULES, "nmae = 1", 'unknown key "nmae"', "name, mode, receipt", "mean name?"),
        (MODULES, "dtype = 1", 'unknown key "dtype"', "name", "[[mha_fwd_variants]] or"),
        (MODULES, "qqqqq = 1", 'unknown key "qqqqq"', "add_srcs", ""),
        (MODULES, 'mode = "cpp_itf"', '"cpp_itf"', "pybind or", 'mean "cpp_itfs"?'),
        (MODULES, 'receipt = "700"', '"700", a string', "an integer", ""),
        (MODULES, "receipt = -1", "-1", "from 0 to 2147483647", ""),
        (MODULES, "receipt = 1.5", "1.5, a float", "an integer", ""),
        (MODULES, "receipt = true", "true, a boolean", "an integer", ""),
        (MODULES, 'drop_directions = ["splitkv"]', '"splitkv"', "bwd", '"fwd_splitkv"?'),
        (MODULES, 'hsa_subdirs = ["../x"]', '"../x"', "a relative path", ""),
        (MODULES, "srcs = [1]", "in the list: 1", "Python expression", ""),
        (
            MODULES,
            'flags_extra_hip_per_source = { "a.cu" = "x" }',
            'under "a.cu": "x", a string',
            "a table of lists",
            "",
        ),
        (FWD, 'dtype = "bf61"', '"bf61"', "fp8fp32", '"bf16"?'),
        (BWD, 'dtype = "fp8"', '"fp8"', "fp32, fp16 or bf16", ""),
        (FWD, "dtype = []", "an empty list", "a list", "leave dtype out (all)"),
        (FWD, "has_mask = [true, 0]", "0, an integer", "true, false", ""),
        (FWD, "has_dbias = true", "unknown key", "has_sink", "under [[mha_bwd_variants]]"),
        (FWD, "hdim = 1280", "1280", "each from 1 to 512", ""),
        (FWD, "hdim = [[128, 0]]", "[128, 0]", "each from 1 to 512", ""),
        (FWD, "hdim = [[1, 2, 3]]", "in the list: [1, 2, 3], a list", "pairs", ""),
        (FWD, "hdim = [true]", "in the list: true, a boolean", "pairs", ""),
    ],
)
def test_invalid_values_are_errors(
    table: str, line: str, found: str, expected: str, fix: str
) -> None:
    """Prevents: an invalid value accepted, or reported at a wrong line or without a fix."""
    header = table.rstrip().rpartition("\n[")[2].partition("\n")[0]
    place = f"{len(table.splitlines()) + 1} [{header}.{line.partition(' ')[0]}"
    check(load_error(table + line), place, found, expected, fix)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_field_refuses_a_wrong_type(table) -> None:  # type: ignore[no-untyped-def]
    """Prevents: a field defined without a check of its value."""
    needed = {"modules": 'name = "m"\n', "functions": 'name = "m"\n', "triton": 'kernels = ["f"]\n'}
    before = {"modules": "", "functions": '[build]\nmode = "aiter"\n'}.get(table.name, MODULES)
    for field in table.fields:
        required_line = needed.get(table.name, "")
        required_line = "" if required_line.startswith(f"{field.key} ") else required_line
        finding = load_error(f"{before}{table.header}\n{required_line}{field.key} = 2020-01-01\n")
        assert finding.place.endswith(f"{table.header}.{field.key}")
        assert finding.expected.startswith(field.kind.phrase)


ORDER = '[order]\nforward = ["triton", "assembly"]\n'
TRITON = '[[triton]]\nkernels = ["f"]\n'
WARNINGS = [
    (f"{FWD}has_bias = true\nhas_alibi = true", ":7 ", "elementwise bias wins", "remove has_alibi"),
    (f"{BWD}has_bias = [true]\nhas_alibi = true", ":7 ", "elementwise bias wins", "has_bias ="),
    (f"{BWD}has_dbias = true\nhas_bias = false", ":6 ", "no such kernel", "has_bias = true"),
    (f"{FWD}hdim = [192, 128]", ":6 ", "read as head dimensions 192 and 128", "[[192, 128]]"),
    (f"{FWD}{FWD.removeprefix(MODULES)}", ":6 ", "the same kernels as line 5", "remove one"),
    (
        f"{FWD}has_mask = [true, false]\n[[mha_fwd_variants]]\nhas_bias = [true, false]",
        ":7 [[mha_fwd_variants]]",
        "the same kernels as line 5",
        "remove one",
    ),
    (
        '[build]\nmode = "cpp_itfs"\n[[modules]]\nname = "a"\n[[mha_fwd_variants]]',
        ":5 ",
        "without the module it filters",
        "",
    ),
    ('[[modules]]\nname = "a"\n[[mha_bwd_variants]]', ":3 ", "without the module it filters", ""),
    (f'{MODULES}drop_srcs = ["a", "b", "a"]', ":5 ", '"a" more than once', ""),
    (f'{MODULES}[build]\narchitectures = ["gfx942", "gfx942"]', ":6 ", "more than once", ""),
    (f'{MODULES}names = ["a"]', ":5 [[modules]].names", "names of a module", "remove names"),
    (f"{MODULES}{ORDER}", ":5 [order]", "[order] without [[triton]]", "add [[triton]], or remove"),
    (f"{TRITON}{ORDER}", ":3 [order]", "[order] without [[modules]]", "add [[modules]], or remove"),
]


@pytest.mark.parametrize(("text", "place", "found", "fix"), WARNINGS)
def test_questionable_manifests_load_with_a_warning(
    text: str, place: str, found: str, fix: str
) -> None:
    """Prevents: a questionable combination of keys accepted silently, or refused."""
    (warning,) = loads(text, file="m.toml").warnings
    assert warning.severity == "warning"
    assert warning.place.startswith(f"m.toml{place}")
    assert found in warning.found
    assert fix in warning.fix


def test_variants_with_different_receipts_are_distinct() -> None:
    """Prevents: a warning about duplicate variants although their receipts differ."""
    text = f"{FWD}receipt = 100\n[[mha_fwd_variants]]\nreceipt = 200\n"
    assert loads(text, file="m.toml").warnings == ()


def test_empty_lists_override_defaults() -> None:
    """Prevents: an empty list, such as no embedded kernels or no flags, read as an absent key."""
    text = "drop_srcs = []\ndrop_directions = []\nhsa_subdirs = []\nflags_extra_hip = []\n"
    module = loads(MODULES + text, file="m.toml").modules[1]
    assert module.hsa_subdirs == ()
    assert module.overrides == (("flags_extra_hip", ()),)


def test_all_findings_are_reported_in_line_order() -> None:
    """Prevents: users who must correct one mistake per run."""
    findings = load_errors(
        f"[qola]\nnamespace = 'a b'\nx = 1\n{FWD}dtype = ['a', 'b']\nhas_bias = true\n"
        "has_alibi = true\nhdim = 0\n[[modules]]\nreceipt = -1\n[build]\nmode = 'x'\n"
    )
    lines = [int(finding.place.split(":")[1].split()[0]) for finding in findings]
    assert lines == [2, 3, 9, 9, 11, 12, 13, 14, 16]
    assert [f.severity for f in findings].count("warning") == 1


def test_long_values_are_truncated() -> None:
    """Prevents: a message that mainly consists of the invalid value."""
    assert len(load_error(f'{MODULES}[qola]\nnamespace = "{"a-" * 500}"').found) < 80


@pytest.mark.parametrize(
    ("text", "place", "shown"),
    [
        ("[qola\n", "m.toml:1:6", "[qola\n     ^"),
        ("[build]\nmode = cpp_itfs # x\n", "m.toml:2:8", "\nmode = cpp_itfs # x\n       ^"),
        ("\ufeff[qola]\n", "m.toml:1:1", "[qola]"),
    ],
)
def test_syntax_errors_show_the_line(text: str, place: str, shown: str) -> None:
    """Prevents: "Invalid value" without the invalid line."""
    finding = load_error(text)
    assert finding.place == place
    assert shown in finding.found


def test_unreadable_files_are_errors(tmp_path: Path) -> None:
    """Prevents: a traceback for a missing file, a directory, or another encoding."""
    with pytest.raises(ManifestError, match=r"error: no\.toml\n +found .*No such file"):
        load(tmp_path / "no.toml", display="no.toml")
    with pytest.raises(ManifestError, match="Is a directory"):
        load(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b"# ok\n# caf\xe9\n")
    with pytest.raises(ManifestError, match=r"error: latin\.toml:2\n +found .*0xe9"):
        load(tmp_path / "latin.toml", display="latin.toml")


def test_fields_are_well_formed() -> None:
    """Prevents: a field definition with contradictory attributes."""
    for table in TABLES:
        assert len(table.by_key) == len(table.fields)
        for field in table.fields:
            assert field.doc
            assert bool(field.required) is not bool(field.omitted)
            assert bool(field.pattern) is bool(field.pattern_doc)
            assert field.kind is not Kind.TEXT_SET or field.allowed
