"""Bundles of a manifest's libraries: directory, tar file, Python wheel."""

load("@rules_cc//cc:defs.bzl", "CcInfo")
load("@rules_hip//lib:finding.bzl", "finding")
load("@rules_hip//lib:transitions.bzl", "TRANSITION_ATTRS", "kernel_transition")
load("//rules/torch:torch_info.bzl", "TorchInfo")
load(":providers.bzl", "FunctionLibrariesInfo", "QolaBundleFilesInfo", "QolaBundleInfo", "QolaLibraryInfo", "QolaStaticInfo", "TritonLibraryInfo")

def _bundle_files_impl(ctx):
    return [
        DefaultInfo(files = depset(ctx.files.configs + ctx.files.license_files)),
        QolaBundleFilesInfo(
            configs = ctx.files.configs,
            license_files = ctx.files.license_files,
            tree = ctx.file.tree,
        ),
    ]

bundle_files = rule(
    implementation = _bundle_files_impl,
    attrs = {
        "configs": attr.label_list(
            allow_files = True,
            doc = "Tuning data: files below aiter/configs.",
        ),
        "license_files": attr.label_list(
            allow_files = True,
            doc = "License texts of AITER and Composable Kernel.",
        ),
        "tree": attr.label(
            allow_single_file = True,
            doc = "AITER.json at the root of the tree.",
            mandatory = True,
        ),
    },
    doc = "Files of an AITER tree for bundles: tuning data and license texts.",
    provides = [QolaBundleFilesInfo],
)

BUNDLE_TOOL_ATTRS = {
    "_tool": attr.label(cfg = "exec", default = "//qola/bundle:tool", executable = True),
}

PACK_ATTRS = BUNDLE_TOOL_ATTRS | {
    "bundle": attr.label(
        allow_single_file = True,
        doc = "A qola_bundle: the directory, not the tar file.",
        mandatory = True,
        providers = [QolaBundleInfo],
    ),
}

# The part of a split bundle without device code; the others are named by archs.
_HOST = "host"

def pack_bundle(ctx, command, output, options, mnemonic, further = []):
    """Packs the directory of a bundle, or a part of it, into one file.

    Args:
      ctx: context of a rule with PACK_ATTRS.
      command: command of the tool.
      output: File to write.
      options: further options of the command.
      mnemonic: mnemonic of the action.
      further: Files that the options name.

    Returns:
      `output`.
    """
    args = ctx.actions.args()
    args.add(command)
    args.add_all("--directory", [ctx.file.bundle], expand_directories = False)
    args.add("--output", output)
    args.add_all(options)
    ctx.actions.run(
        arguments = [args],
        executable = ctx.executable._tool,
        inputs = [ctx.file.bundle] + further,
        mnemonic = mnemonic,
        outputs = [output],
        progress_message = "Packing %{label}",
        # The tool finds Python on it; with strict_action_env it is Bazel's own.
        use_default_shell_env = True,
    )
    return output

def _outputs(ctx, files):
    return [DefaultInfo(files = depset(files), runfiles = ctx.runfiles(files))]

# Forms of libraries that do not go together, with preceding ones. A test compares them with FORMS of
# qola/build/forms.py, by which `qola build` decides.
APART = {
    "split": ["lazy", "static"],
    "static": ["lazy"],
}

def _check_forms(ctx):
    with_form = {
        "lazy": [library.label for library in ctx.attr.libraries if library[QolaLibraryInfo].lazy],
        "split": [ctx.label] if ctx.attr.split else [],
        "static": [ctx.attr.static.label] if ctx.attr.static else [],
    }
    for form, others in APART.items():
        for other in others:
            if with_form[form] and with_form[other]:
                fail(finding(
                    "{} and {} libraries in one bundle".format(other, form),
                    place = "{}: {}".format(ctx.label, form),
                    found = ", ".join(["{} ({})".format(label, other) for label in with_form[other]]),
                    expected = "a bundle that is {} or {}".format(other, form),
                    fix = "declare a qola_bundle for each",
                ))
    whole = [library.label for library in ctx.attr.libraries if not library[QolaLibraryInfo].split]
    if ctx.attr.split and whole:
        fail(finding(
            "libraries that cannot be split",
            place = "{}: libraries".format(ctx.label),
            found = ", ".join([str(label) for label in whole]),
            expected = "full libraries of a manifest's attention modules",
            fix = "remove split = True",
        ))

def _check_triton(ctx):
    plan = ctx.attr.triton[TritonLibraryInfo].plan
    plans = [library[QolaLibraryInfo].plan for library in ctx.attr.libraries[:1]]
    if not plan or plans not in ([], [plan]):
        fail(finding(
            "kernels in Triton of another manifest in a bundle",
            place = "{}: triton".format(ctx.label),
            found = "{} of {}".format(ctx.attr.triton.label, plan.short_path if plan else "no manifest"),
            expected = plans[0].short_path if plans else "the library of a manifest's [[triton]] tables",
            fix = "@qola_<manifest>//:triton_library",
        ))

def _check_libraries(ctx):
    if ctx.attr.triton:
        _check_triton(ctx)
    if ctx.attr.functions and not ctx.attr.torch:
        fail(finding(
            "functions of AITER's second JIT in a bundle of other libraries",
            place = "{}: functions".format(ctx.label),
            found = ctx.attr.functions.label,
            expected = "a bundle with for_aiter = True",
            fix = "remove functions",
        ))
    if not ctx.attr.libraries:
        if not ctx.attr.functions and (not ctx.attr.triton or ctx.files.packs or ctx.attr.static):
            fail(finding(
                "a bundle without libraries",
                place = "{}: libraries".format(ctx.label),
                found = "none",
                expected = "a qola_library, or only `triton`",
                fix = "add a library, or remove packs and static",
            ))
        return
    first = ctx.attr.libraries[0]
    for library in ctx.attr.libraries[1:]:
        if library[QolaLibraryInfo].plan != first[QolaLibraryInfo].plan:
            fail(finding(
                "libraries of two manifests in one bundle",
                place = "{}: libraries".format(ctx.label),
                found = "\n".join([
                    "{} of {}".format(one.label, one[QolaLibraryInfo].plan.short_path)
                    for one in [first, library]
                ]),
                expected = "libraries of one manifest: a bundle has one qola_config.h, and so one namespace",
                fix = "declare a qola_bundle for each manifest",
            ))
    packs = {}
    for pack in ctx.attr.packs:
        packs.setdefault(pack.label.name, []).append(str(pack.label))
    for labels in packs.values():
        if len(labels) > 1:
            fail(finding(
                "two packs of one name in a bundle",
                place = "{}: packs".format(ctx.label),
                found = ", ".join(labels),
                expected = "packs whose names differ: a bundle has all of them in one directory",
                fix = "rename one, or declare one qola_kernel_pack with the modules of both",
            ))
    lazy = [bool(library[QolaLibraryInfo].lazy) for library in ctx.attr.libraries]
    _check_forms(ctx)
    if ctx.attr.static:
        _check_static(ctx, first, ctx.attr.static)
    if len({value: None for value in lazy}) > 1 or (ctx.files.packs and not lazy[0]):
        fail(finding(
            "lazy and full libraries in one bundle",
            place = ctx.label,
            found = ", ".join([
                str(library.label) + (" (lazy)" if library[QolaLibraryInfo].lazy else "")
                for library in ctx.attr.libraries
            ] + ["pack " + file.basename for file in ctx.files.packs]),
            expected = "only lazy libraries, with or without packs, or only full libraries, without packs",
            fix = "declare a qola_bundle for each",
        ))

def _check_static(ctx, first, static):
    place = "{}: static".format(ctx.label)
    plan = first[QolaLibraryInfo].plan
    if static[QolaStaticInfo].plan != plan:
        fail(finding(
            "libraries of one manifest and an archive of another in one bundle",
            place = place,
            found = "{} of {}".format(static.label, static[QolaStaticInfo].plan.short_path),
            expected = "an archive of {}, as the libraries".format(plan.short_path),
            fix = "declare a qola_static_library of the libraries' modules",
        ))
    names = sorted([library[QolaLibraryInfo].file_name.removesuffix(".so") for library in ctx.attr.libraries])
    if sorted(static[QolaStaticInfo].modules) != names:
        fail(finding(
            "libraries of some modules and an archive of others in one bundle",
            place = place,
            found = "{} of {}".format(static.label, ", ".join(static[QolaStaticInfo].modules)),
            expected = "an archive of {}, as the libraries: the bundle's headers are for both".format(", ".join(names)),
            fix = "declare a qola_static_library of the libraries' modules",
        ))

def _include_dirs(library):
    context = library[CcInfo].compilation_context
    dirs = [context.quote_includes, context.includes, context.system_includes]
    if hasattr(context, "external_includes"):
        dirs.append(context.external_includes)
    return depset(transitive = dirs).to_list()

def _lazy(ctx, infos):
    # The files are also inputs of the action that makes the bundle.
    if not infos or not infos[0].lazy:
        return struct(files = [], settings = None)
    roots = {info.lazy.place: info.lazy.root for info in infos}
    return struct(
        files = roots.values() + ctx.files.packs + [ctx.file._kernels],
        settings = {
            "namespace_dir": infos[0].lazy.place.rpartition("/")[0],
            "packs": [file.path for file in ctx.files.packs],
            "roots": {place.rpartition("/")[2]: root.path for place, root in roots.items()},
            "tool": ctx.file._kernels.path,
        },
    )

def _triton(info, more):
    # As _lazy.
    if not info:
        return struct(files = [], settings = None)
    headers = info.headers | {file.basename: file for file in more}
    return struct(
        files = [info.library] + info.packs.values() + headers.values(),
        settings = {
            "headers": {name: file.path for name, file in headers.items()},
            "library": info.library.path,
            "packs": {arch: file.path for arch, file in info.packs.items()},
        },
    )

def _qola_bundle_directory_impl(ctx):
    _check_libraries(ctx)
    functions = ctx.attr.functions[FunctionLibrariesInfo].libraries if ctx.attr.functions else []
    infos = [library[QolaLibraryInfo] for library in ctx.attr.libraries] + functions
    triton_info = ctx.attr.triton[TritonLibraryInfo] if ctx.attr.triton else None
    info = infos[0] if infos else triton_info

    torch = ctx.attr.torch[TorchInfo] if ctx.attr.torch else None

    # Kernels in Triton do not read AITER's tuning data, and AITER's Python reads its own.
    configs = info.bundle_files.configs if infos and not torch else []
    lazy = _lazy(ctx, infos)

    # For bundles with several kinds of kernels.
    triton = _triton(triton_info, [ctx.file._order] if infos else [])
    headers = depset(transitive = [
        library[CcInfo].compilation_context.headers
        for library in ctx.attr.libraries
        if not torch
    ])
    libraries = [
        struct(library = one.split.library, packs = one.split.packs) if ctx.attr.split else struct(library = one.library, packs = {})
        for one in infos
    ]
    directory = ctx.actions.declare_directory(ctx.label.name)
    inputs = ctx.actions.declare_file(ctx.label.name + ".inputs.json")
    ctx.actions.write(inputs, json.encode_indent({
        "archs": info.archs,
        "configs": [file.path for file in configs],
        "generated_at": ctx.attr.generated_at,
        "lazy": lazy.settings,
        "headers": [file.path for file in headers.to_list()],
        "libraries": [
            {
                # AITER's Python includes no headers.
                "include_dirs": [] if torch else _include_dirs(ctx.attr.libraries[number]),
                "packs": {arch: file.path for arch, file in one.packs.items()},
                "path": one.library.path,
            }
            for number, one in enumerate(libraries)
        ],
        "license_files": [file.path for file in info.bundle_files.license_files],
        "name": ctx.label.name,
        "names": [info.names.path for info in infos if info.names],
        "plan": info.plan.path,
        "qola_license": ctx.file._license.path,
        "rocm": ctx.file._rocm.path,
        "static": ctx.file.static.path if ctx.file.static else None,
        "torch": {"python": torch.python, "torch": torch.version} if torch else None,
        "tree": info.bundle_files.tree.dirname,
        "triton": triton.settings,
    }) + "\n")
    ctx.actions.run(
        arguments = ["build", "--inputs", inputs.path, "--output", directory.path],
        executable = ctx.executable._tool,
        inputs = depset(
            configs + info.bundle_files.license_files + lazy.files + ctx.files.static + triton.files +
            [file for one in libraries for file in [one.library] + one.packs.values()] +
            [i.names for i in infos if i.names] +
            [ctx.file._license, ctx.file._rocm, info.bundle_files.tree, info.plan, inputs],
            transitive = [headers],
        ),
        mnemonic = "QolaBundle",
        outputs = [directory],
        progress_message = "Bundling %{label}",
        # The tool finds Python on it; with strict_action_env it is Bazel's own.
        use_default_shell_env = True,
    )
    return [
        DefaultInfo(
            files = depset([directory]),
            runfiles = ctx.runfiles([directory]),
        ),
        OutputGroupInfo(report = depset(_report(ctx, infos) if infos else [])),
        QolaBundleInfo(
            parts = info.archs if ctx.attr.split else [],
            tag = "cp{0}-cp{0}".format(torch.python.replace(".", "")) if torch else "py3-none",
        ),
    ]

def _report(ctx, infos):
    """Declares the page and the JSON of `qola report`, without the figures of a build."""
    outputs = [ctx.actions.declare_file(ctx.label.name + ".report." + end) for end in ["html", "json"]]
    libraries = [info.library for info in infos]
    args = ctx.actions.args()
    args.add("--plan", infos[0].plan)
    args.add("--output", outputs[0])
    args.add("--date", ctx.attr.generated_at)
    args.add("--command", "bazel build {} --output_groups=report".format(
        str(ctx.label).replace("@@//", "//"),
    ))
    args.add_all(libraries)
    ctx.actions.run(
        arguments = [args],
        executable = ctx.executable._report,
        inputs = libraries + [infos[0].plan],
        mnemonic = "QolaReport",
        outputs = outputs,
        progress_message = "Reporting on %{label}",
        use_default_shell_env = True,
    )
    return outputs

_qola_bundle_directory = rule(
    implementation = _qola_bundle_directory_impl,
    attrs = BUNDLE_TOOL_ATTRS | TRANSITION_ATTRS | {
        "functions": attr.label(providers = [FunctionLibrariesInfo]),
        "generated_at": attr.string(),
        "libraries": attr.label_list(
            providers = [[QolaLibraryInfo, CcInfo]],
        ),
        "packs": attr.label_list(allow_files = [".qpack"]),
        "split": attr.bool(),
        "static": attr.label(allow_single_file = [".a"], providers = [QolaStaticInfo]),
        "torch": attr.label(providers = [TorchInfo]),
        "triton": attr.label(providers = [TritonLibraryInfo]),
        "_kernels": attr.label(
            allow_single_file = True,
            cfg = kernel_transition,
            default = "//runtime/kernels_tool:qola-kernels",
        ),
        "_license": attr.label(allow_single_file = True, default = "//:LICENSE"),
        "_order": attr.label(allow_single_file = True, default = "//runtime/triton:qola_order.hpp"),
        "_report": attr.label(cfg = "exec", default = "//qola/report:tool", executable = True),
        "_rocm": attr.label(allow_single_file = True, default = "@rocm//:rocm.json"),
    },
    doc = "The directory of a bundle. The macro qola_bundle documents the attributes.",
)

def _qola_bundle_tar_impl(ctx):
    parts = ctx.attr.bundle[QolaBundleInfo].parts
    files = []
    for part in [_HOST] + parts if parts else [None]:
        name = ctx.attr.prefix if part in (None, _HOST) else "{}-{}".format(ctx.attr.prefix, part)
        output = ctx.actions.declare_file(name + ".tar")
        options = ["--prefix", ctx.attr.prefix] + (["--part", part] if part else [])
        files.append(pack_bundle(ctx, "archive", output, options, "QolaBundleTar"))
    return _outputs(ctx, files)

_qola_bundle_tar = rule(
    implementation = _qola_bundle_tar_impl,
    attrs = PACK_ATTRS | {
        "prefix": attr.string(
            doc = "Top directory in the tar file, and the file's name without .tar.",
            mandatory = True,
        ),
    },
    doc = "A bundle's directory as a reproducible tar file, or as one for each part.",
)

def qola_bundle(name, libraries = [], packs = [], static = None, triton = None, split = False, for_aiter = False, functions = None, generated_at = "", **kwargs):
    """Bundles libraries of one manifest with their headers, licenses and metadata.

    Declares two targets: `<name>`, a directory, and `<name>_tar`, the file
    <name>.tar of that directory (docs/guide/bundle.md). Bundles are
    reproducible: they do not depend on the machine, the path, the user or the
    time. The output group `report` of `<name>` is a page about its libraries,
    <name>.report.html, and the same as JSON (docs/guide/report.md).

    Args:
      name: target name, and the name of the directory.
      libraries: labels of qola_library targets of one manifest: either lazy or
        full libraries. May be empty if there is `triton` or `functions`.
      packs: labels of qola_kernel_pack targets for lazy libraries.
      static: label of a qola_static_library of the same manifest to add; not with
        lazy libraries.
      triton: label of the same manifest's library of kernels in Triton,
        `@qola_<manifest>//:triton_library`: adds library, packs and header.
      split: whether the libraries have their device code in packs, one per arch,
        `lib/<library>-<arch>.qpack`. `<name>_tar` then consists of <name>.tar without
        packs, and <name>-<arch>.tar with those of an arch
        (docs/guide/bundle.md#split-by-arch). Not with lazy libraries or `static`.
      for_aiter: whether the libraries are modules that AITER's own Python imports,
        for the PyTorch of QOLA_TORCH (docs/guide/serving.md).
      functions: with `for_aiter`, label of the manifest's functions of AITER's second
        JIT, `@qola_<manifest>//:functions`.
      generated_at: UTC time of generation in manifest.json, the SBOM and the
        report, such as "2026-01-31T00:00:00Z"; by default they contain none.
      **kwargs: attributes of both targets, such as tags and visibility.
    """
    _qola_bundle_directory(
        name = name,
        functions = functions,
        generated_at = generated_at,
        libraries = libraries,
        packs = packs,
        split = split,
        static = static,
        torch = Label("@qola_torch//:info") if for_aiter else None,
        triton = triton,
        **kwargs
    )
    _qola_bundle_tar(
        name = name + "_tar",
        bundle = name,
        prefix = name,
        **kwargs
    )

def _qola_wheel_impl(ctx):
    parts = ctx.attr.bundle[QolaBundleInfo].parts
    if ctx.attr.split and not parts:
        fail(finding(
            "a split wheel of an unsplit bundle",
            place = "{}: split".format(ctx.label),
            found = ctx.attr.bundle.label,
            expected = "a qola_bundle with split = True",
            fix = "add split = True to that qola_bundle, or remove it here",
        ))
    external = ["--external-library=" + name for name in ctx.attr.external_libraries]
    jax = ctx.files.jax
    wheels = []
    for part in [_HOST] + parts if ctx.attr.split else [None]:
        # The tool reads package, version and platform from the file name. The wheel of an unsplit bundle may have the
        # same as the host's, and the one without JAX functions as the one with them.
        wheel = ctx.actions.declare_file(("{}/".format(ctx.label.name) if part or jax else "") + "{}-{}-{}-{}.whl".format(
            ctx.attr.package if part in (None, _HOST) else "{}_{}".format(ctx.attr.package, part),
            ctx.attr.version,
            ctx.attr.bundle[QolaBundleInfo].tag,
            ctx.attr.platform,
        ))
        options = external + (["--part", part] if part else [])
        if jax and part in (None, _HOST):
            options += ["--jax", jax[0].path]
        wheels.append(pack_bundle(ctx, "wheel", wheel, options, "QolaWheel", jax))
    return _outputs(ctx, wheels)

qola_wheel = rule(
    implementation = _qola_wheel_impl,
    attrs = PACK_ATTRS | {
        "external_libraries": attr.string_list(
            doc = "Libraries that are neither in the bundle nor covered by `platform`, and that every machine with the wheel provides: `libamdhip64.so.7` is part of ROCm, and `libamdhip64.so` stands for each of its versions.",
        ),
        "jax": attr.label(
            allow_files = [".so"],
            doc = "Adds `<package>.jax`, attention for JAX (docs/guide/jax.md): `@qola//runtime/jax`, the handlers that it registers. The wheel is in a directory of the target's name. Not for modules of AITER's own Python.",
        ),
        "package": attr.string(
            doc = "Name of the Python package, and of the distribution: small letters, digits and _.",
            mandatory = True,
        ),
        "platform": attr.string(
            default = "linux_x86_64",
            doc = "Platform tag. `linux_x86_64` makes no promise about the system's libraries, `manylinux_2_28_x86_64` requires glibc 2.28 and the libraries of that policy. The build checks each program and library of the bundle against the tag; the error names the tag that fits.",
        ),
        "split": attr.bool(
            doc = "Makes a wheel of the host part of a split bundle, and one for each arch, `<package>_<arch>-<version>-py3-none-<platform>.whl`. pip installs an arch by the name of its wheel, or as an extra of the host's: `pip install 'qola-te[gfx950]'`.",
        ),
        "version": attr.string(
            doc = "Version of the distribution, as Python writes it, such as 1.2.3.",
            mandatory = True,
        ),
    },
    doc = """A bundle as a Python wheel, `<package>-<version>-py3-none-<platform>.whl`.

The package contains the bundle's files; `python -m <package> --path` prints
their directory. Wheels are reproducible.

Example:
    qola_wheel(
        name = "te_wheel",
        bundle = ":te",
        external_libraries = ["libamdhip64.so.7"],
        package = "qola_te",
        platform = "manylinux_2_28_x86_64",
        version = "0.1.0",
    )
""",
)
