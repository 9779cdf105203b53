"""torch_module: one module of a manifest that Python imports beside PyTorch, with its kernel instances."""

load("@rules_cc//cc:defs.bzl", "cc_library")
load("//rules/private:archs.bzl", "by_archs")
load("//rules/private/compile:embedded_code_objects.bzl", "embedded_code_objects")
load("//rules/private/compile:hip_source.bzl", "HOST_ONLY", "hip_source")
load("//rules/private/link:generated_headers.bzl", "generated_headers")
load("//rules/private/link:shared_form.bzl", "shared_form")
load(":torch_repository.bzl", "FURTHER_LIBRARIES", "LIBRARIES")

_CPU_CHECK = Label("//rules/torch:cpu_check")

def torch_module(
        name,
        file,
        export_list,
        archs,
        kernels,
        sources,
        headers,
        init,
        torch,
        plan,
        bundle_files,
        copts = [],
        host_only = [],
        code_objects = {},
        asm_tables = [],
        generated = []):
    """Declares a torch module.

    Expands to a hip_source per source, one of qola's own that compares PyTorch's
    versions, an embedded_code_objects, and a shared_form.

    Args:
      name: target name, the module's (module_mha_fwd).
      file: file name of the library, by which Python finds it.
      export_list: version script that names the one exported symbol.
      archs: archs of the manifest, sorted.
      kernels: dict from archs, joined by blanks, to the labels of what is linked
        for these: batches of kernel instances, and those that are in none.
      sources: dict from each set of archs a module may have, joined by blanks,
        to a dict from a source's name to its file.
      headers: label of the header_set for the sources.
      init: names of those sources that define the module's function for Python.
      torch: label of PyTorch's repository, @qola_torch.
      plan: label of plan.json.
      bundle_files: label of the manifest's bundle_files.
      copts: compiler flags of the module.
      host_only: names of those sources that have no device code.
      code_objects: dict from an arch to a dict from the label of a .co file to
        its key.
      asm_tables: headers that AITER's own sources select assembly kernels by.
      generated: generated files that sources include, in <name>/generated.
    """
    stem = file.removesuffix(".so")
    own_deps = [headers] + select({
        # Found before PyTorch's own of the same name.
        _CPU_CHECK: [Label("//cc/torch:cpu_check"), torch + "//:headers"],
        "//conditions:default": [torch + "//:hip"],
    })
    own_deps = own_deps + [Label("@qola_rocm//:headers")] + generated_headers(name, generated)
    with_asm = bool(code_objects or asm_tables)
    if with_asm:
        cc_library(
            name = name + ".asm_headers",
            hdrs = asm_tables,
            includes = {header.rpartition("/")[0]: None for header in asm_tables}.keys(),
        )
        own_deps = own_deps + [name + ".asm_headers", Label("//cc/api:asm")]
    own_copts = copts + ["-DTORCH_API_INCLUDE_EXTENSION_H"]
    if asm_tables:
        own_copts = own_copts + ["-DAITER_EMBEDDED_HSA_HEADER=<qola_embedded_hsa.h>"]
    init_copts = [
        "-DTORCH_EXTENSION_NAME=" + stem,
        # AITER's own function of the name is called by qola's.
        "-DPyInit_{0}=qola_init_{0}".format(stem),
    ]

    parts = {}
    for key, files in sources.items():
        on = key.split(" ")
        suffix = "" if len(on) == len(archs) else "." + ".".join(on)
        parts[key] = [name + "." + source + suffix for source in files]
        for source, src in files.items():
            hip_source(
                name = name + "." + source + suffix,
                src = src,
                archs = on,
                copts = own_copts + (init_copts if source in init else []) + (HOST_ONLY if source in host_only else []),
                fixed_archs = True,
                visibility = ["//visibility:public"],
                deps = own_deps,
            )
        if with_asm:
            embedded_code_objects(
                name = name + ".code_objects" + suffix,
                code_objects = {
                    label: key
                    for arch in on
                    for label, key in code_objects.get(arch, {}).items()
                },
            )
            parts[key] = parts[key] + [name + ".code_objects" + suffix]
    hip_source(
        name = name + ".guard",
        src = Label("//cc/torch:guard.cpp"),
        archs = archs,
        copts = HOST_ONLY,
        fixed_archs = True,
        local_defines = ["QOLA_MODULE=" + stem],
        deps = [torch + "//:headers"],
    )

    def linked(on):
        return [
            label + ".object"
            for wanted, labels in kernels.items()
            if [arch for arch in wanted.split(" ") if arch in on]
            for label in labels
        ]

    torch_libraries = [torch + "//:lib/" + library for library in LIBRARIES]
    hip_libraries = [torch + "//:lib/" + library for library in FURTHER_LIBRARIES]
    shared_form(
        name = name,
        archs = archs,
        bundle_files = bundle_files,
        deps = by_archs(archs, lambda on: parts[" ".join(on)] + linked(on) + [name + ".guard"]),
        export_list = export_list,
        file = file,
        headers = headers,
        link_inputs = torch_libraries + select({
            _CPU_CHECK: [],
            "//conditions:default": hip_libraries,
        }),
        # No -z defs: the interpreter that loads it has Python's symbols.
        link_flags = [
            "-Wl,--gc-sections",
            "-Wl,--as-needed",
        ] + ["$(location {})".format(library) for library in torch_libraries] + select({
            _CPU_CHECK: [],
            "//conditions:default": ["$(location {})".format(library) for library in hip_libraries],
        }),
        plan = plan,
    )
