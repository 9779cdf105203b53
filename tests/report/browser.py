"""Drives a headless Chromium by its own protocol, over a pipe: no port, no driver beside it."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_FONTS = """\
<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>{directory}/fonts</dir><cachedir>{directory}/cache</cachedir></fontconfig>
"""
_OPTIONS = (
    *("--headless", "--remote-debugging-pipe", "--disable-gpu", "--disable-dev-shm-usage"),
    # Its own sandbox wants rights that Bazel's does not give; it reads one file, of ours.
    *("--no-sandbox", "--no-zygote"),
)
#: What is told of a page that is no command's answer, and is wrong.
COMPLAINTS = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")


def unpack(node: Path, script: Path, archives: Sequence[Path], directory: Path) -> None:
    """Lay out the browser, libraries that a plain system lacks, and a font."""
    subprocess.run([node, script, directory, *archives], check=True)
    for archive in directory.glob("*.tar"):
        with tarfile.open(archive) as tar:
            tar.extractall(directory, filter="data")
        archive.unlink()
    (directory / "chromium").chmod(0o755)
    (directory / "fonts.conf").write_text(_FONTS.format(directory=directory), encoding="utf-8")


class Page:
    """A page in a browser.

    Attributes:
        events: what the browser told of it, by method.
    """

    def __init__(self, send: int, receive: int) -> None:
        self._send, self._receive = send, receive
        self._rest, self._number = b"", 0
        self.events: list[Mapping[str, Any]] = []
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Give a command; return its answer."""
        self._number += 1
        words = {"id": self._number, "method": method, "params": parameters}
        if self._session and not method.startswith(("Target.", "Browser.")):
            words["sessionId"] = self._session
        os.write(self._send, json.dumps(words).encode() + b"\0")
        while True:
            said = self._next()
            if said.get("id") == self._number:
                assert "error" not in said, said
                result: dict[str, Any] = said["result"]
                return result

    def open(self, url: str) -> None:
        """Load a page, to its end."""
        self.events.clear()
        self.call("Page.navigate", url=url)
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._next()

    def ask(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def press(self, key: str, code: int, text: str = "") -> None:
        """Press a key and let it go."""
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=code,
                text=text if kind == "keyDown" else "",
            )

    def screenshot(self) -> bytes:
        """Return what is seen, as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot")["data"])

    def told(self, *methods: str) -> list[Mapping[str, Any]]:
        """Return the parameters of such events since the page was opened."""
        return [event["params"] for event in self.events if event["method"] in methods]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            more = os.read(self._receive, 1 << 20)
            assert more, "the browser is gone"
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\0")
        said: dict[str, Any] = json.loads(line)
        if "method" in said:
            self.events.append(said)
        return said


@contextmanager
def browsing(directory: Path) -> Iterator[Page]:
    """Start the browser that `unpack` laid out, and end it."""
    (from_us, send), (receive, to_us) = os.pipe(), os.pipe()
    command = [f"{directory}/chromium", *_OPTIONS, f"--user-data-dir={directory}/profile"]
    # It reads commands from 3 and answers on 4.
    process = subprocess.Popen(
        ["bash", "-c", f'exec "$@" 3<&{from_us} 4>&{to_us}', "_", *command],
        pass_fds=(from_us, to_us),
        env={
            "FONTCONFIG_FILE": str(directory / "fonts.conf"),
            "HOME": str(directory),
            "LD_LIBRARY_PATH": str(directory / "lib"),
            "PATH": os.environ["PATH"],
            "TMPDIR": str(directory),
        },
        stderr=subprocess.DEVNULL,
    )
    os.close(from_us)
    os.close(to_us)
    try:
        page = Page(send, receive)
        yield page
        page.call("Browser.close")
        process.wait(20)
    finally:
        process.kill()
        process.wait()
        os.close(send)
        os.close(receive)
