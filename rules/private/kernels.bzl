"""kernel_unit: kernel instances with the same flags and headers, in generated BUILD files."""

load("@rules_cc//cc:defs.bzl", "cc_library")
load("@rules_hip//lib:cc.bzl", "KERNEL_TARGET")
load("@rules_hip//lib:kernels.bzl", "compiled_kernels", "hip_object", "kernel_sources", _header_set = "header_set")
load(":compile.bzl", "DEBUG_FLAGS")

# A wheel has this directory above all of AITER but its Python; the same tree from git does not.
_WHEEL_ROOT = "aiter_meta/"

def header_set(name, **kwargs):
    """Declares headers of an AITER tree for one group of compiles: the include closure of qola/aiter/includes.py.

    Args:
      name: target name.
      **kwargs: headers, include_dirs and tree of @rules_hip//lib:kernels.bzl's rule, and attributes of all rules.
    """
    _header_set(name = name, strip = _WHEEL_ROOT, **kwargs)

def kernel_unit(name, directory, kernels, headers, kernel_group = None, copts = [], entries = {}, batches = {}, visibility = ["//visibility:public"]):
    """Declares a unit: kernel instances with the same flags and headers, and the batches that libraries link.

    | Target | Content |
    | --- | --- |
    | `<name>/<kernel>`, `<name>/<kernel>.object` | a kernel instance, as a cc_library and as its hip_object |
    | `<name>/<batch>.object` | the hip_object of a batch |
    | `<name>.sources`, `<name>.compiled` | sources and objects of batches and of kernel instances outside of batches |
    | `<name>.single.sources`, `<name>.single.compiled` | the same of each kernel instance of a batch, compiled by itself |

    Args:
      name: the unit's name in plan.json, the prefix of the targets' names: <module>/<kernel group>, and .<header set> for other headers.
      directory: directory of the module, with kernels/<kernel>.cpp,
        kernels/batches/<batch>.cpp and entries/<entry>.cpp.
      kernels: dict from the name of a kernel instance to its archs.
      headers: label of the header_set that all kernel instances include.
      kernel_group: the kernel group, as plan.json names it; by default the end of `name`.
      copts: compiler flags of the module, from optCompilerConfig.json.
      entries: dict from the name of an entry source to its kernel instances. A
        kernel instance without an entry source has no kernel library.
      batches: dict from a batch's name to its kernel instances, all of the same
        archs.
      visibility: visibility of the targets.
    """
    kernel_group = kernel_group or name.rpartition("/")[2]
    entry_of = {kernel: entry for entry, names in entries.items() for kernel in names}
    sources = {kernel: "{}/kernels/{}.cpp".format(directory, kernel) for kernel in kernels}
    batch_sources = {batch: "{}/kernels/batches/{}.cpp".format(directory, batch) for batch in batches}
    batched = {kernel: None for members in batches.values() for kernel in members}

    # Separate, so that the analysis of a library declares no compile that it does not link.
    for end, batches_here, own in [
        ("", batches, [kernel for kernel in kernels if kernel not in batched]),
        (".single", {}, batched.keys()),
    ]:
        if own or batches_here:
            kernel_sources(
                name = name + end + ".sources",
                # A dict, because a kernel instance may be in several batches.
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
        kernel_group = kernel_group,
        # Several manifests link the same kernel, each into a library with
        # symbols of its own.
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
            kernels = name + (".single" if kernel in batched else "") + ".compiled",
            **common
        )

        # For building or linking one kernel; libraries link the batch or the object.
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
