"""python_module: one module of a manifest that Python imports."""

load("//rules/private/compile:hip_source.bzl", "hip_source")
load(":shared_form.bzl", "shared_form")

def python_module(name, file, export_list, archs, sources, headers, deps, plan, bundle_files, copts = []):
    """Declares a Python module.

    Expands to a hip_source per source and a shared_form.

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
        hip_source(
            name = name + "." + source,
            src = src,
            archs = archs,
            copts = copts,
            deps = [headers] + deps,
        )
    shared_form(
        name = name,
        archs = archs,
        bundle_files = bundle_files,
        deps = [name + "." + source for source in sources],
        export_list = export_list,
        file = file,
        headers = headers,
        # No -z defs: the interpreter that loads it has Python's symbols.
        link_flags = ["-Wl,--as-needed"],
        plan = plan,
    )
