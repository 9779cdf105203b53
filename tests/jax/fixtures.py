"""The functions of QOLA_TEST_WHEEL, and the emulated device that they launch on."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from typing import Any
from zipfile import ZipFile

import pytest

from tests.jax.on_emulator import HANDLERS, PACKAGE, WHEEL, Device


@pytest.fixture(scope="session")
def emulated() -> Device:
    return Device()


@pytest.fixture(scope="session")
def ops(tmp_path_factory: pytest.TempPathFactory, emulated: Device) -> Any:
    site = tmp_path_factory.mktemp("site")
    ZipFile(WHEEL).extractall(site)
    sys.path.insert(0, str(site))
    found = importlib.import_module(f"{PACKAGE}.jax")
    found._register(HANDLERS, "cpu")
    return found


@pytest.fixture
def device(ops: Any, emulated: Device) -> Iterator[Device]:
    emulated.launches.clear()
    yield emulated
    # A kernel's own fault says more than that a call of HIP failed.
    emulated.raise_error()
