"""kernel_instances: the targets of one direction's kernel instances."""

load("@rules_cc//cc:defs.bzl", "cc_library")
load("//rules/private:archs.bzl", "by_archs", "subsets")
load("//rules/private:kernel_target.bzl", "KERNEL_TARGET")
load(":hip_command.bzl", "hip_command")
load(":hip_object.bzl", "hip_object")
load(":hip_source.bzl", "DEBUG_FLAGS")

def _command(archs):
    return "command/" + "_".join(archs)

def _commands(archs):
    # A library restricted to some archs has only these archs' defines. A source
    # of one arch is asked for by libraries that have the arch alone.
    return by_archs(archs, _command) if len(archs) > 1 else _command(archs)

# Each of its names is a key of `kernels` or of `batches`.
# buildifier: disable=unnamed-macro
def kernel_instances(kernels, headers, copts = [], entries = {}, batches = {}, visibility = ["//visibility:public"]):
    """Declares one cc_library per kernel instance, and the batches that libraries link.

    This macro expands to a hip_object, NAME.object, and a cc_library around it,
    NAME, for each of `kernels`; a hip_object, NAME.object, for each of
    `batches`; and a hip_command for each set of archs.

    Args:
      kernels: dict from a kernel instance's name to the archs it is compiled
        for. The source is <name>.cpp in the calling package.
      headers: label of the header_set that all of them include.
      copts: compiler flags of the module, from optCompilerConfig.json.
      entries: dict from an entry source's name to the kernel instances it is
        for: entries/<name>.cpp in the calling package. Without one, a kernel
        instance cannot be made a kernel library.
      batches: dict from a batch's name to its kernel instances, all of the same
        archs: batches/<name>.cpp in the calling package includes their sources.
      visibility: visibility of the targets.
    """
    entry_of = {name: entry for entry, names in entries.items() for name in names}
    for archs in {
        _command(some): some
        for archs in kernels.values()
        for some in subsets(archs)
    }.values():
        hip_command(
            name = _command(archs),
            archs = archs,
            copts = copts + DEBUG_FLAGS,
            deps = [headers],
            **KERNEL_TARGET
        )
    common = dict(
        # Several manifests link the same kernel, each into a library of its
        # own whose symbols do not meet.
        tags = ["LINKABLE_MORE_THAN_ONCE", "qola-kernel"],
        visibility = visibility,
        **KERNEL_TARGET
    )
    for name, archs in kernels.items():
        hip_object(
            name = name + ".object",
            src = name + ".cpp",
            command = _commands(archs),
            commands = {_command([arch]): arch for arch in archs},
            cuid = name,
            entry = "entries/{}.cpp".format(entry_of[name]) if name in entry_of else None,
            **common
        )

        # For whoever builds or links one kernel; libraries link the batch, or the object.
        cc_library(
            name = name,
            srcs = [name + ".object"],
            linkstatic = True,
            visibility = visibility,
            **KERNEL_TARGET
        )
    for name, members in batches.items():
        hip_object(
            name = name + ".object",
            src = "batches/{}.cpp".format(name),
            command = _commands(kernels[members[0]]),
            cuid = name,
            kernels = [member + ".cpp" for member in members],
            **common
        )
