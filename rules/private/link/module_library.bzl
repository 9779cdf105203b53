"""module_library: one module of a manifest as a shared library that exports its namespace alone."""

load("@rules_cc//cc:defs.bzl", "cc_library")
load("//rules/private:archs.bzl", "by_archs")
load("//rules/private:kernel_target.bzl", "KERNEL_TARGET")
load("//rules/private/compile:embedded_code_objects.bzl", "embedded_code_objects")
load("//rules/private/compile:hip_source.bzl", "HOST_ONLY", "hip_source")
load(":lazy_form.bzl", "lazy_form")
load(":link_flags.bzl", "OLDER_SYSTEMS_NAMES")
load(":shared_form.bzl", "shared_form")
load(":static_form.bzl", "static_form")

def _source_target(module, archs, on, source):
    # The usual library, with all archs, has the short names.
    return ".".join([module] + ([] if on == archs else on) + [source])

def module_library(name, file, export_list, archs, kernels, sources, entry_source, headers, public_headers, plan, bundle_files, linked = None, copts = [], asm_domain = None, code_objects = {}, host_only = [], stubs = [], kernel_headers = [], namespace = "", place = "", asm_tables = [], tree = None, kernel_names = None):
    """Declares a module's shared library, its static and its lazy form.

    Expands to a hip_source per source and set of archs, embedded_code_objects
    per set of archs, a shared_form and <name>_static, a static_form of the
    same objects. --@qola//:archs picks the set. With `stubs` there is also a
    lazy_form, which shares all but the kernels.

    Args:
      name: target name, the module's (libmha_fwd).
      file: file name of the library, <namespace>_<module>.so.
      export_list: version script that names the exported symbols.
      archs: archs of the manifest, sorted.
      kernels: dict from archs, joined by blanks, to the labels of the kernel
        instances that are compiled for these, for the lazy form.
      linked: the same of what the library links: batches of kernel instances,
        and those that are in none; by default all of `kernels`, each alone.
      sources: dict from each set of archs a library may have, joined by
        blanks, to a dict from a source's name to its file: dispatch and
        AITER's entry points, which name the kernels of that set.
      entry_source: C++ file that defines the exported entry points.
      headers: label of the header_set for the sources.
      public_headers: label of a header target for the library's users.
      plan: label of plan.json.
      bundle_files: label of the manifest's bundle_files.
      copts: compiler flags of the module.
      asm_domain: generated header that says which problems AITER's assembly
        (v3) kernels serve in this manifest; None without such kernels.
      code_objects: dict from an arch to a dict from the label of a .co file to
        its key.
      host_only: names of those sources that have no device code: generated
        dispatch, and what launches assembly kernels.
      stubs: C++ files that stand for the kernel instances in the lazy library.
      kernel_headers: labels of header_sets with what the kernel instances
        include.
      namespace: the manifest's, below qola::; empty for qola:: itself.
      place: where the lazy library's sources are, relative to the directory
        above the library's.
      asm_tables: headers that AITER's own sources select assembly kernels by,
        where these sources load the kernels themselves.
      tree: label of a file at the root of the AITER tree.
      kernel_names: C++ file with the names of the kernels, for the C functions;
        None for a library without these.
    """
    own_deps = [headers, public_headers]
    asm_headers = asm_tables + ([asm_domain] if asm_domain else [])
    if asm_headers:
        cc_library(
            name = name + ".asm_headers",
            hdrs = asm_headers,
            includes = {header.rpartition("/")[0]: None for header in asm_headers}.keys(),
        )
        own_deps = own_deps + [name + ".asm_headers", Label("//cc/api:asm")]

    common_parts = []
    if kernel_names:
        common_parts = [name + ".kernel_names"]
        cc_library(
            name = name + ".kernel_names",
            srcs = [kernel_names],
            copts = HOST_ONLY,
            features = ["aiter"],
            linkstatic = True,
            tags = ["supports-path-mapping"],
            deps = [Label("//cc/api:kernels")],
            **KERNEL_TARGET
        )

    # The map in which these sources look for code objects, instead of on disk.
    map_copts = ["-DAITER_EMBEDDED_HSA_HEADER=<qola_embedded_hsa.h>"] if asm_tables else []
    parts = {}
    for key, files in sources.items():
        on = key.split(" ")
        parts[key] = [_source_target(name, archs, on, source) for source in files.keys() + ["entry_point"]] + common_parts
        for source, src in files.items():
            hip_source(
                name = _source_target(name, archs, on, source),
                src = src,
                archs = on,
                copts = copts + map_copts + (HOST_ONLY if source in host_only else []),
                fixed_archs = True,
                deps = own_deps,
            )
        hip_source(
            name = _source_target(name, archs, on, "entry_point"),
            src = entry_source,
            archs = on,
            # What the entry points compare the device with.
            copts = copts + HOST_ONLY + ["-DQOLA_ARCHS=" + ",".join(on)] + (["-DQOLA_ASM"] if asm_domain else []),
            fixed_archs = True,
            deps = own_deps + [Label("//cc/api:entry")],
        )
        if asm_headers:
            embedded = _source_target(name, archs, on, "code_objects")
            embedded_code_objects(
                name = embedded,
                code_objects = {
                    label: key
                    for arch in on
                    for label, key in code_objects.get(arch, {}).items()
                },
            )
            parts[key] = parts[key] + [embedded]

    common = dict(
        archs = archs,
        bundle_files = bundle_files,
        export_list = export_list,
        file = file,
        headers = public_headers,
        # A direction that was dropped must not leave a hole that shows only
        # when the process loads the library.
        link_flags = ["-Wl,-z,defs"],
        plan = plan,
    )

    # The objects themselves, not the cc_libraries around them.
    def objects_of(targets, on):
        return [
            label + ".object"
            for wanted, labels in targets.items()
            if [arch for arch in wanted.split(" ") if arch in on]
            for label in labels
        ]

    deps = by_archs(archs, lambda on: parts[" ".join(on)] + objects_of(linked or kernels, on))
    shared_form(
        name = name,
        deps = deps,
        **common
    )
    static_form(
        name = name + "_static",
        file = file.removesuffix(".so") + ".o",
        headers = public_headers,
        namespace = namespace,
        plan = plan,
        tags = ["manual"],
        visibility = ["//visibility:public"],
        deps = deps + [OLDER_SYSTEMS_NAMES],
        **KERNEL_TARGET
    )
    if stubs:
        lazy_form(
            name = name,
            copts = copts,
            kernel_headers = kernel_headers,
            all_kernels = objects_of(kernels, archs),
            kernels = by_archs(archs, lambda on: objects_of(kernels, on)),
            place = place,
            parts = by_archs(archs, lambda on: parts[" ".join(on)]),
            stubs = stubs,
            tree = tree,
            **common
        )
