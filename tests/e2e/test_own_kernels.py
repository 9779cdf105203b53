"""Build kernels from configs with Bazel and a compiler: one valid config and two invalid ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qola.kernel.config import KernelConfig, Tile
from qola.kernel.rules import validate
from qola_lab.fmha.build import BuiltKernel, build_configs
from qola_lab.fmha.registry import Registry
from tests.e2e.nested_bazel import User, user_disk_cache

#: The forward kernel of tests/manifests/own.toml: a cache may already have it.
OWN = KernelConfig.from_name(
    "fwd.fp16.batch.d32x32.gfx950.b64x64x16x32x32x32_r2x1x1_r2x1x1_w32x32x16_w32x32x16"
    ".p-qr.v-row.nmask.bias-no.lse.ndropout.nsquant.nlogits.nskip.ntrload.spad.skpad.dpad.dvpad"
)
#: Four waves cannot load a tile of 16 keys: no rule of qola rejects it, but a CK header does.
REFUSED = replace(
    OWN, tile=Tile.parse("b64x16x16x32x16x32_r4x1x1_r4x1x1_w16x16x16_w16x16x16") or OWN.tile
)
BROKEN = replace(OWN, hdim_q=20, logits=True, bias="alibi")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> list[BuiltKernel]:
    """The results for the three configs, with the shared cache of compiled kernels."""
    user = User(tmp_path_factory.mktemp("user"))
    disk = user.directory / "cache/qola/disk"
    disk.parent.mkdir(parents=True)
    disk.symlink_to(user_disk_cache())
    configs = [BROKEN, REFUSED, OWN]
    return build_configs(configs, ["gfx950"], environ=user.environment())


def test_a_valid_kernel_is_built_despite_failures(built: list[BuiltKernel]) -> None:
    """Prevents: another kernel's error discards a kernel, or the registry does not list it."""
    assert [kernel.config for kernel in built] == [BROKEN, REFUSED, OWN]
    assert [bool(kernel.built) for kernel in built] == [False, False, True]
    valid = built[2]
    assert valid.built
    assert valid.error == ""
    assert valid.built.library.read_bytes()[:4] == b"\x7fELF"
    (entry,) = Registry.of("libmha_fwd", valid.built.repository)
    assert (entry.name, entry.config) == (valid.name, OWN)
    assert all(path.is_file() for path in (valid.built.runtime, valid.built.library))


def test_failed_kernels_report_the_cause(built: list[BuiltKernel]) -> None:
    """Prevents: a failed kernel does not report the violated rule or the compiler error."""
    broken, refused = built[:2]
    rules = [finding.rule.name for finding in validate(BROKEN)]
    assert len(rules) > 1
    assert all(rule in broken.error for rule in rules), broken.error
    assert not validate(REFUSED)
    assert "static assertion failed" in refused.error
    assert "kNPerBlock % NPerRow == 0" in refused.error
