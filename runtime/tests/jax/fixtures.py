"""Fixtures: the functions of QOLA_TEST_WHEEL, and the emulated device of their launches."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runtime.tests.jax.on_emulator import Device, unpack


@pytest.fixture(scope="session")
def emulated() -> Device:
    return Device()


@pytest.fixture(scope="session")
def ops(tmp_path_factory: pytest.TempPathFactory, emulated: Device) -> Any:
    wheel, site = Path(os.environ["QOLA_TEST_WHEEL"]), tmp_path_factory.mktemp("site")
    unpack([wheel], site)
    return emulated.load_package(site, wheel.name.partition("-")[0])


@pytest.fixture
def device(ops: Any, emulated: Device) -> Iterator[Device]:
    emulated.launches.clear()
    yield emulated
    # The error of the kernel is more specific than the error of the HIP call.
    emulated.raise_error()
