"""manifest_targets, qola_manifest_targets: what users are given of a manifest, by one call."""

load(":bundle.bzl", "qola_bundle", "qola_wheel")
load(":emulation.bzl", "emulated_module", "launch_test", "library_caller")
load(":lazy.bzl", "qola_kernel_pack")
load(":library.bzl", "qola_library")
load(":static.bzl", "qola_static_library")

# Compared with what the files need (docs/guide/bundle.md); ROCm's runtime is there where a wheel is installed.
_WHEELS_FOR = dict(
    external_libraries = ["libamdhip64.so.7"],
    platform = "manylinux_2_28_x86_64",
)

def _declare_packages(manifest, modules, repository, bundle, lazy, prefix, static, packs, triton, version, tags, **kwargs):
    """The targets that are made of several modules; all but the bundle are manual."""
    manual = tags + ["manual"]
    qola_bundle(
        name = bundle,
        libraries = ["{}:{}".format(repository, module) for module in modules],
        static = ":{}static".format(prefix) if static else None,
        tags = tags,
        triton = triton,
        **kwargs
    )
    qola_wheel(
        name = prefix + "wheel",
        bundle = bundle,
        package = "qola_" + manifest,
        tags = manual,
        version = version,
        **(_WHEELS_FOR | kwargs)
    )
    if not modules:
        return
    qola_static_library(
        name = prefix + "static",
        modules = ["{}:{}".format(repository, module) for module in modules],
        tags = manual,
        **kwargs
    )
    qola_kernel_pack(
        name = prefix + "pack",
        archs = packs,
        modules = ["{}:{}_kernels".format(repository, module) for module in modules],
        tags = manual,
        **kwargs
    )
    qola_bundle(
        name = lazy,
        libraries = ["{}:{}_lazy".format(repository, module) for module in modules],
        packs = [":{}pack".format(prefix)] if packs else [],
        tags = manual,
        triton = triton,
        **kwargs
    )
    qola_wheel(
        name = prefix + "lazy_wheel",
        bundle = lazy,
        package = "qola_{}_lazy".format(manifest),
        tags = manual,
        version = version,
        **(_WHEELS_FOR | kwargs)
    )

def manifest_targets(name, modules, version, triton = None):
    """Declares what a manifest's repository has besides its modules.

    Expands to `bundle`, `static`, `wheel`, `pack`, `lazy_bundle` and
    `lazy_wheel`, as qola_manifest_targets makes them of all modules, to the
    aliases `tar` and `lazy`, and to a launch_test, a
    library_caller and an emulated_module of each module. Where kernels in Triton
    are all that the manifest has, of these `bundle`, `wheel` and `tar`.

    Args:
      name: the manifest.
      modules: its attention modules.
      version: of the wheels.
      triton: label of its library of kernels in Triton, for the bundles.
    """
    _declare_packages(
        manifest = name,
        bundle = "bundle",
        # Not `lazy`, a directory that has the lazy libraries.
        lazy = "lazy_bundle",
        modules = modules,
        packs = [],
        prefix = "",
        repository = "",
        static = False,
        tags = ["manual"],
        triton = triton,
        version = version,
        visibility = ["//visibility:public"],
    )
    for module in modules:
        launch_test(
            name = module + "_launch_test",
            library = module,
            module = module,
        )
        library_caller(
            name = module + "_caller",
            library = module,
            module = module,
        )
        emulated_module(
            name = module + "_emulated",
            caller = module + "_caller",
            library = module,
            module = module,
            sources = module + ".sources",
            tags = ["manual"],
            visibility = ["//visibility:public"],
        )
        native.filegroup(
            name = module + ".sources",
            srcs = native.glob([module + "/dispatch/*.cpp", module + "/kernels/*.cpp"], allow_empty = True),
            tags = ["manual"],
            visibility = ["//visibility:private"],
        )
    shorts = {"tar": "bundle_tar"} | ({"lazy": "lazy_bundle"} if modules else {})
    for short, actual in shorts.items():
        native.alias(
            name = short,
            actual = actual,
            tags = ["manual"],
            visibility = ["//visibility:public"],
        )

def qola_manifest_targets(name, modules = ["libmha_bwd", "libmha_fwd"], static = False, packs = [], triton = False, version = "", tags = [], **kwargs):
    """All that can be built of a manifest, under names and as files of the calling package.

    | Target | Rule | Made of |
    | --- | --- | --- |
    | `<name>_<module>` | qola_library | a module |
    | `<name>` and `<name>_tar` | qola_bundle | the modules |
    | `<name>_static` | qola_static_library | the modules |
    | `<name>_wheel` | qola_wheel | the bundle, for manylinux_2_28 and ROCm 7 |
    | `<name>_<module>_lazy` | qola_library | a module's lazy library |
    | `<name>_lazy` and `<name>_lazy_tar` | qola_bundle | the lazy libraries |
    | `<name>_lazy_wheel` | qola_wheel | the bundle of these, for the same |
    | `<name>_pack` | qola_kernel_pack | the kernels of the modules |

    Those below the bundle are `manual`: `//...` leaves them out. The manifest's
    repository has the same without a call: `@qola_<name>//:<module>`, `:bundle`,
    `:tar`, `:static`, `:wheel`, `:lazy`, `:lazy_wheel` and `:pack`. Where these
    shall be otherwise, call the rules themselves.

    Example:
        qola_manifest_targets(name = "te")

    Args:
      name: the manifest, as qola.manifest names it, and what the names of the
        targets begin with. A wheel's package is qola_<name>, that of the lazy
        libraries qola_<name>_lazy.
      modules: the attention modules, those of them that the manifest has.
      triton: whether the bundles have the library of the manifest's kernels in
        Triton, `@qola_<name>//:triton_library`.
      static: whether the bundle has the archive inside.
      packs: archs whose kernels the pack has, which is then inside the bundle of
        lazy libraries. Without any, the bundle has no pack, and the pack all archs.
      version: of the wheels; by default that of the calling module, 0.0.0 where
        it states none.
      tags: tags of all targets.
      **kwargs: further common attributes of all targets, such as visibility.
    """
    repository = "@qola_{}//".format(name)
    for module in modules:
        qola_library(
            name = "{}_{}".format(name, module),
            library = "{}:{}".format(repository, module),
            tags = tags,
            **kwargs
        )
        qola_library(
            name = "{}_{}_lazy".format(name, module),
            library = "{}:{}_lazy".format(repository, module),
            tags = tags + ["manual"],
            **kwargs
        )
    _declare_packages(
        manifest = name,
        bundle = name,
        lazy = name + "_lazy",
        modules = modules,
        packs = packs,
        prefix = name + "_",
        repository = repository,
        static = static,
        tags = tags,
        triton = repository + ":triton_library" if triton else None,
        version = version or native.module_version() or "0.0.0",
        **kwargs
    )
