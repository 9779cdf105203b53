"""module_library: one module of a manifest as a shared library that exports its namespace alone."""

load("@rules_cc//cc:defs.bzl", "cc_shared_library")
load(":hip_library.bzl", "hip_library")
load(":library_info.bzl", "library_info")

def module_library(name, file, export_list, archs, kernels, sources, headers, public_headers, plan, bundle_files, copts = []):
    """Declares a module's shared library.

    Expands to a hip_library per source, a cc_shared_library and a
    library_info, which carries the name.

    Args:
      name: target name, the module's (libmha_fwd).
      file: file name of the library, <namespace>_<module>.so.
      export_list: version script that names the exported symbols.
      archs: archs the dispatch and entry points are compiled for.
      kernels: labels of the kernel instances.
      sources: dict from a source's name to its file: dispatch and entry points.
      headers: label of the header_set for the sources.
      public_headers: label of a header target for the library's users.
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
            deps = [headers, public_headers],
        )
    cc_shared_library(
        name = name + ".shared",
        additional_linker_inputs = [export_list],
        deps = [name + "." + source for source in sources] + kernels,
        features = ["-static_libgcc"],
        shared_lib_name = file,
        target_compatible_with = [Label("//rules/rocm:rocm")],
        user_link_flags = [
            "-Wl,--version-script=$(location {})".format(export_list),
            # A direction that was dropped must not leave a hole that shows
            # only when the process loads the library.
            "-Wl,-z,defs",
            "-Wl,-soname," + file,
            "-lamdhip64",
        ],
    )
    library_info(
        name = name,
        bundle_files = bundle_files,
        headers = public_headers,
        library = name + ".shared",
        plan = plan,
        visibility = ["//visibility:public"],
    )
