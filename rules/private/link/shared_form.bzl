"""shared_form: what every module of a manifest has in common: the link, and the library under its name."""

load("@rules_cc//cc:defs.bzl", "cc_shared_library")
load("//rules/private:archs.bzl", "by_archs")
load("//rules/private:kernel_target.bzl", "KERNEL_TARGET")
load(":built_module.bzl", "built_module")
load(":link_flags.bzl", "LARGE_CODE", "OLDER_SYSTEMS")
load(":qola_library.bzl", "qola_library")

def shared_form(name, file, export_list, archs, deps, headers, plan, bundle_files, link_flags, directory = "", link_inputs = [], **kwargs):
    """Declares a module's shared library.

    Expands to a cc_shared_library, <name>.shared; a built_module of it,
    <name>.built; and <name>, the qola_library of that. Its arguments are those of
    module_library, and `deps`, what is linked; `link_flags`, further ones, and
    `link_inputs`, files that these name;
    `directory`, where in the calling package the library is, with a slash at its
    end; and further attributes of built_module.
    """
    cc_shared_library(
        name = name + ".shared",
        additional_linker_inputs = [
            export_list,
            LARGE_CODE,
        ] + link_inputs,
        deps = deps + [OLDER_SYSTEMS],
        features = ["-static_libgcc"],
        shared_lib_name = directory + file,
        user_link_flags = [
            "-Wl,--version-script=$(location {})".format(export_list),
            "-Wl,-T,$(location {})".format(LARGE_CODE),
            "-Wl,-soname," + file,
        ] + link_flags + ["-lamdhip64"],
        **KERNEL_TARGET
    )
    built_module(
        name = name + ".built",
        archs = by_archs(archs, lambda on: on),
        bundle_files = bundle_files,
        headers = headers,
        library = name + ".shared",
        plan = plan,
        **kwargs
    )
    qola_library(
        name = name,
        library = name + ".built",
        tags = ["manual"],
        visibility = ["//visibility:public"],
    )
