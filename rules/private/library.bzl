"""Libraries of modules: the link, the targets that users depend on, and the headers."""

load("@rules_cc//cc:defs.bzl", "CcInfo", "cc_common", "cc_library", "cc_shared_library")
load("@rules_cc//cc:find_cc_toolchain.bzl", "find_cc_toolchain", "use_cc_toolchain")
load("@rules_hip//lib:cc.bzl", "KERNEL_TARGET", "llvm_action", "llvm_program")
load("@rules_hip//lib:transitions.bzl", "TRANSITION_ATTRS", "kernel_transition")
load("@rules_hip//rocm:hip_soname.bzl", "RUNTIME_LINK_FLAGS", "RUNTIME_LINK_INPUTS")
load(":link.bzl", "LARGE_CODE", "LINK_ATTRS", "OLDER_SYSTEMS", "RUNPATH_FLAGS", "linking_context")
load(":providers.bzl", "LazySourcesInfo", "QolaBundleFilesInfo", "QolaLibraryInfo")
load(":settings.bzl", "by_archs")
load(":split.bzl", "SPLIT_DIRECTORY", "SplitPacksInfo", "split_form")
load(":static.bzl", "static_module")

def _separate_symbols(ctx, linked, directory):
    """Declares the actions that move a library's symbols into a file of their own, by the same build-id.

    The library has no RUNPATH: a wheel shows the entries that the link hides here (qola_base/runpath.py).

    Args:
      ctx: the rule context.
      linked: File, the library with its symbols.
      directory: directory of the outputs below the package, with a slash at its end.

    Returns:
      struct(debug, library): Files.
    """
    toolchain = find_cc_toolchain(ctx)
    library = ctx.actions.declare_file(directory + linked.basename)
    debug = ctx.actions.declare_file(directory + linked.basename + ".debug")
    args = ctx.actions.args()
    args.add("--only-keep-debug")
    args.add_all([linked, debug])
    llvm_action(ctx, toolchain, "llvm-objcopy", [args], [linked], debug, "QolaSymbols", "Separating the symbols of %{label}")

    # AITER loads a module only if it names no GPUs or the machine's: _so_offload_archs in aiter/jit/core.py. Those in
    # compressed device code cannot be read.
    marker = ctx.actions.declare_file("{}.archs".format(library.basename), sibling = library)
    ctx.actions.write(marker, "".join(["amdhsa--{}\n".format(arch) for arch in ctx.attr.archs]))
    args = ctx.actions.args()
    args.add_all([llvm_program(toolchain, "llvm-objcopy"), linked, library])
    args.add_all(["--strip-all", "--keep-section=.comment"])
    args.add(debug, format = "--add-gnu-debuglink=%s")
    args.add(marker, format = "--add-section=.qola.archs=%s")
    ctx.actions.run(
        arguments = [args],
        executable = ctx.executable._strip,
        execution_requirements = {"supports-path-mapping": "1"},
        inputs = depset([linked, debug, marker], transitive = [toolchain.all_files]),
        mnemonic = "QolaStrip",
        outputs = [library],
        progress_message = "Stripping %{label}",
    )
    return struct(debug = debug, library = library)

def _size_check(ctx, library):
    """Declares the action that fails if the library is larger than max_bytes, and returns its empty outputs."""
    if not ctx.attr.max_bytes:
        return []
    output = ctx.actions.declare_file(ctx.label.name + ".max_bytes")
    args = ctx.actions.args()
    args.add("--plan", ctx.file.plan)
    args.add("--max-bytes", ctx.attr.max_bytes)
    args.add("--output", output)
    args.add(library)
    ctx.actions.run(
        arguments = [args],
        executable = ctx.executable.size_check,
        inputs = [library, ctx.file.plan],
        mnemonic = "QolaSize",
        outputs = [output],
        progress_message = "Checking the size of %{label}",
        # The tool finds Python on it; with strict_action_env it is Bazel's own.
        use_default_shell_env = True,
    )
    return [output]

def _further_names(ctx, library):
    """Declares the libraries by which Python imports the module under further names, in a directory."""
    if not ctx.attr.names:
        return None
    toolchain = find_cc_toolchain(ctx)
    output = ctx.actions.declare_directory(ctx.label.name + ".names")
    args = ctx.actions.args()
    args.add_all([llvm_program(toolchain, "clang++"), llvm_program(toolchain, "lld")])
    args.add_all([ctx.file._name_source, library, output], expand_directories = False)
    args.add_all(ctx.attr.names)
    ctx.actions.run_shell(
        arguments = [args],
        command = _FURTHER_NAMES,
        inputs = depset([ctx.file._name_source, library], transitive = [toolchain.all_files]),
        mnemonic = "QolaNames",
        outputs = [output],
        progress_message = "Linking the names of %{label}",
    )
    return output

def _split(ctx):
    separated = _separate_symbols(ctx, ctx.file.split, SPLIT_DIRECTORY)
    packs = ctx.attr.split_packs[SplitPacksInfo].packs
    return struct(debug = separated.debug, library = separated.library, packs = packs)

def _linked_module_impl(ctx):
    separated = _separate_symbols(ctx, ctx.file.linked, ctx.attr.directory)
    library = separated.library
    return [
        # Bazel runs the actions of this group in each build of the target or of one that depends on it.
        OutputGroupInfo(_validation = depset(_size_check(ctx, library))),
        DefaultInfo(files = depset([library])),
        QolaLibraryInfo(
            archs = ctx.attr.archs,
            bundle_files = ctx.attr.bundle_files[QolaBundleFilesInfo],
            debug = separated.debug,
            file_name = library.basename,
            headers = ctx.attr.headers[CcInfo],
            lazy = ctx.attr.lazy[LazySourcesInfo] if ctx.attr.lazy else None,
            library = library,
            names = _further_names(ctx, library),
            plan = ctx.file.plan,
            split = _split(ctx) if ctx.attr.split else None,
            static = static_module(
                ctx,
                ctx.attr.static_deps,
                library.basename.removesuffix(".so"),
                ctx.attr.namespace,
                ctx.attr.headers[CcInfo],
                ctx.file.plan,
            ) if ctx.attr.static_deps else None,
        ),
    ]

# Each forwards to the module, which is beside it, and has no code of its own beyond that.
_FURTHER_NAMES = """
set -eu
clang=$1 lld=$2 source=$3 library=$4 output=$5
shift 5
object=$output/forward.o
"$clang" -x c++ -O1 -fPIC -DQOLA_MODULE="$(basename "$library" .so)" -c "$source" -o "$object"
for name; do
    "$lld" -flavor gnu -shared -s -soname "$name.so" -rpath '$ORIGIN' --defsym="PyInit_$name=qola_forward" \
        "$object" "$library" -o "$output/$name.so"
done
rm "$object"
"""

_linked_module = rule(
    implementation = _linked_module_impl,
    attrs = {
        "archs": attr.string_list(mandatory = True),
        "bundle_files": attr.label(mandatory = True, providers = [QolaBundleFilesInfo]),
        "directory": attr.string(doc = "Directory of the library below the package, with a slash at its end."),
        "headers": attr.label(mandatory = True, providers = [CcInfo]),
        "lazy": attr.label(providers = [LazySourcesInfo]),
        "linked": attr.label(allow_single_file = True, doc = "The library with its symbols.", mandatory = True),
        "max_bytes": attr.int(doc = "Bytes of the library above which the build fails; 0 for no limit."),
        "names": attr.string_list(doc = "Further names by which Python imports the module."),
        "namespace": attr.string(doc = "The manifest's namespace, below qola::; empty for qola:: itself."),
        "plan": attr.label(allow_single_file = [".json"], mandatory = True),
        "size_check": attr.label(cfg = "exec", doc = "The program that compares with max_bytes; it needs packages of PyPI, which no other library fetches.", executable = True),
        "split": attr.label(allow_single_file = True, doc = "The host part of the library with its symbols; None for a library that cannot be split."),
        "split_packs": attr.label(doc = "The packs of the host part.", providers = [SplitPacksInfo]),
        "static_deps": attr.label_list(doc = "The objects of the static form; empty for a module without one.", providers = [CcInfo]),
        "_name_source": attr.label(allow_single_file = True, default = "//runtime/torch:name.cpp"),
        "_strip": attr.label(allow_single_file = True, cfg = "exec", default = ":strip.sh", executable = True),
    },
    doc = "Strips a module's library, and joins its parts to a QolaLibraryInfo; attributes are named as its fields.",
    fragments = ["cpp"],
    provides = [QolaLibraryInfo],
    toolchains = use_cc_toolchain(),
)

def _split_in_package(ctx, info):
    if not info.split:
        return None
    return struct(
        debug = _in_package(ctx, SPLIT_DIRECTORY, info.split.debug),
        library = _in_package(ctx, SPLIT_DIRECTORY, info.split.library),
        packs = {arch: _in_package(ctx, SPLIT_DIRECTORY, pack) for arch, pack in info.split.packs.items()},
    )

def _in_package(ctx, directory, file):
    """Returns a file of the library as a file of a directory of this package."""
    name = directory + file.basename
    path = [ctx.bin_dir.path, ctx.label.workspace_root, ctx.label.package, name]
    if "/".join([part for part in path if part]) == file.path:
        # In a manifest's repository, under the transition of another qola_library.
        return file
    link = ctx.actions.declare_file(name)
    ctx.actions.symlink(output = link, target_file = file)
    return link

def _qola_library_impl(ctx):
    # An attribute with an outgoing transition is a list of one.
    info = ctx.attr.library[0][QolaLibraryInfo]
    directory = "lazy/" if info.lazy else ""
    library = _in_package(ctx, directory, info.library)
    runfiles = [library]
    debug = _in_package(ctx, directory, info.debug)
    groups = {"debug": depset([debug]), "plan": depset([info.plan])}
    split = _split_in_package(ctx, info)
    if split:
        groups |= {"split": depset([split.library] + split.packs.values()), "split_debug": depset([split.debug])}
    if info.lazy:
        # The library looks for its sources there.
        root = ctx.actions.declare_directory(info.lazy.place)
        ctx.actions.symlink(output = root, target_file = info.lazy.root)
        runfiles.append(root)
        groups |= {"index": depset([info.lazy.index]), "root": depset([root])}
    if info.static:
        groups |= {"joined": depset([info.static.joined]), "static": depset([info.static.object])}
    return [
        CcInfo(
            compilation_context = info.headers.compilation_context,
            linking_context = linking_context(ctx, hip = ctx.attr._hip_runtime[CcInfo], dynamic_library = library),
        ),
        DefaultInfo(
            files = depset([library]),
            runfiles = ctx.runfiles(runfiles),
        ),
        OutputGroupInfo(**groups),
        QolaLibraryInfo(
            archs = info.archs,
            bundle_files = info.bundle_files,
            debug = debug,
            file_name = info.file_name,
            headers = info.headers,
            lazy = info.lazy,
            library = library,
            names = info.names,
            plan = info.plan,
            split = split,
            static = info.static,
        ),
    ]

qola_library = rule(
    implementation = _qola_library_impl,
    attrs = TRANSITION_ATTRS | LINK_ATTRS | {
        "library": attr.label(
            cfg = kernel_transition,
            doc = "The module in the manifest's repository: `@qola_<manifest>//:<module>`, or `<module>_lazy`.",
            mandatory = True,
            providers = [QolaLibraryInfo],
        ),
    },
    doc = """The shared library of one module of a manifest.

Builds `<namespace>_<module>.so` (for a Python module, `<module>.so`) under the
kernel transition: optimised, for ROCm, unaffected by the --copt, --features or
-c of the surrounding build. As a dependency of cc_binary or cc_library it
provides the public headers and links the library dynamically.

A lazy library, `<module>_lazy`, has the same file name and the same functions,
in the directory lazy/. Its runfiles contain the sources of its kernels, in
share/qola/ (docs/guide/lazy.md).

| Output group | Files |
| --- | --- |
| `debug` | `<library>.debug`: the symbols of the library, for gdb and profilers. The library has the dynamic ones only |
| `plan` | plan.json of the manifest |
| `static` | the module as one relocatable object, the member of a qola_static_library; `joined` is the object before symbols are hidden |
| `split` | the host part of the library, in the directory split/, and its packs, one per arch (docs/guide/bundle.md#split-by-arch) |
| `split_debug` | the symbols of the host part |
| `index`, `root` | of a lazy library: kernels.index, and the directory with the sources |

Example:
    qola_library(
        name = "te_libmha_fwd",
        library = "@qola_te//:libmha_fwd",
    )
    qola_library(
        name = "te_libmha_fwd_lazy",
        library = "@qola_te//:libmha_fwd_lazy",
    )
""",
    fragments = ["cpp"],
    provides = [CcInfo, QolaLibraryInfo],
    toolchains = use_cc_toolchain(),
)

def shared_form(name, file, export_list, archs, deps, headers, plan, bundle_files, link_flags, directory = "", link_inputs = [], split = False, **kwargs):
    """Declares a module's shared library.

    Declares `<name>.shared`, a cc_shared_library, `<name>.built`, which joins it
    with headers and plan, and `<name>`, the qola_library of that.

    Args:
      name: target name.
      file: file name of the library.
      export_list: version script with the exported symbols.
      archs: sorted archs of the manifest.
      deps: targets to link: a list or a select of lists.
      headers: label of the headers for the library's users.
      plan: label of plan.json.
      bundle_files: label of the manifest's bundle_files.
      link_flags: further link flags.
      directory: directory of the library below the package, with a slash at its end.
      link_inputs: files that `link_flags` name.
      split: whether the library can be split.
      **kwargs: further attributes of _linked_module.
    """
    link = dict(
        additional_linker_inputs = [
            export_list,
            LARGE_CODE,
        ] + link_inputs + RUNTIME_LINK_INPUTS,
        deps = deps + [OLDER_SYSTEMS],
        features = ["-static_libgcc"],
        user_link_flags = [
            "-Wl,--version-script=$(location {})".format(export_list),
            "-Wl,-T,$(location {})".format(LARGE_CODE),
            "-Wl,-soname," + file,
        ] + RUNPATH_FLAGS + link_flags + RUNTIME_LINK_FLAGS,
    )
    cc_shared_library(
        name = name + ".shared",
        shared_lib_name = "{}linked/{}".format(directory, file),
        **(KERNEL_TARGET | link)
    )
    if split:
        kwargs |= split_form(name, file, archs, link)
    _linked_module(
        name = name + ".built",
        archs = by_archs(archs, lambda selected: selected),
        bundle_files = bundle_files,
        directory = directory,
        headers = headers,
        linked = name + ".shared",
        plan = plan,
        size_check = Label("//qola/report:tool") if kwargs.get("max_bytes") else None,
        # As for kernels: keeps the output directory's name out of the key.
        tags = ["supports-path-mapping"],
        **(KERNEL_TARGET | kwargs)
    )
    qola_library(
        name = name,
        library = name + ".built",
        tags = ["manual"],
        visibility = ["//visibility:public"],
    )

def public_headers(name, config, headers, declarations = None):
    """Declares the headers that users of a module's library include.

    Args:
      name: target name.
      config: label of qola_config.h: namespace, macros and signatures of this manifest.
      headers: label of the header_set with the AITER and CK headers that the
        public ones include.
      declarations: label of the header with the functions of the library.
    """
    cc_library(
        name = name,
        hdrs = [config] + ([declarations] if declarations else []),
        includes = ["include"],
        visibility = ["//visibility:public"],
        deps = [headers, Label("//runtime/api:fmha")],
    )

def _prebuilt_library_impl(ctx):
    root = "/".join([part for part in [ctx.label.workspace_root, ctx.label.package, ctx.attr.include] if part])
    return [
        CcInfo(
            compilation_context = cc_common.create_compilation_context(
                headers = depset(ctx.files.headers),
                system_includes = depset([root]),
            ),
            # A hit fetches only the bundle, no ROCm.
            linking_context = linking_context(ctx, dynamic_library = ctx.file.library),
        ),
        DefaultInfo(
            files = depset([ctx.file.library]),
            runfiles = ctx.runfiles([ctx.file.library]),
        ),
    ]

prebuilt_library = rule(
    implementation = _prebuilt_library_impl,
    attrs = {
        "headers": attr.label_list(allow_files = True, doc = "The bundle's headers."),
        "include": attr.string(doc = "Directory of the headers, relative to the package.", mandatory = True),
        "library": attr.label(allow_single_file = [".so"], doc = "The shared library.", mandatory = True),
    },
    doc = "A library of a prebuilt bundle; as a dependency it acts like a qola_library.",
    fragments = ["cpp"],
    provides = [CcInfo],
    toolchains = use_cc_toolchain(),
)
