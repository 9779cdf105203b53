"""Sources of torch modules, and PyTorch's headers, which are parsed once for all of them.

For most sources the headers take longer than everything else, 15 to 20 seconds in each pass of a compile
(docs/internals/performance.md#modules-of-aiters-python).
"""

load("@rules_cc//cc:defs.bzl", "CcInfo", "cc_common")
load("@rules_cc//cc:find_cc_toolchain.bzl", "use_cc_toolchain")
load("@rules_hip//lib:cc.bzl", "KERNEL_TARGET", "cc_features", "object_context")
load("@rules_hip//lib:compile.bzl", "PrecompiledHeaderInfo", "arch_defines", "compile_hip", "own_hip_command", "precompile_header")
load("@rules_hip//lib:settings.bzl", "KNOWN_ARCHS")
load("@rules_hip//rocm:flags.bzl", "SMALL_HOST_CODE")
load(":compile.bzl", "COMPRESS_FLAGS", "DEBUG_FLAGS")

# Those that AITER's sources include most.
_HEADERS = [
    "torch/extension.h",
    "ATen/hip/HIPContext.h",
    "ATen/hip/impl/HIPGuardImplMasqueradingAsCUDA.h",
]

# Of all sources of torch modules, and part of the headers' code.
TORCH_FLAGS = ["-DTORCH_API_INCLUDE_EXTENSION_H"]

_SIDES = ["host"] + KNOWN_ARCHS

# Targets in PyTorch's repository.
PRECOMPILED = ["precompiled." + side for side in _SIDES]

def torch_deps(torch):
    """Returns the labels of the headers for sources that include PyTorch.

    Args:
      torch: label of PyTorch's repository, @qola_torch.
    """
    return select({
        # Found before PyTorch's headers of the same names.
        Label("//rules/torch:cpu_check"): [Label("//runtime/torch:cpu_check"), torch + "//:headers"],
        "//conditions:default": [torch + "//:hip"],
    }) + [Label("@rocm//:headers")]

def _command(ctx, archs):
    """Returns how own_hip_command compiles sources that include source files only."""
    infos = [dep[CcInfo] for dep in ctx.attr.deps]
    context = cc_common.merge_cc_infos(direct_cc_infos = infos).compilation_context

    def of_sources(directories):
        # No header is an output, and each further directory is one more to search.
        kept = [path for path in directories.to_list() if not path.startswith(ctx.bin_dir.path)]
        return depset(kept, order = "preorder")

    return own_hip_command(cc_features(ctx, requested = ["aiter"]), archs, ctx.attr.copts, struct(
        defines = context.defines,
        external_includes = of_sources(context.external_includes),
        headers = context.headers,
        includes = of_sources(context.includes),
        local_defines = depset(ctx.attr.local_defines),
        quote_includes = of_sources(context.quote_includes),
        system_includes = of_sources(context.system_includes),
    ))

_ATTRS = {
    "copts": attr.string_list(doc = "Compiler flags."),
    "deps": attr.label_list(doc = "Headers, none of them an output of Bazel, and code that they need.", providers = [CcInfo]),
    "local_defines": attr.string_list(doc = "Macros."),
}

def _precompiled_torch_impl(ctx):
    header = ctx.actions.declare_file("precompiled/{}.h".format(ctx.attr.side))
    ctx.actions.write(header, "".join(["#include <{}>\n".format(path) for path in _HEADERS]))
    host = ctx.attr.side == "host"
    found = precompile_header(ctx, _command(ctx, [] if host else [ctx.attr.side]), ctx.attr.side, header)
    return [DefaultInfo(files = depset([found.header, found.precompiled])), found]

_precompiled_torch = rule(
    implementation = _precompiled_torch_impl,
    attrs = _ATTRS | {
        "side": attr.string(doc = "host, or an arch.", mandatory = True),
    },
    doc = "PyTorch's headers, parsed for the host or for an arch.",
    fragments = ["cpp"],
    provides = [PrecompiledHeaderInfo],
    toolchains = use_cc_toolchain(),
)

# torch_source knows these targets by their names.
# buildifier: disable=unnamed-macro
def precompiled_torch():
    """Declares PyTorch's precompiled headers in its repository: for the host, and for each arch."""
    for name, side in zip(PRECOMPILED, _SIDES):
        _precompiled_torch(
            name = name,
            copts = TORCH_FLAGS + SMALL_HOST_CODE + DEBUG_FLAGS,
            side = side,
            tags = ["manual"],
            visibility = ["//visibility:public"],
            deps = torch_deps(""),
            **KERNEL_TARGET
        )

def _torch_source_impl(ctx):
    command = _command(ctx, ctx.attr.archs)
    object = ctx.actions.declare_file(ctx.label.name + ".pic.o")
    compile_hip(
        ctx,
        command,
        ctx.file.src,
        object,
        ctx.label.name,
        precompiled = [target[PrecompiledHeaderInfo] for target in ctx.attr.precompiled],
    )
    own = object_context(ctx, command.cc_toolchain, command.feature_configuration, object)

    # Some headers come with code, such as those that find embedded assembly kernels.
    needed = [dep[CcInfo].linking_context for dep in ctx.attr.deps]
    context = cc_common.merge_linking_contexts(linking_contexts = [own] + needed)
    return [CcInfo(linking_context = context), DefaultInfo(files = depset([object]))]

_torch_source = rule(
    implementation = _torch_source_impl,
    attrs = _ATTRS | {
        "archs": attr.string_list(doc = "Archs to compile device code for, one code object each.", mandatory = True),
        "precompiled": attr.label_list(doc = "PyTorch's precompiled headers: of the host, and of each arch if the source has device code. Empty: none.", providers = [PrecompiledHeaderInfo]),
        "src": attr.label(allow_single_file = True, doc = "The source.", mandatory = True),
    },
    doc = "An object of a torch module's source.",
    fragments = ["cpp"],
    provides = [CcInfo],
    toolchains = use_cc_toolchain(),
)

def torch_source(name, src, archs, copts, deps, torch, sides, **kwargs):
    """Compiles one source of a torch module, with AITER's flags.

    The object is the same, byte for byte, as without precompiled headers.

    Args:
      name: target name, and the compilation unit's id, which HIP puts into the object: unique within a library.
      src: the source.
      archs: archs to compile device code for, one code object each.
      copts: further compiler flags. With precompiled headers TORCH_FLAGS and SMALL_HOST_CODE are among them, and none
        that change the meaning of PyTorch's headers.
      deps: labels of the headers, none of them an output of Bazel.
      torch: label of PyTorch's repository.
      sides: the sides of the compile that use PyTorch's precompiled headers: "host", and the archs if the source has
        device code. [] for a source without these headers.
      **kwargs: further attributes.
    """
    _torch_source(
        name = name,
        src = src,
        archs = archs,
        copts = copts + DEBUG_FLAGS + COMPRESS_FLAGS,
        local_defines = sorted(arch_defines(archs)),
        precompiled = ["{}//:precompiled.{}".format(torch, side) for side in sides],
        deps = deps,
        **(KERNEL_TARGET | kwargs)
    )
