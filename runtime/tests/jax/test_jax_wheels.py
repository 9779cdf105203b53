"""JAX functions of the wheels of split and lazy bundles."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from runtime.tests.jax.on_emulator import Device, compare, random, unpack
from tests.support.running import output_of

SPLIT = [Path(name) for name in os.environ["QOLA_TEST_SPLIT_WHEELS"].split()]
LAZY = Path(os.environ["QOLA_TEST_LAZY_WHEEL"])
PACKAGES = ["qola_ci", "qola_ci_lazy"]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> tuple[Device, dict[str, Any]]:
    """Return the device, and functions by package: host and gfx950 wheel, and lazy wheel."""
    # Kernels can come only from the lazy wheel's pack.
    os.environ |= {"QOLA_LAZY": "never", "QOLA_CACHE": str(tmp_path_factory.mktemp("cache"))}
    site, device = tmp_path_factory.mktemp("site"), Device()
    unpack([*(wheel for wheel in SPLIT if "gfx942" not in wheel.name), LAZY], site)
    return device, {package: device.load_package(site, package) for package in PACKAGES}


@pytest.mark.parametrize("package", PACKAGES)
def test_results_and_gradients(packages: tuple[Device, dict[str, Any]], package: str) -> None:
    """Prevents: kernels of packs run only for PyTorch and C."""
    device, ops = packages
    device.launches.clear()
    compare(ops[package], [random(1, 32, heads, 32, seed=heads) for heads in (2, 1, 1)])
    device.raise_error()
    kernels = [launch.kernel.lower() for launch in device.launches]
    assert any("fwd" in kernel for kernel in kernels)
    assert any("bwd" in kernel for kernel in kernels)


def test_missing_code_is_named(tmp_path: Path) -> None:
    """Prevents: an XLA error does not name the missing file or the command that installs it."""
    unpack([*(wheel for wheel in SPLIT if "gfx950" not in wheel.name), LAZY], tmp_path)
    (pack,) = tmp_path.glob("qola_ci_lazy/share/qola/ci/packs/*")
    pack.unlink()
    command = [sys.executable, "-m", "runtime.tests.jax.missing_code", str(tmp_path), *PACKAGES]
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "QOLA_CACHE": str(tmp_path / "cache"),
        "QOLA_LAZY": "never",
    }
    errors, launches = json.loads(output_of(command, env=env))
    assert launches == 0
    # XLA adds to the message.
    for text in (
        "UNAVAILABLE: qola_ci_mha_fwd: ci_libmha_fwd.so has no device code for gfx950: "
        "ci_libmha_fwd-gfx950.qpack is missing; searched: ",
        "; fix: pip install qola-ci-gfx950==0.1.0",
    ):
        assert text in errors["qola_ci"]
    assert "UNAVAILABLE: qola_ci_mha_fwd: fmha_fwd_d32_fp16_batch_" in errors["qola_ci_lazy"]
    assert "qola-kernels build --arch gfx950 fmha_fwd_d32_fp16_" in errors["qola_ci_lazy"]
