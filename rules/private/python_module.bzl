"""python_module: one module of a manifest that Python imports."""

load("@rules_cc//cc:defs.bzl", "cc_shared_library")
load(":archs.bzl", "by_archs")
load(":exec_properties.bzl", "EXEC_PROPERTIES")
load(":hip_library.bzl", "hip_library")
load(":large_code.bzl", "LARGE_CODE")
load(":library_info.bzl", "library_info")

def python_module(name, file, export_list, archs, sources, headers, deps, plan, bundle_files, copts = []):
    """Declares a Python module.

    Expands to a hip_library per source, a cc_shared_library and a
    library_info, which carries the name.

    Args:
      name: target name, the module's (module_aiter_enum).
      file: file name of the library, by which Python finds it.
      export_list: version script that names the one exported symbol.
      archs: archs the sources are compiled for.
      sources: dict from a source's name to its file.
      headers: label of the header_set for the sources.
      deps: labels of Python's and pybind11's headers.
      plan: label of plan.json.
      bundle_files: label of the manifest's bundle_files.
      copts: compiler flags of the module.
    """
    for source, src in sources.items():
        hip_library(
            name = name + "." + source,
            src = src,
            archs = archs,
            copts = copts,
            deps = [headers] + deps,
        )
    cc_shared_library(
        name = name + ".shared",
        additional_linker_inputs = [
            export_list,
            LARGE_CODE,
        ],
        exec_properties = EXEC_PROPERTIES,
        deps = [name + "." + source for source in sources],
        features = ["-static_libgcc"],
        shared_lib_name = file,
        target_compatible_with = [Label("//rules/rocm:rocm")],
        # No -z defs: the interpreter that loads it has Python's symbols.
        user_link_flags = [
            "-Wl,--version-script=$(location {})".format(export_list),
            "-Wl,-T,$(location {})".format(LARGE_CODE),
            "-Wl,-soname," + file,
            "-Wl,--as-needed",
            "-lamdhip64",
        ],
    )
    library_info(
        name = name,
        archs = by_archs(archs, lambda on: on),
        bundle_files = bundle_files,
        headers = headers,
        library = name + ".shared",
        plan = plan,
        visibility = ["//visibility:public"],
    )
