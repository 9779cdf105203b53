"""Kernels by their configs, built by a Bazel and a compiler: one that is, and two that are none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qola.fmha.build import BuiltKernel, build_configs
from qola.fmha.registry import Registry
from qola.kernel.config import KernelConfig, Tile
from qola.kernel.rules import validate
from tests.e2e.nested_bazel import User, user_disk_cache

#: The forward of tests/manifests/own.toml: the cache has it where that was built.
OWN = KernelConfig.from_name(
    "fwd.fp16.batch.d32x32.gfx950.b64x64x16x32x32x32_r2x1x1_r2x1x1_w32x32x16_w32x32x16"
    ".p-qr.v-row.nmask.bias-no.lse.ndropout.nsquant.nlogits.nskip.ntrload.spad.skpad.dpad.dvpad"
)
#: Sixteen columns of K, which four waves cannot load: no rule says so, a header of CK does.
REFUSED = replace(
    OWN, tile=Tile.parse("b64x16x16x32x16x32_r4x1x1_r4x1x1_w16x16x16_w16x16x16") or OWN.tile
)
BROKEN = replace(OWN, hdim_q=20, logits=True, bias="alibi")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> list[BuiltKernel]:
    """What comes of the three, with the shared cache of compiled kernels."""
    user = User(tmp_path_factory.mktemp("user"))
    disk = user.directory / "cache/qola/disk"
    disk.parent.mkdir(parents=True)
    disk.symlink_to(user_disk_cache())
    configs = [BROKEN, REFUSED, OWN]
    return build_configs(configs, ["gfx950"], environ=user.environment())


def test_one_is_built_whatever_becomes_of_others(built: list[BuiltKernel]) -> None:
    """Prevents: a kernel that is lost to another one's compiler error, or is none to ask for."""
    assert [one.config for one in built] == [BROKEN, REFUSED, OWN]
    assert [bool(one.built) for one in built] == [False, False, True]
    own = built[2]
    assert own.built
    assert own.error == ""
    assert own.built.library.read_bytes()[:4] == b"\x7fELF"
    (entry,) = Registry.of("libmha_fwd", own.built.repository)
    assert (entry.name, entry.config) == (own.name, OWN)
    assert all(place.is_file() for place in (own.built.runtime, own.built.library))


def test_the_others_say_why(built: list[BuiltKernel]) -> None:
    """Prevents: a kernel that is not there, and nobody who says which rule or line is why."""
    broken, refused = built[:2]
    rules = [one.rule.name for one in validate(BROKEN)]
    assert len(rules) > 1
    assert all(rule in broken.error for rule in rules), broken.error
    assert not validate(REFUSED)
    assert "static assertion failed" in refused.error
    assert "kNPerBlock % NPerRow == 0" in refused.error
