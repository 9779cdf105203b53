"""The modules of a manifest: attention libraries, modules that Python imports, and torch modules."""

load("@rules_cc//cc:defs.bzl", "cc_library")
load("@rules_hip//lib:compile.bzl", "HOST_ONLY")
load("@rules_hip//rocm:flags.bzl", "DISPATCH_HOST_CODE", "NO_GLOBALS_AA", "SMALL_HOST_CODE")
load("//rules/torch:torch_repository.bzl", "FURTHER_LIBRARIES", "LIBRARIES")
load(":arch_part.bzl", "arch_part")
load(":code_objects.bzl", "embedded_code_objects")
load(":compile.bzl", "aiter_cc_library", "hip_source")
load(":lazy.bzl", "lazy_form")
load(":library.bzl", "shared_form")
load(":link.bzl", "OLDER_SYSTEMS_NAMES")
load(":providers.bzl", "FunctionLibrariesInfo", "QolaLibraryInfo")
load(":settings.bzl", "by_archs", "subsets")
load(":torch_source.bzl", "TORCH_FLAGS", "torch_deps", "torch_source")

_CPU_CHECK = Label("//rules/torch:cpu_check")

# AITER's sources find code objects in the library's table, not on disk.
_EMBEDDED_HSA = ["-DAITER_EMBEDDED_HSA_HEADER=<qola_embedded_hsa.h>"]

# The same for modules that are not attention, whose sources name files.
_EMBEDDED_FILES = ["-DAITER_EMBEDDED_HSA_HEADER=<qola_embedded_hsa_files.h>"]

def _asm_headers(name, headers):
    """Declares the headers that select assembly kernels, and returns the labels to depend on."""
    cc_library(
        name = name + ".asm_headers",
        hdrs = headers,
        includes = {header.rpartition("/")[0]: None for header in headers}.keys(),
    )
    return [name + ".asm_headers", Label("//runtime/api:asm")]

def _generated_headers(name, files, batch_files, archs = []):
    """Declares the generated files that sources include.

    Args:
      name: the module.
      files: all generated files that sources include.
      batch_files: dict from the name of a batch to those that it reads, so that its action key has no other.
      archs: archs of a module with other generated files for each of them, in a directory each.

    Returns:
      function from a source's name and the list of its archs to labels to depend on.
    """
    if not files:
        return lambda source, selected: []
    for arch in archs or [""]:
        generated = "/".join([name, "generated"] + ([arch] if arch else []))

        # Batches find the headers there first, which include those without a guard once.
        once = [file for file in files if file.startswith(generated + "/once/")]
        own = [file for file in files if file.startswith(generated + "/")]
        for source, read in ({arch: own} | batch_files).items():
            if read and not read[0].startswith(generated + "/"):
                continue
            cc_library(
                name = "{}{}.generated".format(name, "." + source if source else ""),
                includes = ([generated + "/once"] if once else []) + [generated],
                textual_hdrs = read,
            )

    def generated_of(source, selected):
        of = source if source in batch_files else selected[0] if archs else ""
        return ["{}{}.generated".format(name, "." + of if of else "")]

    return generated_of

def _size_flags(sources):
    """Returns a function from a source's name to its flags: those of kernel instances if a generator wrote it.

    Args:
      sources: dict from a set of archs to a dict from a source's name to its file.
    """
    generated = {name: None for files in sources.values() for name, file in files.items() if "/generated/" in file}
    return lambda source: SMALL_HOST_CODE + (NO_GLOBALS_AA if source in generated else [])

def _prefix(name, archs, selected):
    """Returns the beginning of the names of a module's targets for some archs of the manifest."""

    # The usual library, with all archs, has the short names.
    return ".".join([name] + ([] if selected == archs else selected) + [""])

def _code_objects_table(prefix, selected, code_objects):
    """Declares the table of a module's code objects for some archs, and returns its label."""
    embedded_code_objects(
        name = prefix + "code_objects",
        code_objects = {
            label: key
            for arch in selected
            for label, key in code_objects.get(arch, {}).items()
        },
    )
    return prefix + "code_objects"

def _compiled_sources(name, archs, sources, deps_of, copts_of, code_objects = None, declare = None, **kwargs):
    """Declares the targets of sources and code objects, for each set of archs.

    Args:
      name: the module.
      archs: sorted archs of the manifest.
      sources: dict from a set of archs, joined by blanks, to a dict from a
        source's name to its file.
      deps_of: function from a source's name and the list of archs to the labels
        that it depends on.
      copts_of: function from a source's name and the list of archs to compiler flags.
      code_objects: dict from an arch to a dict from the label of a .co file to
        its key; None for a module without a table of them.
      declare: function that declares the target of a source, from the source's name and the attributes of hip_source;
        by default as a hip_source.
      **kwargs: further attributes of the sources' targets.

    Returns:
      dict from a set of archs to labels.
    """
    declare = declare or (lambda _source, **attributes: hip_source(**attributes))
    parts = {}
    for key, files in sources.items():
        selected = key.split(" ")
        prefix = _prefix(name, archs, selected)
        parts[key] = [prefix + source for source in files]
        for source, src in files.items():
            declare(
                source,
                name = prefix + source,
                src = src,
                archs = selected,
                copts = copts_of(source, selected),
                deps = deps_of(source, selected),
                **kwargs
            )
        if code_objects != None:
            parts[key].append(_code_objects_table(prefix, selected, code_objects))
    return parts

def _objects(kernels, archs):
    """Returns the hip_objects of the kernel instances for any of some archs; cc_libraries around them are for people."""
    return [
        label + ".object"
        for key, labels in kernels.items()
        if [arch for arch in key.split(" ") if arch in archs]
        for label in labels
    ]

def module_library(name, file, export_list, archs, kernels, sources, entry_source, headers, public_headers, plan, bundle_files, linked = None, copts = [], asm_domain = None, code_objects = {}, host_only = [], stubs = [], kernel_headers = [], namespace = "", place = "", asm_tables = [], tree = None, kernel_names = None, max_bytes = 0):
    """Declares the library of an attention module, and its lazy form if there are `stubs`.

    Args:
      name: target name: the module, such as libmha_fwd.
      file: file name of the library, <namespace>_<module>.so.
      export_list: version script with the exported symbols.
      archs: sorted archs of the manifest.
      kernels: dict from archs, joined by blanks, to the labels of their kernel
        instances, for the lazy form.
      linked: the same of batches of kernel instances, and of kernel instances
        outside of batches, for the library; by default `kernels`.
      sources: dict from each set of archs that a library may have, joined by
        blanks, to a dict from a source's name to its file: dispatch and AITER's
        entry points, which refer to the kernels of that set.
      entry_source: C++ file that defines the exported entry points.
      headers: label of the header_set for the sources.
      public_headers: label of the public_headers.
      plan: label of plan.json.
      bundle_files: label of the manifest's bundle_files.
      copts: compiler flags of the module.
      asm_domain: generated header with the problems that AITER's assembly (v3)
        kernels serve in this manifest; None without such kernels.
      code_objects: dict from an arch to a dict from the label of a .co file to
        its key.
      host_only: names of sources without device code.
      stubs: C++ files that replace the kernel instances in the lazy library.
      kernel_headers: labels of the header_sets of kernel instances.
      namespace: the manifest's, below qola::; empty for qola:: itself.
      place: directory of the lazy library's sources, relative to the directory
        above the library's.
      asm_tables: headers by which AITER's own sources select and load assembly
        kernels.
      tree: label of a file at the root of the AITER tree.
      kernel_names: C++ file with the names of the kernels, for the C functions;
        None for a library without these.
      max_bytes: size of the library above which the build fails; 0 for no limit.
    """
    deps = [headers, public_headers]
    asm_headers = asm_tables + ([asm_domain] if asm_domain else [])
    if asm_headers:
        deps = deps + _asm_headers(name, asm_headers)

    small = copts + DISPATCH_HOST_CODE

    def copts_of(source, selected):
        if source == "entry_point":
            # The entry points compare the device with the archs.
            return small + HOST_ONLY + ["-DQOLA_ARCHS=" + ",".join(selected)] + (["-DQOLA_ASM"] if asm_domain else [])
        return small + (_EMBEDDED_HSA if asm_tables else []) + (HOST_ONLY if source in host_only else [])

    parts = _compiled_sources(
        name,
        archs,
        {key: files | {"entry_point": entry_source} for key, files in sources.items()},
        lambda source, _selected: deps + ([Label("//runtime/api:entry")] if source == "entry_point" else []),
        copts_of,
        code_objects = code_objects if asm_headers else None,
    )
    common_parts = []
    if kernel_names:
        common_parts = [name + ".kernel_names"]
        aiter_cc_library(
            name = name + ".kernel_names",
            srcs = [kernel_names],
            copts = HOST_ONLY,
            deps = [Label("//runtime/api:kernels")],
        )
    common = dict(
        archs = archs,
        bundle_files = bundle_files,
        export_list = export_list,
        file = file,
        headers = public_headers,
        # A dropped direction must not leave an undefined symbol that shows only
        # when the process loads the library.
        link_flags = ["-Wl,-z,defs"],
        max_bytes = max_bytes,
        plan = plan,
    )
    deps = by_archs(archs, lambda selected: parts[" ".join(selected)] + common_parts + _objects(linked or kernels, selected))
    shared_form(
        name = name,
        namespace = namespace,
        split = True,
        static_deps = deps + [OLDER_SYSTEMS_NAMES],
        deps = deps,
        **common
    )
    if stubs:
        lazy_form(
            name = name,
            copts = copts,
            kernel_headers = kernel_headers,
            all_kernels = _objects(kernels, archs),
            kernels = by_archs(archs, lambda selected: _objects(kernels, selected)),
            place = place,
            parts = by_archs(archs, lambda selected: parts[" ".join(selected)] + common_parts),
            stubs = stubs,
            tree = tree,
            **common
        )

def python_module(name, file, export_list, archs, sources, headers, deps, plan, bundle_files, copts = [], generated = [], batch_files = {}, code_objects = {}, rocm_headers = None, source_copts = {}, names = []):
    """Declares a module that Python imports without PyTorch, or whose C functions it calls.

    Args:
      name: target name: the module, such as module_aiter_enum.
      file: file name of the library, by which Python finds it.
      export_list: version script with the exported symbols.
      archs: sorted archs of the manifest.
      sources: dict from a source's name to its file.
      headers: label of the header_set for the sources.
      deps: labels of the headers of Python and pybind11; [] for one with C functions.
      plan: label of plan.json.
      bundle_files: label of the manifest's bundle_files.
      copts: compiler flags of the module.
      generated: generated files that sources include, in <name>/generated.
      batch_files: dict from a batch of generated sources to the files of `generated` that it reads.
      code_objects: dict from an arch to a dict from the label of a .co file to
        its key.
      rocm_headers: label of the headers of ROCm's libraries, if the module includes some.
      source_copts: dict from the name of a source to further compiler flags.
      names: further names by which Python imports the module.
    """
    if code_objects:
        copts = copts + _EMBEDDED_FILES
    sources_of = {" ".join(selected): sources for selected in subsets(archs)}
    size_flags = _size_flags(sources_of)
    module_deps = [headers] + deps + ([rocm_headers] if rocm_headers else []) + ([Label("//runtime/api:asm_files")] if code_objects else [])
    generated_of = _generated_headers(name, generated, batch_files)
    parts = _compiled_sources(
        name,
        archs,
        sources_of,
        lambda source, selected: module_deps + generated_of(source, selected),
        lambda source, _selected: copts + source_copts.get(source, []) + size_flags(source),
        code_objects = code_objects or None,
    )
    shared_form(
        name = name,
        archs = archs,
        bundle_files = bundle_files,
        deps = by_archs(archs, lambda selected: parts[" ".join(selected)]),
        export_list = export_list,
        file = file,
        headers = headers,
        # The interpreter that loads the module defines Python's symbols.
        link_flags = ["-Wl,--as-needed"] + ([] if deps else ["-Wl,-z,defs"]),
        names = names,
        plan = plan,
    )

def _function_libraries_impl(ctx):
    infos = [library[QolaLibraryInfo] for library in ctx.attr.libraries]
    return [
        DefaultInfo(files = depset([info.library for info in infos])),
        FunctionLibrariesInfo(libraries = infos),
        OutputGroupInfo(plan = depset([info.plan for info in infos])),
    ]

function_libraries = rule(
    implementation = _function_libraries_impl,
    attrs = {
        "libraries": attr.label_list(mandatory = True, providers = [QolaLibraryInfo]),
    },
    doc = "The libraries of a manifest's functions of AITER's second JIT, csrc/cpp_itfs.",
)

def _joined_parts(name, stem, archs, parts, headers, code_objects):
    """Declares one object for each arch, and the init function that selects one of them.

    Args:
      name: the module.
      stem: its name for Python.
      archs: sorted archs of the manifest.
      parts: dict from an arch to the labels of its sources.
      headers: label of the headers of Python.
      code_objects: as of _compiled_sources.

    Returns:
      dict from a set of archs to labels.
    """
    for arch in archs:
        arch_part(name = "{}.{}".format(name, arch), symbol = "qola_init_{}_{}".format(stem, arch), deps = parts[arch])
    joined = {}
    for selected in subsets(archs):
        prefix = _prefix(name, archs, selected)
        hip_source(
            name = prefix + "init",
            src = Label("//runtime/torch:archs.cpp"),
            archs = selected,
            copts = HOST_ONLY,
            local_defines = ["QOLA_MODULE=" + stem, "QOLA_EACH_ARCH=" + "".join(["QOLA_ARCH({})".format(arch) for arch in selected])],
            deps = [headers, Label("//runtime/lazy:device")],
        )
        table = [_code_objects_table(prefix, selected, code_objects)] if code_objects != None else []
        joined[" ".join(selected)] = ["{}.{}".format(name, arch) for arch in selected] + [prefix + "init"] + table
    return joined

def torch_module(name, file, export_list, archs, kernels, sources, headers, init, torch, plan, bundle_files, copts = [], host_only = [], code_objects = {}, asm_tables = [], asm_files = False, generated = [], batch_files = {}, batch_headers = None, source_copts = {}, names = [], per_arch = False, with_torch = []):
    """Declares a module that Python imports together with PyTorch, with its kernel instances.

    Args:
      name: target name: the module, such as module_mha_fwd.
      file: file name of the library, by which Python finds it.
      export_list: version script with the one exported symbol.
      archs: sorted archs of the manifest.
      kernels: dict from archs, joined by blanks, to the labels of batches of
        kernel instances, and of kernel instances outside of batches.
      sources: dict from each set of archs that a module may have, joined by
        blanks, to a dict from a source's name to its file; with `per_arch` from
        each arch.
      headers: label of the header_set for the sources.
      init: names of the sources that define the module's init function for Python.
      torch: label of PyTorch's repository, @qola_torch.
      plan: label of plan.json.
      bundle_files: label of the manifest's bundle_files.
      copts: compiler flags of the module.
      host_only: names of sources without device code.
      code_objects: dict from an arch to a dict from the label of a .co file to
        its key.
      asm_tables: headers by which AITER's own sources select assembly kernels.
      asm_files: the sources load code objects from files, and get embedded ones instead.
      generated: generated files that sources include, in <name>/generated.
      batch_files: dict from a batch of generated sources to the files of `generated` that it reads.
      batch_headers: label of the header_set for these batches.
      source_copts: dict from the name of a source to further compiler flags.
      names: further names by which Python imports the module.
      per_arch: the sources differ from arch to arch, and define the same symbols:
        those of each arch become one object, which exports its init function
        only. Python's call goes to that of the current device's arch.
      with_torch: names of sources that include PyTorch's headers, whose meaning their flags do not change.
    """
    stem = file.removesuffix(".so")
    with_asm = bool(code_objects or asm_tables)
    deps = torch_deps(torch)
    if with_asm:
        deps = deps + _asm_headers(name, asm_tables)
    if asm_files:
        deps = deps + [Label("//runtime/api:asm_files")]
        copts = copts + _EMBEDDED_FILES + ["-include", "qola_asm_files.h"]

    def init_copts(selected):
        return [
            "-DTORCH_EXTENSION_NAME=" + stem,
            # qola's init function calls AITER's, which has the same name.
            "-DPyInit_{0}=qola_init_{0}{1}".format(stem, "_" + selected[0] if per_arch else ""),
        ]

    def declare(source, archs, **attributes):
        sides = (["host"] + ([] if source in host_only else archs)) if source in with_torch else []
        torch_source(archs = archs, sides = sides, torch = torch, **attributes)

    copts = copts + TORCH_FLAGS + (_EMBEDDED_HSA if asm_tables else [])
    size_flags = _size_flags(sources)
    generated_of = _generated_headers(name, generated, batch_files, archs if per_arch else [])
    parts = _compiled_sources(
        name,
        archs,
        sources,
        lambda source, selected: [batch_headers if source in batch_files else headers] + deps + generated_of(source, selected),
        lambda source, selected: copts + (init_copts(selected) if source in init else []) + source_copts.get(source, []) + size_flags(source) + (HOST_ONLY if source in host_only else []),
        code_objects = code_objects if with_asm and not per_arch else None,
        declare = declare,
        visibility = ["//visibility:public"],
    )
    if per_arch:
        parts = _joined_parts(name, stem, archs, parts, torch + "//:headers", code_objects if with_asm else None)
    hip_source(
        name = name + ".guard",
        src = Label("//runtime/torch:guard.cpp"),
        archs = archs,
        copts = HOST_ONLY,
        local_defines = ["QOLA_MODULE=" + stem],
        deps = [torch + "//:headers"],
    )
    libraries = [torch + "//:lib/" + library for library in LIBRARIES] + select({
        _CPU_CHECK: [],
        "//conditions:default": [torch + "//:lib/" + library for library in FURTHER_LIBRARIES],
    })
    shared_form(
        name = name,
        archs = archs,
        bundle_files = bundle_files,
        deps = by_archs(archs, lambda selected: parts[" ".join(selected)] + _objects(kernels, selected) + [name + ".guard"]),
        export_list = export_list,
        file = file,
        headers = headers,
        link_inputs = libraries,
        # No -z defs: the interpreter that loads the module defines Python's symbols.
        link_flags = [
            "-Wl,--gc-sections",
            "-Wl,--as-needed",
        ] + ["$(location {}//:lib/{})".format(torch, library) for library in LIBRARIES] + select({
            _CPU_CHECK: [],
            "//conditions:default": ["$(location {}//:lib/{})".format(torch, library) for library in FURTHER_LIBRARIES],
        }),
        names = names,
        plan = plan,
    )
