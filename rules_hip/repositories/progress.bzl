"""Messages of repository rules, for terminals and for logs."""

def say(rctx, text):
    """Prints lines. Bazel's print() would put DEBUG and a place of this file before them."""
    rctx.execute(["sh", "-c", "printf '%s\\n' \"$1\" >&2", "_", text], quiet = False)

def report_step(rctx, text):
    """Shows what a rule begins to do.

    A terminal shows it with the seconds that it takes. Without one, Bazel only repeats how many targets it has
    configured: a line says what it waits for.
    """
    rctx.report_progress(text)
    say(rctx, "qola: " + text)
