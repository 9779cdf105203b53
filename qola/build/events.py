"""Reads the JSON lines of Bazel's build event stream (build_event_stream.proto)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from qola.common.layout import action_name

ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_NEXT = r"(?=^(?:Error in|ERROR|WARNING|INFO|DEBUG|Analyzing|Loading|FAILED|\[)|\Z)"
_FAIL = re.compile(rf"^Error in fail:(.*?){_NEXT}", re.MULTILINE | re.DOTALL)
_PRINTED = re.compile(r"^qola: (?!\w+Error: )(.*)$", re.MULTILINE)
_ERROR = re.compile(r"^ERROR: (.*)$", re.MULTILINE)
_COUNTED = re.compile(r"^\[([\d,]+) / ([\d,]+)\]", re.MULTILINE)
_PROGRESS = re.compile(r"^ *((?:Loading|Analyzing|Fetching|\[[\d,]+ / [\d,]+\]).*\S)", re.MULTILINE)
_REFUSED = re.compile(
    r"^(?:WARNING: (?:Reading from |Writing to )?Remote Cache:"
    r"|ERROR: Failed to query remote execution capabilities:)"
    r".*(?:\b40[13] |UNAUTHENTICATED|PERMISSION_DENIED).*$",
    re.MULTILINE,
)
"""A refusal of a remote cache or of remote workers, by HTTP or gRPC."""
_RUNNING = re.compile(
    r"^\[[\d,]+ / [\d,]+\](?:[^;\n]*\btests?\b[^;\n]*;)? (\[\w+\] )?(.+?); (\d+)s", re.MULTILINE
)
"""A line of progress: state of the longest running action, such as [Sched], its name, seconds."""
_CLASS = re.compile(r"^(?:[\w.$]+Exception: )+")
"""Prefix of the reason why Bazel did not fetch a repository."""
_LAST = 20
"""Number of last pieces of Bazel's output in which to look for its progress."""
_JOBS = re.compile(r"--jobs=(\d+)")

#: Bazel's name of the outputs of a target without --output_groups.
DEFAULT_OUTPUTS = "default"


Event = Mapping[str, Any]
"""An object of the stream; Bazel leaves out fields with default values."""


@dataclass(frozen=True)
class FinishedAction:
    """A successful action. Results from Bazel's output tree have no action.

    Attributes:
        name: as `qola.common.layout.action_name` returns it.
        mnemonic: kind of action: QolaCompile, CppLink.
        seconds: from the start of the build to the arrival of the event.
    """

    name: str
    mnemonic: str
    seconds: float


@dataclass(frozen=True)
class RunningAction:
    """An action that runs, or that waits for a free core.

    Attributes:
        name: Bazel's message, such as Compiling fwd_bf16_14_733cafa94b52 (14 kernel instances).
        start: seconds from the start of the build.
    """

    name: str
    start: float
    waits: bool


@dataclass(frozen=True)
class FailedAction:
    """A failed action; `stderr` is the file with the messages of its tool, if there are any."""

    name: str
    mnemonic: str
    exit_code: int
    stderr: Path | None


@dataclass(frozen=True)
class TargetResult:
    """The result of a requested target.

    Attributes:
        seconds: from the start of the build to the arrival of the event.
        failures: keys in EventReader.failed of the failed actions that it depends on.
        reason: Bazel's reason why the target was not tried; "" if it was.
        causes: labels of the targets whose errors stopped its analysis.
    """

    success: bool
    seconds: float
    outputs: Mapping[str, tuple[Path, ...]]
    failures: tuple[str, ...] = ()
    reason: str = ""
    causes: tuple[str, ...] = ()


@dataclass
class EventReader:
    """Collects events as they arrive.

    Attributes:
        targets: results by label (//:libmha_fwd), in the order of completion.
        failed: failed actions by their first output, because one target compiles all kernels.
        exit_code: Bazel's exit code, None while it runs.
        external: directory of external repositories, None before it is known.
        jobs: number of parallel actions, None for Bazel's default.
        output: location of Bazel's own output, for messages.
    """

    targets: dict[str, TargetResult] = field(default_factory=dict)
    failed: dict[str, FailedAction] = field(default_factory=dict)
    exit_code: int | None = None
    actions: list[FinishedAction] = field(default_factory=list)
    external: Path | None = None
    jobs: int | None = None
    output: str = "Bazel's output above"
    _stderr: list[str] = field(default_factory=list)
    _reported: float = 0.0
    _sets: dict[str, Event] = field(default_factory=dict)
    _aborts: dict[str, str] = field(default_factory=dict)

    def feed(self, line: str, seconds: float) -> None:
        """Read one line of the stream that arrived `seconds` after the start of the build."""
        event = json.loads(line)
        identity: Event = event["id"]
        if "namedSet" in identity:
            self._sets[identity["namedSet"]["id"]] = event["namedSetOfFiles"]
        elif "action" in event:
            self._action(identity["actionCompleted"], event["action"], seconds)
        elif "aborted" in event:
            self._aborted(event, seconds)
        elif "targetCompleted" in identity and "completed" in event:
            self._completed(event, seconds)
        elif "progress" in event:
            self._stderr.append(event["progress"].get("stderr", ""))
            self._reported = seconds
        elif "workspaceInfo" in event:
            root = Path(event["workspaceInfo"].get("localExecRoot", ""))
            self.external = root.parent.parent / "external"
        elif "optionsParsed" in event:
            # Includes options of expanded configurations; the last one counts.
            found = _JOBS.findall("\n".join(event["optionsParsed"].get("cmdLine", ())))
            self.jobs = int(found[-1]) if found else None
        elif "finished" in event:
            self.exit_code = event["finished"].get("exitCode", {}).get("code", 0)

    def errors(self) -> tuple[str, ...]:
        """Return the distinct messages of Starlark's fail in rules and BUILD files."""
        return fails(self._output())

    def analysis_errors(self, result: TargetResult) -> tuple[str, ...]:
        """Return the distinct root causes why a target was not analysed; () if it was."""
        if not result.causes:
            return ()
        texts = [_CLASS.sub("", self._aborts.get(label, "")) for label in result.causes]
        # Of a rule's traceback, only the message of fail. Some causes have no description.
        found = [text for one in texts for text in fails(one) or (one.strip(),) if text]
        return tuple(dict.fromkeys(found)) or self.errors() or self.bazel_errors()[:1]

    def messages(self) -> tuple[str, ...]:
        """Return the distinct lines that repository rules print, such as warnings of plans."""
        return _texts(_PRINTED, self._output())

    def bazel_errors(self) -> tuple[str, ...]:
        """Return the distinct first lines of Bazel's own errors."""
        return _texts(_ERROR, self._output())

    def refusal(self) -> str:
        """Return the first answer of a remote cache that refuses access, "" for none."""
        return find_refusal(self._output())

    def running(self) -> RunningAction | None:
        """Return the action that Bazel reported last as the longest running one, None for none."""
        found = _RUNNING.findall(self.last_progress())
        if not found:
            return None
        state, name, seconds = found[-1]
        ended = (action.name for action in self.actions if action.seconds > self._reported)
        if any(action and action in name for action in ended):
            return None
        return RunningAction(name, self._reported - int(seconds), waits=bool(state))

    def last_progress(self) -> str:
        """Return Bazel's last line of progress, "" for none."""
        found = _PROGRESS.findall(self._output(_LAST))
        return found[-1] if found else ""

    def remaining(self) -> int | None:
        """Return the number of actions that are left, None if unknown."""
        found = _COUNTED.findall(self._output(_LAST))
        if not found:
            return None
        done, total = (int(number.replace(",", "")) for number in found[-1])
        return total - done

    def _output(self, last: int = 0) -> str:
        """Return Bazel's printed output without colours: all of it, or the last pieces."""
        return ANSI.sub("", "".join(self._stderr[-last:]))

    def _action(self, identity: Event, action: Event, seconds: float) -> None:
        mnemonic, output = action.get("type", ""), str(identity.get("primaryOutput", ""))
        name = action_name(mnemonic, str(identity.get("label", "")), output)
        if action.get("success"):
            self.actions.append(FinishedAction(name, mnemonic, seconds))
            return
        # The exit code of the tool; that of the action is always 1.
        spawn = action.get("failureDetail", {}).get("spawn", {})
        code = spawn.get("spawnExitCode") or action.get("exitCode", 0)
        stderr = _path(action.get("stderr", {}).get("uri", ""))
        self.failed.setdefault(_key(identity), FailedAction(name, mnemonic, code, stderr))

    def _aborted(self, event: Event, seconds: float) -> None:
        identity, aborted = event["id"], event["aborted"]
        text = aborted.get("description", "")
        if cause := _cause(identity):
            self._aborts.setdefault(cause, text)
        target = identity.get("targetCompleted") or identity.get("targetConfigured")
        if target:
            causes = tuple(filter(None, map(_cause, event.get("children", ()))))
            reason = text or aborted.get("reason", "")
            result = TargetResult(False, seconds, {}, (), reason, causes)
            self.targets[_short(target["label"])] = result

    def _completed(self, event: Event, seconds: float) -> None:
        completed: Event = event["completed"]
        success = completed.get("success", False)
        self.targets[_short(event["id"]["targetCompleted"]["label"])] = TargetResult(
            success=success,
            seconds=seconds,
            outputs={
                group["name"]: tuple(self._files(group.get("fileSets", ())))
                for group in completed.get("outputGroup", ())
                if not group.get("incomplete")
            },
            failures=tuple(
                _key(child["actionCompleted"])
                for child in event.get("children", ())
                if "actionCompleted" in child
            ),
            reason="" if success else completed.get("failureDetail", {}).get("message", ""),
        )

    def _files(self, sets: Iterable[Mapping[str, str]]) -> Iterator[Path]:
        for reference in sets:
            named = self._sets.get(reference["id"], {})
            yield from filter(None, (_path(file.get("uri", "")) for file in named.get("files", ())))
            yield from self._files(named.get("fileSets", ()))


def fails(output: str) -> tuple[str, ...]:
    """Return the distinct messages of Starlark's fail in Bazel's printed output."""
    return _texts(_FAIL, ANSI.sub("", output))


def find_refusal(output: str) -> str:
    """Return the first line of Bazel's output in which a remote cache refuses access."""
    found = _REFUSED.search(ANSI.sub("", output))
    return found[0].strip() if found else ""


def _cause(identity: Event) -> str:
    """Return the label of a target that stopped the analysis of others, "" if none did."""
    target = identity.get("configuredLabel") or identity.get("unconfiguredLabel") or {}
    return str(target.get("label", ""))


def _texts(pattern: re.Pattern[str], output: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(match[1].strip() for match in pattern.finditer(output)))


def _key(identity: Event) -> str:
    """Return the key of an action, the same in all events of a build."""
    return str(identity.get("primaryOutput") or identity.get("label", ""))


def _short(label: str) -> str:
    """Return a label without the @@ of the main repository."""
    return label[2:] if label.startswith("@@//") else label


def _path(uri: str) -> Path | None:
    """Return a file on this machine, None for a remote one."""
    parts = urlsplit(uri)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None
