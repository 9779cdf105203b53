"""qola_static_library: modules of a manifest as one archive, to be linked into a program or library."""

load("@rules_cc//cc:defs.bzl", "CcInfo", "cc_common")
load("@rules_cc//cc:find_cc_toolchain.bzl", "use_cc_toolchain")
load("//rules/private:cc_features.bzl", "cc_features")
load("//rules/private:finding.bzl", "finding")
load("//rules/private:kernel_target.bzl", "KERNEL_TARGET")
load("//rules/private:kernel_transition.bzl", "TRANSITION_ATTRS", "kernel_transition")
load("//rules/private:providers.bzl", "QolaStaticInfo", "QolaStaticModuleInfo")
load("//rules/private/link:linking_context.bzl", "LINK_ATTRS", "linking_context")

def _check(ctx, modules):
    for module in modules[1:]:
        if module.plan != modules[0].plan:
            fail(finding(
                "modules of two manifests in one archive",
                place = str(ctx.label).removesuffix(".archive") + ": modules",
                found = "\n".join([modules[0].plan.short_path, module.plan.short_path]),
                expected = "modules of one manifest: an archive has one qola_config.h, and so one namespace",
                fix = "a qola_static_library for each manifest",
            ))

def _static_archive_impl(ctx):
    modules = [module[QolaStaticModuleInfo] for module in ctx.attr.modules]
    _check(ctx, modules)
    first = modules[0]

    # Where a linker takes objects as they are, Bazel makes no archive.
    found = cc_features(ctx, unsupported = ["supports_start_end_lib"])
    _, outputs = cc_common.create_linking_context_from_compilation_outputs(
        name = ctx.label.name + "/qola" + ("_" + first.namespace if first.namespace else ""),
        actions = ctx.actions,
        cc_toolchain = found.toolchain,
        compilation_outputs = cc_common.create_compilation_outputs(
            pic_objects = depset([module.object for module in modules]),
        ),
        disallow_dynamic_library = True,
        feature_configuration = found.features,
    )
    archive = outputs.library_to_link.pic_static_library
    names = [module.object.basename.removesuffix(".o") for module in modules]
    return [
        cc_common.merge_cc_infos(cc_infos = [module.headers for module in modules]),
        DefaultInfo(files = depset([archive])),
        QolaStaticInfo(archive = archive, modules = names, plan = first.plan),
    ]

_static_archive = rule(
    implementation = _static_archive_impl,
    attrs = {
        "modules": attr.label_list(
            allow_empty = False,
            doc = "As of qola_static_library.",
            mandatory = True,
            providers = [QolaStaticModuleInfo],
        ),
    },
    doc = "Makes the archive, by the ROCm toolchain's ar; its CcInfo has the headers.",
    fragments = ["cpp"],
    provides = [CcInfo, QolaStaticInfo],
    toolchains = use_cc_toolchain(),
)

def _qola_static_library_impl(ctx):
    info = ctx.attr.archive[0][QolaStaticInfo]

    # Its own directory: a package may have archives of different modules of one manifest.
    archive = ctx.actions.declare_file(ctx.label.name + "/" + info.archive.basename.replace(".pic.a", ".a"))
    ctx.actions.symlink(output = archive, target_file = info.archive)
    return [
        CcInfo(
            compilation_context = ctx.attr.archive[0][CcInfo].compilation_context,
            linking_context = linking_context(ctx, hip = ctx.attr._hip_runtime[CcInfo], pic_static_library = archive),
        ),
        DefaultInfo(files = depset([archive])),
        OutputGroupInfo(plan = depset([info.plan])),
        QolaStaticInfo(archive = archive, modules = info.modules, plan = info.plan),
    ]

_qola_static_library = rule(
    implementation = _qola_static_library_impl,
    attrs = TRANSITION_ATTRS | LINK_ATTRS | {
        "archive": attr.label(
            cfg = kernel_transition,
            doc = "The archive.",
            mandatory = True,
            providers = [QolaStaticInfo, CcInfo],
        ),
    },
    doc = "Names an archive, which is built as kernels are.",
    fragments = ["cpp"],
    provides = [CcInfo, QolaStaticInfo],
    toolchains = use_cc_toolchain(),
)

def qola_static_library(name, modules, **kwargs):
    """Modules of a manifest as a static archive, `<name>/libqola_<namespace>.a`.

    A program or library that links it has the modules' functions inside and
    exports none of them; another AITER in the process is neither used by them
    nor disturbed (docs/guide/static.md). Each module is one member: what is not called
    is not linked. As a dependency of cc_binary or cc_library it brings the
    public headers. The output group `plan` is plan.json.

    Declares `<name>` and `<name>.archive`, which is built under the kernel
    transition.

    Example:
        qola_static_library(
            name = "te_static",
            modules = [
                "@qola_te//:libmha_bwd_static",
                "@qola_te//:libmha_fwd_static",
            ],
        )

    Args:
      name: target name.
      modules: labels of modules, all of one manifest: @qola_<manifest>//:<module>_static.
      **kwargs: common attributes of `<name>`, such as tags and visibility.
    """
    _static_archive(
        name = name + ".archive",
        modules = modules,
        tags = ["manual"],
        visibility = ["//visibility:private"],
        **KERNEL_TARGET
    )
    _qola_static_library(
        name = name,
        archive = name + ".archive",
        **kwargs
    )
