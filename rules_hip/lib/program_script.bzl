"""Scripts that run a tool of their runfiles."""

def place_of(ctx, file):
    """Returns the shell word for a file's path in the runfiles of a program_script."""
    path = file.short_path
    return '"$files/{}"'.format(path[3:] if path.startswith("../") else ctx.workspace_name + "/" + path)

def program_script(ctx, words, files, targets):
    """Declares a script that runs a tool of its runfiles.

    Args:
      ctx: the rule context.
      words: list of strings, shell words of the command; the script's own arguments follow.
      files: list of File, further runfiles.
      targets: list of targets whose runfiles the command reads.

    Returns:
      List with the DefaultInfo.
    """
    program = ctx.actions.declare_file(ctx.label.name)
    ctx.actions.write(
        program,
        "\n".join([
            "#!/bin/sh",
            "# Written by @rules_hip//lib:program_script.bzl.",
            "files=$0.runfiles",
            '[ -d "$files" ] || files=${RUNFILES_DIR:-$TEST_SRCDIR}',
            'export RUNFILES_DIR="$files"',
            "exec {} \"$@\"".format(" ".join(words)),
            "",
        ]),
        is_executable = True,
    )
    runfiles = ctx.runfiles(files).merge_all([target[DefaultInfo].default_runfiles for target in targets])
    return [DefaultInfo(executable = program, runfiles = runfiles)]
