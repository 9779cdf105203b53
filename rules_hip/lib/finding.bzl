"""How an error reads, whichever rule it comes from."""

def finding(title, place, found, expected, fix):
    """The text of an error, for fail.

    Args:
      title: what is wrong; where `qola build` has to know whose fault it is,
        after the name of its class in qola_base/errors.py: "AiterError: no patches".
      place: where it stands.
      found: what stands there, a line or several.
      expected: what may stand there.
      fix: the line to write or the command to run.

    Returns:
      The text; a line for each, and further lines of one below its first.
    """
    parts = {"place": place, "found": found, "expected": expected, "fix": fix}
    return "\nqola: " + title + "".join([
        "\n  {}:{}{}".format(label, " " * (9 - len(label)), str(text).replace("\n", "\n" + 12 * " "))
        for label, text in parts.items()
    ])
