"""Pure functions of kernel generation: predicates, receipts, merged chains, parsing of CK's C++."""

from __future__ import annotations

import json
import sys
from enum import Enum
from pathlib import Path
from types import SimpleNamespace

import pytest

from qola.aiter.core_file import ck_directory
from qola.codegen.ck.link import Links, NotUnderstoodError, called_in, traits_of
from qola.codegen.ck.messages import GeneratorAnswer, GeneratorRequest
from qola.codegen.ck.observe import observe
from qola.codegen.ck.output import RefusedError, record
from qola.codegen.ck.receipts import (
    EMULATED,
    broken_rule,
    mismatches,
    receipts_in,
    resolve_hdims,
    takes,
)
from qola.codegen.ck.rows import Kernel, Row, merge
from qola.codegen.ck.vocabulary import fields_of, read_condition
from qola.codegen.types import Direction, FieldValue
from qola.kernel.config import KernelConfig, Tile
from qola.kernel.selection import RequestedKernel
from qola.manifest.load import loads
from qola_base.json_types import WrongValueError

Fields = dict[str, FieldValue]


def test_fields_must_have_allowed_values() -> None:
    """Prevents: a kernel selected although the manifest excludes one of its fields."""
    fields: Fields = {"dtype": "bf16", "bias": "no", "lse": True}
    assert mismatches({"dtype": ("fp16", "bf16"), "lse": (True,)}, fields) == []
    assert mismatches({"dtype": ("fp16",), "lse": (False,)}, fields) == ["dtype", "lse"]
    # bf16 does not match fp8bf16: unlike file name patterns, filters compare whole values.
    assert mismatches({"dtype": ("bf16",)}, {"dtype": "fp8bf16"}) == ["dtype"]


def test_absent_feature_is_off() -> None:
    """Prevents: "sink only" satisfied by kernels without sink, or "sink or not" refused."""
    assert mismatches({"sink": (True,)}, {}) == ["sink"]
    assert mismatches({"sink": (False, True)}, {}) == []
    assert mismatches({"dropout": (True,)}, {"dtype": "bf16"}) == ["dropout"]
    # Split-KV kernels serve problems with and without LSE.
    assert mismatches({"lse": (True,)}, {"dtype": "bf16"}) == []


def test_requests_survive_a_round_trip() -> None:
    """Prevents: a filter that is lost between the manifest and the generator process."""
    text = (
        '[[modules]]\nname = "libmha_fwd"\n[[mha_fwd_variants]]\nreceipt = 100\n'
        'dtype = "bf16"\nhas_lse = true\nhdim = [64, [192, 128]]\nmode = "batch"\n'
        "[[mha_bwd_variants]]\ndeterministic = true\n"
    )
    manifest = loads(text, file="m.toml")
    fwd = manifest.fwd_variants[0].filter(600)
    assert fwd.receipt == 100
    assert fwd.place == "m.toml:3 [[mha_fwd_variants]]"
    assert fwd.where["dtype"] == ("bf16",)
    assert fwd.where["lse"] == (True,)
    assert fwd.where["sink"] == (False, True)
    assert fwd.where["mode"] == ("batch",)
    assert fwd.hdims == ((64, 64), (192, 128))
    kernel = RequestedKernel(KernelConfig("fwd", "bf16", 64, 64, Tile((64,)), lse=True), "here")
    request = GeneratorRequest(
        *("generate.py", "fwd", (0, 600), ("gfx950",), ((("gfx950",), "dispatch"),), (fwd,)),
        *((kernel,), False, True, False, "receipt 600"),
    )
    assert GeneratorRequest.from_json(request.to_json()) == request
    bwd = manifest.bwd_variants[0].filter(600)
    assert bwd.receipt == 600
    assert bwd.where["deterministic"] == (True,)
    assert "dtype" not in bwd.where
    assert bwd.hdims is None


FWD = Direction("fwd", "filtered", reason="", rows=0, unknown=())
ANSWER = GeneratorAnswer(FWD, (), (), {"a.cpp": "\x00\u2028"}, ())


def test_answers_survive_a_round_trip() -> None:
    """Prevents: sources that the cache of answers changes."""
    assert GeneratorAnswer.from_json(ANSWER.to_json()) == ANSWER


@pytest.mark.parametrize(
    "text",
    [
        *("{", "[]", "null", "1", "{}", '{"texts": {}}'),
        *('{"texts": null}', '{"texts": []}', '{"texts": {"a.cpp": null}}'),
        json.dumps({**vars(ANSWER), "texts": {"a.cpp": ["x"]}}, default=vars),
    ],
)
def test_damaged_answers_are_refused(text: str) -> None:
    """Prevents: AttributeError, KeyError or TypeError for a damaged answer in a cache."""
    with pytest.raises(WrongValueError):
        GeneratorAnswer.from_json(text.encode())


def test_receipt_700_names_the_broken_rule() -> None:
    """Prevents: an explanation with a wrong rule, or without a rule."""
    rules = EMULATED[700].rules["fwd"]
    good: Fields = {"dtype": "bf16", "vlayout": "row", "lse": True, "skip": False, "logits": False}
    assert broken_rule(rules, 700, good) == ""
    assert broken_rule(rules, 700, {**good, "lse": False}) == "receipt 700: lse must be yes"
    assert broken_rule(rules, 700, {**good, "dtype": "fp8bf16"}) == (
        "receipt 700: dtype must be fp16 or bf16"
    )
    assert broken_rule(None, 700, good) == "receipt 700: no kernels of this direction"
    bwd = EMULATED[700].rules["bwd"]
    assert broken_rule(bwd, 700, {"dtype": "bf16", "dropout_kind": "dropout_wg16"}) == ""
    kind: Fields = {"dtype": "bf16", "dropout_kind": "dropout_wg16_storerandval"}
    assert "dropout_kind" in broken_rule(bwd, 700, kind)


def test_receipts_are_read_from_comparisons() -> None:
    """Prevents: a receipt of CK refused, or another number in its source read as a receipt."""
    source = "if receipt in (2, 3):\n  x = 7\nelif receipt == 600 or 5 == hdim:\n  pass\n"
    assert receipts_in(source) == {2, 3, 600}


def test_head_dims_select_buckets_of_the_full_dispatch() -> None:
    """Prevents: hdim 96 refused because CK's forward bucket for it is 96x128."""
    chain = {bucket: [(8, 8)] for bucket in ((64, 64), (96, 128), (128, 128))}
    assert resolve_hdims([(128, 128), (96, 96)], chain) == ({(128, 128), (96, 128)}, [])
    assert resolve_hdims([(256, 256)], chain) == (set(), [(256, 256)])
    # A bucket whose kernels require multiples of 128 does not serve head dim 64.
    assert resolve_hdims([(64, 64)], {(128, 128): [(128, 128)]}) == (set(), [(64, 64)])


def row(key: str) -> Row:
    kernel = Kernel("fwd", key, None, {}, "")
    return Row(key, None, ("", ()), kernel, (), (), (64, 64), (1, 1))


@pytest.mark.parametrize(
    ("sequences", "merged"),
    [
        ([], ""),
        (["ace", "abc"], "abce"),
        (["b", "abc"], "abc"),
        (["abcd", "bd", "ad"], "abcd"),
        (["ac", "bcd"], "abcd"),
    ],
)
def test_merged_chains_keep_the_order_of_rows(sequences: list[str], merged: str) -> None:
    """Prevents: a kernel without padding that is unreachable behind a kernel with padding."""
    rows = merge([[row(key) for key in keys] for keys in sequences])
    assert "".join(r.key for r in rows) == merged


def test_traits_are_compared_after_expansion() -> None:
    """Prevents: a row without its kernels because they spell a type in another way."""
    kernel = """using fmha_mask_0 = ck_tile::Mask<true>;
        using trait_0 = fmha_bwd_traits_<64, Bf16,false,
            fmha_mask_0, (8 > 0), /* none */ (0>0)>;
        float f<trait_0, ck_tile::gfx9_t>() {}"""
    row = "using trait_ = fmha_bwd_traits_<64, Bf16, false, ck_tile::Mask<true>, true, false>;"
    (traits,) = traits_of(kernel)
    assert traits_of(row) == [traits]
    links = Links({"k.cpp": kernel})
    assert (links.files(traits, "gfx9"), links.files(traits, "gfx950")) == (["k.cpp"], [])
    assert links.defined(traits)
    assert not links.defined(traits._replace(arguments="32"))
    links.check()
    with pytest.raises(NotUnderstoodError, match=r"x\.cpp defines 0 types"):
        Links({"x.cpp": "int main() {}"}).check()


def test_calls_in_dead_branches_are_ignored() -> None:
    """Prevents: kernels compiled or missed because of a branch that is false at compile time."""
    row = """using a_ = fmha_a_traits_<{0}>; using b_ = fmha_b_traits_<1>;
        if constexpr (std::is_same_v<Fp8, {1}>) {{ return -1; }}
        else {{ using c_ = fmha_c_traits_<2>; return g<c_>(); }}
        return f<a_, std::conditional_t<{2}, b_, void>>();"""
    dispatch = row.format(1, "Fp8", "false") + row.format(2, "Bf16", "true")
    names = sorted(f"{t.name[5]}{t.arguments}" for t in called_in(dispatch))
    assert names == ["a1", "a2", "b1", "c2"]


def test_conditions_are_parsed_or_refused() -> None:
    """Prevents: an unknown condition of a later CK read as "always true"."""
    row = """if(name.compare(0, 4, "gfx9") == 0) if(t.hdim_q <= 64 && t.hdim_v <= 128) {{
        if((t.is_group_mode == true) && ({0}) && (t.has_foo == 3) && (a.hdim_q % 8 == 0) &&
           (true /*a.hdim_v % 8 == 0*/) && (a.hdim_v % 32 != 0){1}) {{ using t_ = x;"""
    none, some = "t.mask_type == mask_enum::no_mask", "t.mask_type != mask_enum::no_mask"
    plain = read_condition(row.format(none, ""))
    assert (plain.devices, plain.bucket, plain.steps) == (("gfx9",), (64, 128), (8, -32))
    assert plain.compared == {"mode": "true", "mask": "mask_enum::no_mask", "foo": "3"}
    assert (plain.mask, plain.conditional) == (False, False)
    masked = read_condition(row.format(some, " && (a.seqlen_q <= 16)"))
    assert (masked.mask, masked.conditional) == (True, True)
    causal = "t.mask_type == mask_enum::mask_top_left"
    assert read_condition(row.format(causal, "")).mask
    assert read_condition(row.format(causal, "")).conditional, "windows are masks, too"
    with pytest.raises(NotUnderstoodError, match="hdim_q in the condition"):
        read_condition(row.format(none, " && (a.hdim_q > 8)"))
    with pytest.raises(NotUnderstoodError, match="no head dims"):
        read_condition("if(t.is_group_mode) {")
    assert takes((64, 40), (8, -32))
    assert not takes((64, 64), (8, -32))


def test_fields_have_qolas_names() -> None:
    """Prevents: kernels with quantisation scales selected because CK renamed a field."""
    pipeline = SimpleNamespace(tag="qr", F_qscale="pertensor", F_trload="t")
    plain = {"F_hdim": "96", "F_idx": 0, "bm0": 64, "bn0": 0, "mask": "s_mask"}
    kind = "dropout_wg16_storerandval"
    item = SimpleNamespace(F_dropout=kind, F_pipeline=pipeline, **plain)
    assert fields_of(item, {"s_mask": True}) == {
        **{"hdim_q": 96, "tile": "b64x0", "mask": True, "pipeline": "qr"},
        **{"dropout": True, "dropout_kind": kind, "randval": True},
        **{"qscale": "pertensor", "squant": True, "trload": True},
    }


def test_ck_directory_comes_from_core_py() -> None:
    """Prevents: a plan with another copy of Composable Kernel than AITER compiles."""
    core = 'CK_3RDPARTY_DIR = os.environ.get("CK_DIR", f"{{AITER_META_DIR}}/{}")\nCK_DIR = X\n'
    nested = "3rdparty/libraries/projects/composablekernel"
    assert ck_directory(core.format(nested)) == nested
    for other in ("", core.format("../elsewhere"), "CK_DIR = 3", "def"):
        assert ck_directory(other) == "3rdparty/composable_kernel"


def test_each_recording_imports_modules_anew(tmp_path: Path) -> None:
    """Prevents: no pool found for a second receipt, because Python cached the imported module."""
    files = {
        "parts/plain/pool.py": "class PlainApiPool:\n    api = property(lambda self: 'text')\n",
        "generate.py": "from parts.plain.pool import PlainApiPool\nPlainApiPool().api\n",
    }
    for name, text in files.items():
        (tmp_path / "ck" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "ck" / name).write_text(text)
    (tmp_path / "out").mkdir()
    before = set(sys.modules)
    for _ in range(2):
        seen = observe(tmp_path / "ck/generate.py", (), tmp_path / "out")
        assert [pool.renders for pool in seen.pools] == [[("api", None, "text")]]
    assert not {name for name in set(sys.modules) - before if name.startswith("parts")}


class Layout(Enum):
    """An enumeration whose member is neither a string nor a number."""

    row = 1


def test_cyclic_objects_are_read_once() -> None:
    """Prevents: endless recursion into enumerations, classes and cyclic references."""
    item = SimpleNamespace(hdim=64, layout=Layout.row, kind=Layout, inner=[])
    item.whole = item
    assert fields_of(item, {}) == {"hdim_q": 64, "layout": "row"}


def test_absent_direction_is_refused(tmp_path: Path) -> None:
    """Prevents: a traceback instead of an error for a direction that an old CK lacks."""
    (tmp_path / "out").mkdir()
    script = tmp_path / "generate.py"
    script.write_text("import sys\n{'fwd': 1}[sys.argv[sys.argv.index('-d') + 1]]\n")
    with pytest.raises(RefusedError, match="fwd_appendkv, which this CK does not have"):
        record(script, "fwd_appendkv", 600, ["gfx950"], tmp_path / "out")
    script.write_text("{}['other']\n")
    with pytest.raises(KeyError):
        record(script, "fwd_appendkv", 600, ["gfx950"], tmp_path / "out")
