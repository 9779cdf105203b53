"""Runs a script of AITER's op_tests with its arguments on the emulated GPU.

Usage: run_op_test.py RESULT SCRIPT [argument...]

The modules come from AITER_JIT_DIR; a call of AITER's compiler is an error. A function that AITER
repeats to measure its time runs once. RESULT is a JSON file with the comparisons of checkAllclose
and the launched kernels: AITER's tests only log a failed comparison.
"""

import collections
import importlib
import inspect
import json
import os
import runpy
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from gfxemu.launch import Options
from qola_base.errors import QolaError
from tests.torch.emulated import ARCH, Device

UNITS = 256
#: The share of wrong elements that checkAllclose tolerates.
LIMIT = 0.05
#: Arguments of run_perftest, not of the function that it calls.
TIMING = ("num_iters", "num_warmup", "testGraph", "num_rotate_args", "needTrace")


def reject_compile(name: str, *_: object, **__: object) -> None:
    """Replace AITER's build_module by an error."""
    raise SystemExit(f"AITER compiles {name}")


def add_gpu_functions(device: Device) -> None:
    """Add the functions to torch.cuda that AITER calls and that this PyTorch lacks."""
    properties = types.SimpleNamespace(
        gcnArchName=ARCH, multi_processor_count=UNITS, name=ARCH, warp_size=64
    )
    functions: dict[str, Callable[..., object]] = {
        "current_device": lambda: 0,
        "device_count": lambda: 1,
        "empty_cache": lambda: None,
        "get_device_properties": lambda _=None: properties,
        "get_rng_state": lambda _=None: torch.get_rng_state(),
        "is_available": lambda: True,
        "set_rng_state": lambda state, _=None: torch.set_rng_state(state),
        "synchronize": lambda _=None: device.raise_error(),
    }
    vars(torch.cuda).update(functions)


def run_once(device: Device, function: Callable[..., Any]) -> Callable[..., tuple[Any, float]]:
    """Wrap a function: run it once, and return its result and a time in microseconds."""

    def run(*arguments: Any, **options: Any) -> tuple[Any, float]:
        result = function(*arguments, **{k: v for k, v in options.items() if k not in TIMING})
        device.raise_error()
        return result, 1.0

    return run


def record_check(check: Callable[..., float], found: list[dict[str, Any]]) -> Callable[..., float]:
    """Wrap checkAllclose: also record the share of wrong elements and its limit."""

    def check_and_record(*arguments: Any, **options: Any) -> float:
        bound = inspect.signature(check).bind(*arguments, **options)
        bound.apply_defaults()
        share = float(check(*arguments, **options))
        limit = bound.arguments["tol_err_ratio"]
        found.append({"message": bound.arguments["msg"], "share": share, "limit": limit})
        return share

    return check_and_record


def record_results(
    benchmark: Callable[..., Any], found: list[dict[str, Any]]
) -> Callable[..., Any]:
    """Wrap AITER's decorator: also record the comparisons that a test returns."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        run = benchmark()(function)

        def run_and_record(*arguments: Any, **options: Any) -> Any:
            result = run(*arguments, **options)
            for key, value in result.items():
                if key == "all_close" or key.startswith("err"):
                    share = float(value) if key != "all_close" else float(not value)
                    found.append({"message": key, "share": share, "limit": LIMIT})
            return result

        return run_and_record

    return decorate


def main() -> None:
    """Run the script, and exit with its exit code."""
    result, script, *arguments = sys.argv[1:]
    os.environ |= {"CU_NUM": str(UNITS), "GPU_ARCHS": ARCH}
    # Each tensor is a separate allocation, so that the emulator detects accesses beyond its end.
    os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    device = Device(Path(result).with_suffix(".log"), Options(strict=True))
    add_gpu_functions(device)
    importlib.import_module("tests.torch.absent")
    aiter, core, test_common = map(
        importlib.import_module, ("aiter", "aiter.jit.core", "aiter.test_common")
    )
    vars(core)["build_module"] = reject_compile
    checks: list[dict[str, Any]] = []
    benchmark = test_common.benchmark
    vars(test_common).update(
        benchmark=lambda: record_results(benchmark, checks),
        checkAllclose=record_check(test_common.checkAllclose, checks),
        perftest=lambda *_, **__: lambda function: run_once(device, function),
        run_perftest=lambda function, *a, **options: run_once(device, function)(*a, **options),
    )
    # Triton kernels do not run here; the reference replaces them.
    vars(aiter)["get_triton_quant"] = aiter.get_torch_quant
    sys.argv = [script, *arguments]
    torch.manual_seed(0)
    error = ""
    try:
        runpy.run_path(script, run_name="__main__")
        device.raise_error()
    except (Exception, SystemExit) as raised:
        error = f"{type(raised).__name__}: {raised}"
        # The error of a kernel is the cause of the script's error.
        try:
            device.raise_error()
        except QolaError as reason:
            error = f"{type(reason).__name__}: {reason}"
    kernels = collections.Counter(launch.kernel for launch in device.launches)
    text = json.dumps({"checks": checks, "error": error, "kernels": kernels}, indent=1)
    Path(result).write_text(text, "utf-8")
    sys.stdout.flush()
    sys.stderr.flush()
    # PyTorch fails to remove AITER's operators at exit.
    os._exit(bool(error))


if __name__ == "__main__":
    main()
