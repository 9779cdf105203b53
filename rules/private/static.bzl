"""The static form of modules: one relocatable object per module, and archives of them."""

load("@rules_cc//cc:defs.bzl", "CcInfo", "cc_common")
load("@rules_cc//cc:find_cc_toolchain.bzl", "use_cc_toolchain")
load("@rules_hip//lib:cc.bzl", "cc_features", "llvm_action")
load("@rules_hip//lib:finding.bzl", "finding")
load("@rules_hip//rocm:flags.bzl", "WRAPPED")
load(":link.bzl", "LINK_ATTRS", "linking_context")
load(":providers.bzl", "QolaLibraryInfo", "QolaStaticInfo", "QolaStaticModuleInfo")

def _objects(deps):
    found = {}
    for dep in deps:
        for linker_input in dep[CcInfo].linking_context.linker_inputs.to_list():
            for library in linker_input.libraries:
                for object in library.pic_objects:
                    found[object] = None
    return found.keys()

def join_objects(ctx, toolchain, objects, output, flags = []):
    """Declares the action that joins objects to one, with the references between them resolved.

    Args:
      ctx: the rule context.
      toolchain: CcToolchainInfo of the ROCm toolchain.
      objects: list of File.
      output: File to write.
      flags: further flags of the linker.
    """
    args = ctx.actions.args()
    args.add_all(["-flavor", "gnu", "-r"] + flags)

    # Inline functions are in groups with the same names everywhere, of which a
    # linker keeps one: without groups each module keeps its own.
    args.add("--force-group-allocation")

    # One section per function, so that --gc-sections can still drop it.
    args.add("--unique")
    args.add("-o", output)
    files = ctx.actions.args()
    files.add_all(objects)

    # There are thousands.
    files.use_param_file("@%s", use_always = True)
    files.set_param_file_format("multiline")
    llvm_action(ctx, toolchain, "lld", [args, files], objects, output, "QolaJoin", "Joining the objects of %{label}")

def hide_symbols(ctx, toolchain, joined, exported, output, flags = []):
    """Declares the action that makes the symbols of an object local, or hidden.

    Args:
      ctx: the rule context.
      toolchain: CcToolchainInfo of the ROCm toolchain.
      joined: File, the object.
      exported: patterns of the symbols that stay global, but hidden.
      output: File to write.
      flags: further flags of llvm-objcopy.
    """
    args = ctx.actions.args()
    args.add("--wildcard")
    args.add_all(exported, format_each = "--keep-global-symbol=%s")

    # A library that links the object does not export them, whatever its version script.
    args.add_all(exported, format_each = "--set-symbol-visibility=%s=hidden")
    args.add_all(flags)

    # Both refer to symbols by their number, which changes.
    args.add("--strip-unneeded")
    args.add("--remove-section=.llvm_addrsig")
    args.add(joined)
    args.add(output)
    llvm_action(ctx, toolchain, "llvm-objcopy", [args], [joined], output, "QolaLocalise", "Hiding the symbols of %{label}")

def static_module(ctx, deps, name, namespace, headers, plan):
    """Declares the actions that make one relocatable object of a module.

    Of its symbols only `qola::<namespace>::*` and the C functions
    `qola_<namespace>_mha_*` are global, and those are hidden: the program or
    library that links the object does not export them. All others are local, so
    that they neither replace symbols of another AITER in the process nor are
    replaced by them.

    Args:
      ctx: context of a rule with the C++ toolchain.
      deps: targets with the objects of the module's library.
      name: stem of the object's file name, <namespace>_<module>.
      namespace: the manifest's, below qola::; empty for qola:: itself.
      headers: CcInfo with the headers for users of the module.
      plan: File, plan.json of the manifest.

    Returns:
      QolaStaticModuleInfo.
    """

    # Without this feature Bazel makes an archive of objects.
    found = cc_features(ctx, unsupported = ["supports_start_end_lib"])
    joined = ctx.actions.declare_file(name + ".joined.o")
    object = ctx.actions.declare_file(name + ".o")
    exported = [
        "_ZN4qola{}*".format("{}{}".format(len(namespace), namespace) if namespace else ""),
        "qola_{}mha_*".format(namespace + "_" if namespace else ""),
    ]

    # The effect of rules/private/large_code.ld, in the object: the user's link needs no script.
    rename = "--rename-section=.ltext=.text,alloc,code,readonly"
    join_objects(ctx, found.toolchain, _objects(deps), joined, WRAPPED)
    hide_symbols(ctx, found.toolchain, joined, exported, object, [rename])
    return QolaStaticModuleInfo(
        archiver = found,
        headers = headers,
        joined = joined,
        namespace = namespace,
        object = object,
        plan = plan,
    )

def _modules(ctx):
    found = []
    for target in ctx.attr.modules:
        info = target[QolaLibraryInfo]
        if not info.static:
            fail(finding(
                "a module without a static form in an archive",
                place = "{}: modules".format(ctx.label),
                found = str(target.label),
                expected = "attention modules with their kernels inside, such as @qola_<manifest>//:libmha_fwd",
                fix = "remove it",
            ))
        found.append(info.static)
    for module in found[1:]:
        if module.plan != found[0].plan:
            fail(finding(
                "modules of two manifests in one archive",
                place = "{}: modules".format(ctx.label),
                found = "\n".join([found[0].plan.short_path, module.plan.short_path]),
                expected = "modules of one manifest: an archive has one qola_config.h, and so one namespace",
                fix = "declare a qola_static_library for each manifest",
            ))
    return found

def _qola_static_library_impl(ctx):
    modules = _modules(ctx)
    first = modules[0]
    _, outputs = cc_common.create_linking_context_from_compilation_outputs(
        name = "{}.archive/qola{}".format(ctx.label.name, "_" + first.namespace if first.namespace else ""),
        actions = ctx.actions,
        # The ROCm toolchain's ar.
        cc_toolchain = first.archiver.toolchain,
        compilation_outputs = cc_common.create_compilation_outputs(
            pic_objects = depset([module.object for module in modules]),
        ),
        disallow_dynamic_library = True,
        feature_configuration = first.archiver.features,
    )
    pic_archive = outputs.library_to_link.pic_static_library

    # In a directory of its own: a package may have archives of different modules of one manifest.
    archive = ctx.actions.declare_file(ctx.label.name + "/" + pic_archive.basename.replace(".pic.a", ".a"))
    ctx.actions.symlink(output = archive, target_file = pic_archive)
    return [
        CcInfo(
            compilation_context = cc_common.merge_cc_infos(cc_infos = [module.headers for module in modules]).compilation_context,
            linking_context = linking_context(ctx, hip = ctx.attr._hip_runtime[CcInfo], pic_static_library = archive),
        ),
        DefaultInfo(files = depset([archive])),
        OutputGroupInfo(plan = depset([first.plan])),
        QolaStaticInfo(
            archive = archive,
            modules = [module.object.basename.removesuffix(".o") for module in modules],
            plan = first.plan,
        ),
    ]

qola_static_library = rule(
    implementation = _qola_static_library_impl,
    attrs = LINK_ATTRS | {
        "modules": attr.label_list(
            allow_empty = False,
            doc = "Attention modules of one manifest: `@qola_<manifest>//:<module>`, or a qola_library of it.",
            mandatory = True,
            providers = [QolaLibraryInfo],
        ),
    },
    doc = """Modules of a manifest as a static archive, `<name>/libqola_<namespace>.a`.

A program or library that links the archive contains the modules' functions and
exports none of them. They neither use nor disturb another AITER in the process
(docs/guide/static.md). Each module is one
member: a link leaves out modules that are not called. As a dependency of
cc_binary or cc_library the target provides the public headers. The output group
`plan` is plan.json.

Example:
    qola_static_library(
        name = "te_static",
        modules = [
            "@qola_te//:libmha_bwd",
            "@qola_te//:libmha_fwd",
        ],
    )
""",
    fragments = ["cpp"],
    provides = [CcInfo, QolaStaticInfo],
    toolchains = use_cc_toolchain(),
)
