"""The pure parts of kernel generation: predicates, receipts, merged chains, checks of CK's API."""

from __future__ import annotations

import types
from dataclasses import dataclass
from typing import Any

import pytest

from qola.codegen.ck.adapter import (
    Row,
    UnservedCkError,
    check_signatures,
    grouped_check,
    is_unconditional,
    mask_of,
    step_of,
)
from qola.codegen.ck.predicates import Wanted, broken_rule, mismatches, resolve_hdims
from qola.codegen.ck.receipts import EMULATED, receipts_in
from qola.codegen.ck.selector import merge
from qola.codegen.types import FieldValue
from qola.manifest.load import loads

Fields = dict[str, FieldValue]


def test_a_field_must_be_among_the_allowed() -> None:
    """Prevents: a kernel kept although one of its fields is not wanted."""
    fields: Fields = {"dtype": "bf16", "bias": "no", "lse": True}
    assert mismatches({"dtype": ("fp16", "bf16"), "lse": (True,)}, fields) == []
    assert mismatches({"dtype": ("fp16",), "lse": (False,)}, fields) == ["dtype", "lse"]
    # bf16 is not fp8bf16: values are compared whole, unlike names with wildcards.
    assert mismatches({"dtype": ("bf16",)}, {"dtype": "fp8bf16"}) == ["dtype"]


def test_a_feature_ck_does_not_have_is_off() -> None:
    """Prevents: "sink only" satisfied by kernels without sink, or "sink or not" refused."""
    assert mismatches({"sink": (True,)}, {}) == ["sink"]
    assert mismatches({"sink": (False, True)}, {}) == []
    assert mismatches({"dropout": (True,)}, {"dtype": "bf16"}) == ["dropout"]
    # split-KV kernels serve both answers for lse.
    assert mismatches({"lse": (True,)}, {"dtype": "bf16"}) == []


def test_variants_cross_into_the_process_unchanged() -> None:
    """Prevents: a dimension lost between the manifest and the generator."""
    text = (
        '[[modules]]\nname = "libmha_fwd"\n[[mha_fwd_variants]]\nreceipt = 100\n'
        'dtype = "bf16"\nhas_lse = true\nhdim = [64, [192, 128]]\nmode = "batch"\n'
        "[[mha_bwd_variants]]\ndeterministic = true\n"
    )
    manifest = loads(text, file="m.toml")
    wanted = Wanted.from_variant(manifest.fwd_variants[0], 600)
    assert wanted.receipt == 100
    assert wanted.label == "[[mha_fwd_variants]] #1 (line 3)"
    assert wanted.where["dtype"] == ("bf16",)
    assert wanted.where["lse"] == (True,)
    assert wanted.where["sink"] == (False, True)
    assert wanted.where["mode"] == ("batch",)
    assert wanted.hdims == ((64, 64), (192, 128))
    back = Wanted.from_json(wanted.to_json())
    assert back.hdims == wanted.hdims
    assert {k: tuple(v) for k, v in back.where.items()} == wanted.where
    bwd = Wanted.from_variant(manifest.bwd_variants[0], 600)
    assert bwd.receipt == 600
    assert bwd.where["deterministic"] == (True,)
    assert "dtype" not in bwd.where
    assert bwd.hdims is None


def test_receipt_700_names_the_rule_it_drops_by() -> None:
    """Prevents: an explanation that names the wrong rule, or none."""
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
    """Prevents: a receipt CK knows refused, or another number of its source taken for one."""
    source = "if receipt in (2, 3):\n  x = 7\nelif receipt == 600 or 5 == hdim:\n  pass\n"
    assert receipts_in(source) == {2, 3, 600}


def test_head_dims_go_where_the_full_dispatch_sends_them() -> None:
    """Prevents: hdim 96 refused because CK's forward bucket for it is 96x128."""
    chain = [(64, 64), (96, 128), (128, 128)]
    serves = {b: [(8, 8)] for b in chain}
    assert resolve_hdims([(128, 128), (96, 96)], chain, serves) == ({(128, 128), (96, 128)}, [])
    assert resolve_hdims([(256, 256)], chain, serves) == (set(), [(256, 256)])
    # A bucket whose kernels demand whole multiples of 128 serves no 64.
    assert resolve_hdims([(64, 64)], [(128, 128)], {(128, 128): [(128, 128)]}) == (
        set(),
        [(64, 64)],
    )


def row(key: str) -> Row:
    return Row(key, None, (), {}, (), None, (64, 64), (1, 1))


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
def test_chains_of_several_receipts_keep_their_order(sequences: list[str], merged: str) -> None:
    """Prevents: a kernel without padding behind one with padding, where it is never reached."""
    rows = merge([[row(key) for key in keys] for keys in sequences])
    assert "".join(r.key for r in rows) == merged


@dataclass
class Trait:
    """Stands for one of CK's traits: fields with "pad" in their name are the paddings."""

    hdim: int
    dpad: str


def test_grouped_check_finds_what_ck_finds() -> None:
    """Prevents: CK's check of duplicates and paddings losing its teeth when it is made fast."""
    seen: list[tuple[int, int]] = []

    def check(traits: list[Any], trait: Any) -> None:
        seen.append((trait.hdim, len(traits)))
        if trait in traits:
            raise ValueError(f"Duplicate found {trait}")

    checked = grouped_check(check)
    pool: list[Any] = []
    for trait in (Trait(64, "f"), Trait(128, "f"), Trait(64, "t"), Trait(256, "t")):
        checked(pool, trait)
        pool.append(trait)
    # The paddings of hdim 128, "f" alone, had been allowed for 64.
    assert seen == [(64, 0), (64, 1), (256, 0)]
    with pytest.raises(ValueError, match="Duplicate"):
        checked(pool, Trait(128, "f"))
    with pytest.raises(ValueError, match="Duplicate"):
        checked(pool, Trait(64, "t"))
    checked([], Trait(128, "f"))


def test_another_signature_is_refused() -> None:
    """Prevents: a later CK called with its arguments in the wrong places."""
    ops = types.SimpleNamespace(__name__="fmha_x", get=lambda targets, optdim, mask: None)
    served = {"get": ("targets", "mask", "optdim")}
    with pytest.raises(UnservedCkError) as error:
        check_signatures(ops, served)
    assert error.value.found == "this CK's fmha_x.get has parameters (targets, optdim, mask)"
    assert error.value.expected == "served: get(targets, mask, optdim)"
    with pytest.raises(UnservedCkError, match="has no gone"):
        check_signatures(ops, {"gone": ()})
    check_signatures(ops, {"get": ("targets", "optdim", "mask")})


def test_texts_of_ck_are_understood_or_refused() -> None:
    """Prevents: a condition of a later CK read as "always true"."""
    assert step_of("true /*a.hdim_q % 64 != 0*/", "hdim_q") == 1
    assert step_of("a.hdim_v % 8 == 0", "hdim_v") == 8
    with pytest.raises(UnservedCkError):
        step_of("a.hdim_q % 8 == 0", "hdim_v")
    with pytest.raises(UnservedCkError):
        step_of("a.hdim_q > 8", "hdim_q")
    assert mask_of("s_mask")
    assert not mask_of("s_no")
    with pytest.raises(UnservedCkError):
        mask_of("causal")
    assert is_unconditional("(true) && (true)")
    assert not is_unconditional("(get_num_blocks(128) < num_cus) && (true)")
