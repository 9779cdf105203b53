"""A small generator like Composable Kernel's, for tests.

`switches.py` in its directory enables differences from the default: behaviour of earlier and of
possible future CKs. Receipt 600 is all kernels; receipt 7 is a single variant of them.
"""

from __future__ import annotations

import argparse
import dataclasses
import enum
import fnmatch
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import switches  # type: ignore[import-not-found]  # the test writes it

MASKS = {
    "s_no": ("Mask<false>", "t.mask_type == mask_enum::no_mask"),
    "s_mask": ("Mask<true>", "t.mask_type != mask_enum::no_mask"),
}
NEW_MASKS = {
    "none": ("NoMask", "t.mask_type == mask_enum::no_mask"),
    "causal": (
        "CausalMask",
        "t.mask_type == mask_enum::mask_top_left || t.mask_type == mask_enum::mask_bottom_right",
    ),
}
ALL_MASKS = NEW_MASKS if switches.NEW_MASKS else MASKS
CPP = {"t": "true", "f": "false", "batch": "false", "group": "true"}

KERNEL = """// written by a fake
#include "fmha_fwd.hpp"

using fmha_mask_0 = {mask};

using fmha_kernel_0 = ck_tile::FmhaFwdKernel<{dtype}, fmha_mask_0>;

using {alias} = {traits}<{hdim}, {dtype}, {mode}, {bm0},
                        fmha_mask_0, {bias}, {lse}{more}>;

template<>
float fmha_fwd_<{alias}{tag}>(const ck_tile::stream_config& s, fmha_fwd_args a)
{{
    using k_ = fmha_kernel_0;
    return ck_tile::launch_kernel(s, k_{{}}, a);
}}
"""
API = """// written by a fake
#include "fmha_fwd.hpp"

float {name}(fmha_fwd_traits t, fmha_fwd_args a, const ck_tile::stream_config& s)
{{
    float r = -1;
{rows}
    return r;
}}
"""
ROW = """    {arch}if(t.data_type.compare("{dtype}") == 0)
    if(t.hdim_q <= {hdim} && t.hdim_v <= {hdim}) {{
        if((t.is_group_mode == {mode}) && ({check}) && (t.bias_type == bias_enum::{bias}) &&
           (t.has_lse == {lse}){asked} && (a.hdim_q % 8 == 0) && (a.hdim_v % 8 == 0)) {{
            using trait_ = {traits}<{hdim}, {dtype}, {mode}, {bm0}, {mask}, {bias}, {lse}{more}>;
            return fmha_fwd_<trait_{tag}>(s, a);
        }}
    }}
"""


@dataclasses.dataclass(frozen=True)
class Arch:
    name: str

    @property
    def tag(self) -> str:
        return f", ck_tile::{self.name}_t"


@dataclasses.dataclass(frozen=True)
class Trait:
    arch: Arch | None
    hdim: int
    dtype: str
    mode: str
    mask: str
    bias: str
    lse: str
    bm0: int = 128

    def values(self) -> dict[str, object]:
        """Values for KERNEL, API and ROW."""
        mask, check = ALL_MASKS[self.mask]
        plain = dataclasses.asdict(self)
        kept = {n: CPP.get(v, v) if isinstance(v, str) else v for n, v in plain.items()}
        paged = CPP[self.paged] if isinstance(self, PagedTrait) else ""
        name = self.arch.name if self.arch else ""
        arch = f'if(device_name.compare(0, {len(name)}, "{name}") == 0) ' if name else ""
        return kept | {
            "mask": mask,
            "check": check,
            "more": paged and f", {paged}",
            "asked": paged and f" && (t.has_paged_v == {paged})",
            "arch": arch,
            "tag": self.arch.tag if self.arch else "",
            "traits": "table_entry_" if switches.NO_TRAITS else "fmha_fwd_traits_",
        }


@dataclasses.dataclass(frozen=True)
class PagedTrait(Trait):
    paged: str = "f"


class Layout(enum.Enum):
    row = 1


@dataclasses.dataclass(frozen=True)
class EnumTrait(Trait):
    layout: Layout = Layout.row


class Tile:
    """An object without a name that refers to itself."""

    def __init__(self) -> None:
        self.whole = self

    def __str__(self) -> str:
        return "tile"


@dataclasses.dataclass(frozen=True)
class NamelessTrait(Trait):
    tile: Tile = dataclasses.field(default_factory=Tile)


@dataclasses.dataclass(frozen=True)
class Kernel:
    F_trait: Trait

    @property
    def filename(self) -> str:
        values = vars(self.F_trait)
        arch = values["arch"].name if values["arch"] else "any"
        return (
            "_".join(["fmha_fwd", *(str(v) for n, v in values.items() if n != "arch"), arch])
            + ".cpp"
        )

    def text(self) -> str:
        return KERNEL.format(alias="trait_0", **self.F_trait.values())


class Rows:
    def __init__(self) -> None:
        self.rows: list[Trait] = []

    def register_traits(self, trait: Trait) -> None:
        self.rows.append(trait)

    def render(self, name: str, keep: Callable[[Trait], bool]) -> str:
        if switches.NEEDS_ROWS and not self.rows:
            raise ValueError("no rows")
        rows = "".join(ROW.format(**row.values()) for row in self.rows if keep(row))
        return API.format(name=name, rows=rows or "    (void)t; (void)a; (void)s;")

    @property
    def api(self) -> str:
        return self.render("fmha_fwd", lambda _: True)


class FmhaFwdApiPool(Rows):
    """Rows in a class with the name suffix that qola observes."""


if switches.RENDER:
    Kernel.render = Kernel.text  # type: ignore[attr-defined]
else:
    Kernel.template = property(Kernel.text)  # type: ignore[attr-defined]


def traits(targets: list[str], receipt: int, extra: int = 0) -> Iterator[Trait]:
    found = set()
    for target in targets:
        name = next((name for name in ("gfx950", "gfx9") if target.startswith(name)), "")
        if not name and switches.SILENT:
            continue
        if not name:
            raise ValueError(f"Unsupported device target {target}")
        found.add(name)
    known = [Arch(name) for name in sorted(found, key=len, reverse=True)]
    archs: list[Arch | None] = [*known] or [None]
    for arch, dtype, hdim, mode, mask, bias, lse in itertools.product(
        archs, ("fp16", "bf16"), (64, 128), ("batch", "group"), ALL_MASKS, ("no", "alibi"), "tf"
    ):
        one = (dtype, hdim, mask, bias, lse) == ("bf16", 128, next(iter(ALL_MASKS)), "no", "t")
        if receipt == 600 or (receipt == 7 and one):
            if switches.NEW_FIELD:
                for paged in "tf":
                    yield PagedTrait(arch, hdim, dtype, mode, mask, bias, lse, 128 + extra, paged)
            else:
                kind = Trait
                kind = EnumTrait if switches.ENUM else kind
                kind = NamelessTrait if switches.NAMELESS else kind
                yield kind(arch, hdim, dtype, mode, mask, bias, lse, 128 + extra)


def write(path: Path, text: str) -> None:
    if not switches.RENAMED:
        path.write_text(text)
        return
    part = path.with_suffix(".part")
    part.write_text(text)
    part.replace(path)
    if path.read_text() != text:
        raise ValueError(f"{path} is another file")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-d", "--direction", default="fwd")
    parser.add_argument("-o", "--output_dir", type=Path)
    parser.add_argument("-r", "--receipt", type=int, default=0)
    parser.add_argument("-f", "--filter", default="")
    if switches.TARGETS:
        parser.add_argument("--targets", default="gfx9,gfx950")
    args = parser.parse_args()
    pool = Rows() if switches.NO_POOL else FmhaFwdApiPool()
    for trait in traits(args.targets.split(",") if switches.TARGETS else [], args.receipt):
        kernel = Kernel(trait)
        if not args.filter or fnmatch.fnmatch(kernel.filename, args.filter):
            text = kernel.render() if switches.RENDER else kernel.template  # type: ignore[attr-defined]
            write(args.output_dir / kernel.filename, text)
            if switches.KEYWORD:
                pool.register_traits(trait=trait)
            else:
                pool.register_traits(trait)
    if switches.RENDER:
        parts = [
            pool.render(f"fmha_fwd_{mode}", lambda row, mode=mode: row.mode == mode)  # type: ignore[misc]
            for mode in ("batch", "group")
        ]
        text = "// header\n" + "// next\n".join(parts) + "// footer\n"
    else:
        text = pool.api
    write(
        args.output_dir / "fmha_fwd_api.cpp",
        text.replace("r = -1", "r{-1}") if switches.REWRITTEN else text,
    )


if __name__ == "__main__":
    main()
