"""python_module: one module of a manifest that Python imports, or whose C functions it calls."""

load("//rules/private/compile:embedded_code_objects.bzl", "embedded_code_objects")
load("//rules/private/compile:hip_source.bzl", "hip_source")
load(":generated_headers.bzl", "generated_headers")
load(":shared_form.bzl", "shared_form")

def python_module(
        name,
        file,
        export_list,
        archs,
        sources,
        headers,
        deps,
        plan,
        bundle_files,
        copts = [],
        generated = [],
        code_objects = {},
        rocm_headers = None):
    """Declares a Python module.

    Expands to a hip_source per source, an embedded_code_objects where there are
    any, and a shared_form.

    Args:
      name: target name, the module's (module_aiter_enum).
      file: file name of the library, by which Python finds it.
      export_list: version script with what leaves it.
      archs: archs the sources are compiled for.
      sources: dict from a source's name to its file.
      headers: label of the header_set for the sources.
      deps: labels of Python's and pybind11's headers; [] for one with C functions.
      plan: label of plan.json.
      bundle_files: label of the manifest's bundle_files.
      copts: compiler flags of the module.
      generated: generated files that sources include, in <name>/generated.
      code_objects: dict from an arch to a dict from the label of a .co file to
        its key.
      rocm_headers: label of the headers of ROCm's libraries, where it includes some.
    """
    own_deps = [headers] + deps + ([rocm_headers] if rocm_headers else []) + generated_headers(name, generated)
    parts = [name + "." + source for source in sources]
    if code_objects:
        embedded_code_objects(
            name = name + ".code_objects",
            code_objects = {label: key for found in code_objects.values() for label, key in found.items()},
        )
        parts = parts + [name + ".code_objects"]
        own_deps = own_deps + [Label("//cc/api:asm")]
        copts = copts + ["-DAITER_EMBEDDED_HSA_HEADER=<qola_embedded_hsa.h>"]
    for source, src in sources.items():
        hip_source(
            name = name + "." + source,
            src = src,
            archs = archs,
            copts = copts,
            deps = own_deps,
        )
    shared_form(
        name = name,
        archs = archs,
        bundle_files = bundle_files,
        deps = parts,
        export_list = export_list,
        file = file,
        headers = headers,
        # Python's symbols are those of the interpreter that loads it.
        link_flags = ["-Wl,--as-needed"] + ([] if deps else ["-Wl,-z,defs"]),
        plan = plan,
    )
