"""kernel_instances: the cc_library targets of one direction's kernel instances."""

load(":archs.bzl", "by_archs")
load(":hip_library.bzl", "DEBUG_FLAGS", "hip_library")
load(":hip_object.bzl", "hip_object")
load(":hip_pass.bzl", "hip_pass")

def _host(archs):
    return "pass/host_" + "_".join(archs)

def _device(arch, family):
    return "pass/" + "/".join([arch] + ([family] if family else []))

def _declare_passes(kernels, family_of, precompile, **kwargs):
    sets = {tuple(archs): None for archs in kernels.values()}

    # A library may be restricted to one of several archs.
    single = {(arch,): None for archs in sets for arch in archs}
    for archs in sets | single:
        hip_pass(name = _host(archs), archs = archs, header = "headers.hpp" if precompile else None, **kwargs)
    for arch, family in {
        (arch, family_of.get(name, "")): None
        for name, archs in kernels.items()
        for arch in archs
    }:
        hip_pass(
            name = _device(arch, family),
            arch = arch,
            header = ("warm/{}.hpp".format(family) if family else "headers.hpp") if precompile else None,
            warm = bool(family),
            **kwargs
        )

def _always(archs, value_of):
    return value_of(archs)

def kernel_instances(kernels, headers, copts = [], families = {}, overlay = [], precompile = True, visibility = ["//visibility:public"]):
    """Declares one cc_library per kernel instance.

    This macro expands to a hip_library and a hip_object for each of `kernels`:
    a target for each kernel is what makes one changed kernel one recompile.
    With them comes a hip_pass for each arch and family, and for the host.

    Args:
      kernels: dict from a kernel instance's name to the archs it is compiled
        for. The source is <name>.cpp in the calling package, which also has a
        headers.hpp that includes what the sources include.
      headers: label of the header_set that all of them include.
      copts: compiler flags of the module, from optCompilerConfig.json.
      families: dict from a family's name to its kernel instances, which share
        a precompiled header that is made of warm/<family>.hpp.
      overlay: headers that compiles by passes read in place of those of
        `headers`: overlay/<name> in the calling package has <name>.
      precompile: whether headers may be precompiled.
      visibility: visibility of the targets.
    """
    family_of = {name: family for family, names in families.items() for name in names}
    _declare_passes(
        kernels,
        family_of,
        precompile,
        copts = copts + DEBUG_FLAGS,
        target_compatible_with = [Label("//rules/rocm:rocm")],
        overlay = ["overlay/" + name for name in overlay],
        deps = [headers],
    )
    for name, archs in kernels.items():
        # A source of one arch is asked for by libraries that have the arch alone.
        select = by_archs if len(archs) > 1 else _always
        family = family_of.get(name, "")
        hip_object(
            name = name + ".object",
            src = name + ".cpp",
            cuid = name,
            device = select(archs, lambda on: [":" + _device(arch, family) for arch in on]),
            host = select(archs, lambda on: ":" + _host(on)),
            target_compatible_with = [Label("//rules/rocm:rocm")],
        )
        hip_library(
            name = name,
            src = name + ".cpp",
            archs = archs,
            copts = copts,
            object = ":{}.object".format(name),
            # Several manifests link the same kernel, each into a library of its
            # own whose symbols do not meet.
            tags = ["LINKABLE_MORE_THAN_ONCE", "qola-kernel"],
            visibility = visibility,
            deps = [headers],
        )
