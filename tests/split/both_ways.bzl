"""both_ways: the object files of kernel instances, compiled by passes and in one command each."""

load("@rules_cc//cc:defs.bzl", "CcInfo")

# The very transition that libraries are built under.
load("//rules/private:kernel_transition.bzl", "kernel_transition")  # buildifier: disable=bzl-visibility

_SPLIT = "//:split_compile"

def _split_impl(_settings, attr):
    return {_SPLIT: attr.split}

_split = transition(implementation = _split_impl, inputs = [], outputs = [_SPLIT])

def _kernel_objects_impl(ctx):
    objects = []
    for kernel in ctx.attr.kernels:
        for linker_input in kernel[CcInfo].linking_context.linker_inputs.to_list():
            for library in linker_input.libraries:
                objects += library.pic_objects or library.objects
    return [DefaultInfo(files = depset(objects))]

_kernel_objects = rule(
    implementation = _kernel_objects_impl,
    attrs = {
        "kernels": attr.label_list(cfg = kernel_transition, providers = [CcInfo]),
        "_allowlist_function_transition": attr.label(
            default = "@bazel_tools//tools/allowlists/function_transition_allowlist",
        ),
    },
    doc = "The object files of kernel instances, under the kernel transition.",
)

def _one_way_impl(ctx):
    links = []
    for file in ctx.files.objects:
        # One name for both ways, in a directory that tells them apart.
        link = ctx.actions.declare_file("{}/{}.o".format(ctx.label.name, file.basename.split(".")[0]))
        ctx.actions.symlink(output = link, target_file = file)
        links.append(link)
    return [DefaultInfo(files = depset(links), runfiles = ctx.runfiles(links))]

_one_way = rule(
    implementation = _one_way_impl,
    cfg = _split,
    attrs = {
        "objects": attr.label(mandatory = True),
        "split": attr.bool(),
        "_allowlist_function_transition": attr.label(
            default = "@bazel_tools//tools/allowlists/function_transition_allowlist",
        ),
    },
    doc = "Files built with --//:split_compile set to `split`.",
)

def both_ways(name, kernels):
    """Declares the objects of kernel instances twice.

    Args:
      name: NAME.passes and NAME.one_command are the targets.
      kernels: labels of kernel instances.
    """
    _kernel_objects(name = name, kernels = kernels, tags = ["manual"])
    for way, split in {"one_command": False, "passes": True}.items():
        _one_way(name = "{}.{}".format(name, way), objects = name, split = split, tags = ["manual"])
