"""kernel_instances: the targets of a package of kernel instances."""

load("@rules_cc//cc:defs.bzl", "cc_library")
load("//rules/private:kernel_target.bzl", "KERNEL_TARGET")
load(":hip_source.bzl", "DEBUG_FLAGS")
load(":kernel_objects.bzl", "compiled_kernels", "hip_object", "kernel_sources")

def kernel_instances(name, directory, kernels, headers, package = None, copts = [], entries = {}, batches = {}, visibility = ["//visibility:public"]):
    """Declares one cc_library per kernel instance, and the batches that libraries link.

    This macro expands to NAME.sources and NAME.compiled, the kernel_sources and
    the compiled_kernels of what libraries link: batches, and kernel instances in
    none; to NAME.alone.sources and NAME.alone.compiled, the same of kernel
    instances in batches, each alone; to a hip_object, NAME/KERNEL.object, and a
    cc_library around it, NAME/KERNEL, for each of `kernels`; and to a hip_object,
    NAME/BATCH.object, for each of `batches`.

    Args:
      name: prefix of the targets' names, <module>/<package>.
      directory: the module's: kernels/<kernel>.cpp, kernels/batches/<batch>.cpp
        and entries/<entry>.cpp are below it.
      kernels: dict from a kernel instance's name to the archs it is compiled
        for.
      headers: label of the header_set that all of them include.
      package: the package, as plan.json names it; by default the end of `name`.
      copts: compiler flags of the module, from optCompilerConfig.json.
      entries: dict from an entry source's name to the kernel instances it is
        for. Without one, a kernel instance cannot be made a kernel library.
      batches: dict from a batch's name to its kernel instances, all of the same
        archs.
      visibility: visibility of the targets.
    """
    package = package or name.rpartition("/")[2]
    entry_of = {kernel: entry for entry, names in entries.items() for kernel in names}
    sources = {kernel: "{}/kernels/{}.cpp".format(directory, kernel) for kernel in kernels}
    batch_sources = {batch: "{}/kernels/batches/{}.cpp".format(directory, batch) for batch in batches}
    batched = {kernel: None for members in batches.values() for kernel in members}

    # Apart, so that a library's analysis declares no compile that it does not link.
    for end, batches_here, own in [
        ("", batches, [kernel for kernel in kernels if kernel not in batched]),
        (".alone", {}, batched.keys()),
    ]:
        if own or batches_here:
            kernel_sources(
                name = name + end + ".sources",
                # Each once: a kernel instance may be in several batches.
                srcs = {
                    file: None
                    for file in [sources[kernel] for kernel in own] + [
                        file
                        for batch, members in batches_here.items()
                        for file in [batch_sources[batch]] + [sources[member] for member in members]
                    ]
                }.keys(),
                archs = {kernel: kernels[kernel] for kernel in own},
                batch_archs = {batch: kernels[members[0]] for batch, members in batches_here.items()},
                batches = batches_here,
                copts = copts + DEBUG_FLAGS,
                headers = headers,
                visibility = visibility,
            )
            compiled_kernels(
                name = name + end + ".compiled",
                sources = name + end + ".sources",
                **KERNEL_TARGET
            )
    common = dict(
        package = package,
        # Several manifests link the same kernel, each into a library of its
        # own whose symbols do not meet.
        tags = ["LINKABLE_MORE_THAN_ONCE", "qola-kernel"],
        visibility = visibility,
        **KERNEL_TARGET
    )
    for kernel, archs in kernels.items():
        target = "{}/{}".format(name, kernel)
        hip_object(
            name = target + ".object",
            src = sources[kernel],
            archs = archs,
            entry = "{}/entries/{}.cpp".format(directory, entry_of[kernel]) if kernel in entry_of else None,
            kernel = kernel,
            kernels = name + (".alone" if kernel in batched else "") + ".compiled",
            **common
        )

        # For whoever builds or links one kernel; libraries link the batch, or the object.
        cc_library(
            name = target,
            srcs = [target + ".object"],
            linkstatic = True,
            visibility = visibility,
            **KERNEL_TARGET
        )
    for batch, source in batch_sources.items():
        hip_object(
            name = "{}/{}.object".format(name, batch),
            src = source,
            kernel = batch,
            kernels = name + ".compiled",
            **common
        )
