"""What a manifest's repository has of its kernels in Triton."""

from __future__ import annotations

from qola.plan.model import Plan, TritonKernel
from qola.starlark import call, dict_of_lists, inline_list, string, string_dict, string_list


def triton_targets(plan: Plan) -> list[str]:
    """Return the calls that declare the kernels, and the library of them all."""
    if not plan.triton:
        return []
    library = call(
        "qola_triton_library",
        {
            "name": string("triton_library"),
            "kernels": string_list((f":{kernel.name}" for kernel in plan.triton), 4),
            "manifest": string_dict(
                {
                    "bundle_files": ":bundle_files",
                    "config": "include/qola_config.h",
                    "plan": "plan.json",
                }
            ),
            "namespace": string(plan.namespace),
            "tags": inline_list(["manual"]),
            "visibility": inline_list(["//visibility:public"]),
        },
    )
    return [*map(_kernel, plan.triton), library]


def _kernel(kernel: TritonKernel) -> str:
    root = "@qola//qola/triton:" if kernel.own else ""
    source, *deps = (root + file.file for file in kernel.files)
    return call(
        "qola_triton_kernel",
        {
            "name": string(kernel.name),
            "src": string(source),
            "archs": inline_list(kernel.archs),
            "choices": dict_of_lists(dict(sorted(kernel.choices.items()))),
            "function": string(kernel.function),
            **({"signature": string_dict(kernel.signature)} if kernel.signature else {}),
            "tags": inline_list(["manual"]),
            **({"timeout": str(kernel.timeout)} if kernel.timeout else {}),
            "visibility": inline_list(["//visibility:public"]),
            "deps": inline_list(deps),
        },
    )
