"""The part of a module for one arch: its objects, joined to one whose symbols are local."""

load("@rules_cc//cc:defs.bzl", "CcInfo", "cc_common")
load("@rules_cc//cc:find_cc_toolchain.bzl", "use_cc_toolchain")
load("@rules_hip//lib:cc.bzl", "KERNEL_TARGET", "cc_features", "object_context")
load(":static.bzl", "hide_symbols", "join_objects")

def _arch_part_impl(ctx):
    own = {dep.label: None for dep in ctx.attr.deps}
    objects, others = [], []
    for dep in ctx.attr.deps:
        for linker_input in dep[CcInfo].linking_context.linker_inputs.to_list():
            if linker_input.owner in own:
                objects += [object for library in linker_input.libraries for object in library.pic_objects]
            else:
                # Code that all parts share, such as the table of assembly kernels.
                others.append(linker_input)
    found = cc_features(ctx)
    joined = ctx.actions.declare_file(ctx.label.name + ".joined.o")
    object = ctx.actions.declare_file(ctx.label.name + ".pic.o")
    join_objects(ctx, found.toolchain, depset(objects).to_list(), joined)
    hide_symbols(ctx, found.toolchain, joined, [ctx.attr.symbol], object)
    context = object_context(ctx, found.toolchain, found.features, object)
    shared = cc_common.create_linking_context(linker_inputs = depset(others))
    return [
        CcInfo(linking_context = cc_common.merge_linking_contexts(linking_contexts = [context, shared])),
        DefaultInfo(files = depset([object])),
    ]

_arch_part = rule(
    implementation = _arch_part_impl,
    attrs = {
        "deps": attr.label_list(doc = "The objects.", mandatory = True, providers = [CcInfo]),
        "symbol": attr.string(doc = "The function that stays global.", mandatory = True),
    },
    doc = """Joins the objects of a module's sources for one arch.

Sources of other archs define the same functions in other ways. A library links the parts of several archs, because
only `symbol` is global.
""",
    fragments = ["cpp"],
    provides = [CcInfo],
    toolchains = use_cc_toolchain(),
)

def arch_part(name, deps, symbol):
    """Declares the part of a module for one arch.

    Args:
      name: target name.
      deps: labels of the objects.
      symbol: the function that stays global.
    """
    _arch_part(
        name = name,
        symbol = symbol,
        # As for kernels: keeps the output directory's name out of the key.
        tags = ["supports-path-mapping"],
        deps = deps,
        **KERNEL_TARGET
    )
