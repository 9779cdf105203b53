"""public_headers: what a user of a module's library compiles against."""

load("@rules_cc//cc:defs.bzl", "cc_library")

def public_headers(name, config, headers, declarations = None):
    """Declares the public headers of one manifest.

    Args:
      name: target name.
      config: label of qola_config.h: namespace, macros and signatures of this manifest.
      headers: label of the header_set with the AITER and CK headers that the
        public ones include.
      declarations: label of the header with the functions of the library, beside
        qola_config.h.
    """
    cc_library(
        name = name,
        hdrs = [config] + ([declarations] if declarations else []),
        includes = ["include"],
        visibility = ["//visibility:public"],
        deps = [headers, Label("//cc/api:fmha")],
    )
