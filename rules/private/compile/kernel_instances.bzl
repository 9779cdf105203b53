"""kernel_instances: the cc_library targets of one direction's kernel instances."""

load("@rules_cc//cc:defs.bzl", "cc_library")
load("//rules/private:archs.bzl", "by_archs")
load("//rules/private:kernel_target.bzl", "KERNEL_TARGET")
load(":hip_object.bzl", "hip_object")
load(":hip_pass.bzl", "hip_pass")
load(":hip_source.bzl", "DEBUG_FLAGS")

def _host(archs):
    return "pass/host_" + "_".join(archs)

def _device(arch, family = ""):
    return "pass/" + "/".join([arch] + ([family] if family else []))

def _declare_passes(kernels, family_of, precompile, **kwargs):
    # A library restricted to some archs has only these archs' defines.
    for name, archs in {
        _host(some): some
        for archs in kernels.values()
        for some in [archs] + [[arch] for arch in archs]
    }.items():
        hip_pass(name = name, archs = archs, header = "headers.hpp" if precompile else None, **kwargs)
    for arch in {arch: None for archs in kernels.values() for arch in archs}:
        hip_pass(name = _device(arch), arch = arch, header = "headers.hpp" if precompile else None, **kwargs)
    for arch, family in {
        (arch, family_of[name]): None
        for name, archs in kernels.items()
        if name in family_of
        for arch in archs
    }:
        hip_pass(
            name = _device(arch, family),
            arch = arch,
            # Parsing the headers is a third of what a warm header costs to make.
            base = _device(arch),
            header = "warm/{}.hpp".format(family),
            warm = True,
            **kwargs
        )

def _always(archs, value_of):
    return value_of(archs)

# Each of its names is a key of `kernels`.
# buildifier: disable=unnamed-macro
def kernel_instances(kernels, headers, copts = [], entries = {}, families = {}, overlay = [], precompile = True, visibility = ["//visibility:public"]):
    """Declares one cc_library per kernel instance.

    This macro expands to a hip_object, NAME.object, and a cc_library around it,
    NAME, for each of `kernels`: a target for each kernel is what makes one
    changed kernel one recompile.
    With them comes a hip_pass for each arch and family, and for the host.

    Args:
      kernels: dict from a kernel instance's name to the archs it is compiled
        for. The source is <name>.cpp in the calling package, which also has a
        headers.hpp that includes what the sources include.
      headers: label of the header_set that all of them include.
      copts: compiler flags of the module, from optCompilerConfig.json.
      entries: dict from an entry source's name to the kernel instances it is
        for: entries/<name>.cpp in the calling package. Without one, a kernel
        instance cannot be made a kernel library.
      families: dict from a family's name to its kernel instances, which share
        a precompiled header that is made of warm/<family>.hpp.
      overlay: headers that compiles by passes read in place of those of
        `headers`: overlay/<name> in the calling package has <name>.
      precompile: whether headers may be precompiled.
      visibility: visibility of the targets.
    """
    family_of = {name: family for family, names in families.items() for name in names} if precompile else {}
    entry_of = {name: entry for entry, names in entries.items() for name in names}
    _declare_passes(
        kernels,
        family_of,
        precompile,
        copts = copts + DEBUG_FLAGS,
        overlay = ["overlay/" + name for name in overlay],
        deps = [headers],
        **KERNEL_TARGET
    )
    for name, archs in kernels.items():
        # A source of one arch is asked for by libraries that have the arch alone.
        select = by_archs if len(archs) > 1 else _always
        family = family_of.get(name, "")
        hip_object(
            name = name + ".object",
            src = name + ".cpp",
            cuid = name,
            entry = "entries/{}.cpp".format(entry_of[name]) if name in entry_of else None,
            device = select(archs, lambda on: [":" + _device(arch, family) for arch in on]),
            host = select(archs, lambda on: ":" + _host(on)),
            hosts = {":" + _host([arch]): arch for arch in archs},
            # Several manifests link the same kernel, each into a library of its
            # own whose symbols do not meet.
            tags = ["LINKABLE_MORE_THAN_ONCE", "qola-kernel"],
            visibility = visibility,
            **KERNEL_TARGET
        )

        # For whoever builds or links one kernel; libraries link the object.
        cc_library(
            name = name,
            srcs = [name + ".object"],
            linkstatic = True,
            visibility = visibility,
            **KERNEL_TARGET
        )
