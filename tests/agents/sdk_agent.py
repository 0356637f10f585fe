"""A real ACP agent on the official Python SDK, for the end-to-end tests.

It thinks nothing: the first word of a prompt picks one path of the protocol
(README.md lists the words). What it does on that path is what a production
agent does, through the SDK's own models, so that a wire shape the SDK rejects
fails a test.

Environment
  ACP_AGENT_SESSIONS  directory of persisted sessions; absent: session/load is
                      not offered and a restart forgets everything
  ACP_AGENT_LOG       file that gets one line per native call (`session/new`,
                      `prompt`, ...), so that a test can count native starts
"""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import signal
import sys
import uuid
from typing import Any

from acp import PROTOCOL_VERSION, RequestError, run_agent
from acp.helpers import (
    plan_entry,
    start_tool_call,
    text_block,
    tool_content,
    update_agent_message_text,
    update_agent_thought_text,
    update_available_commands,
    update_current_mode,
    update_plan,
    update_tool_call,
    update_user_message_text,
)
from acp.schema import (
    AgentCapabilities,
    AvailableCommand,
    AvailableCommandInput,
    ConfigOptionUpdate,
    Implementation,
    InitializeResponse,
    LoadSessionResponse,
    NewSessionResponse,
    PermissionOption,
    PromptResponse,
    SessionConfigOptionBoolean,
    SessionConfigOptionSelect,
    SessionConfigSelectOption,
    SessionMode,
    SessionModeState,
    SetSessionConfigOptionResponse,
    SetSessionModeResponse,
    ToolCallUpdate,
    UnstructuredCommandInput,
    Usage,
    UsageUpdate,
)

MODES = {"ask": "Ask", "code": "Code"}
MODELS = {"small": "Small", "large": "Large"}

COMMANDS = [
    ("echo", "Answers with its argument", "text"),
    ("mcp list", "Lists servers", None),
    ("mcp add", "Adds a server", "name"),
    ("$review", "A skill", None),
    ("bad/name", "Cannot be spelled as one word after a slash", None),
]

PERMISSIONS = [
    PermissionOption(option_id="yes", name="Allow", kind="allow_once"),
    PermissionOption(option_id="yes-always", name="Always allow", kind="allow_always"),
    PermissionOption(option_id="no", name="Reject", kind="reject_once"),
    PermissionOption(option_id="no-always", name="Never", kind="reject_always"),
]


class Session:
    """One conversation, kept on disk when a directory was given."""

    def __init__(self, session_id: str) -> None:
        self.id = session_id
        self.mode = "ask"
        self.model = "small"
        self.verbose = False
        self.turns: list[dict[str, str]] = []
        self.cancelled = asyncio.Event()

    def options(self) -> list[Any]:
        return [
            SessionConfigOptionSelect(
                id="model",
                name="Model",
                category="model",
                type="select",
                current_value=self.model,
                options=[SessionConfigSelectOption(value=v, name=n) for v, n in MODELS.items()],
            ),
            SessionConfigOptionBoolean(
                id="verbose", name="Verbose", type="boolean", current_value=self.verbose
            ),
        ]

    def modes(self) -> SessionModeState:
        return SessionModeState(
            current_mode_id=self.mode,
            available_modes=[SessionMode(id=i, name=n) for i, n in MODES.items()],
        )


class Agent:
    """The protocol side; one instance a process."""

    def __init__(self) -> None:
        self.client: Any = None
        self.sessions: dict[str, Session] = {}
        folder = os.environ.get("ACP_AGENT_SESSIONS")
        self.folder = pathlib.Path(folder) if folder else None
        if self.folder:
            self.folder.mkdir(parents=True, exist_ok=True)
        self.background: set[asyncio.Task[None]] = set()

    # -- plumbing -------------------------------------------------------------

    def on_connect(self, conn: Any) -> None:
        self.client = conn

    def log(self, line: str) -> None:
        path = os.environ.get("ACP_AGENT_LOG")
        if path:
            with open(path, "a", encoding="utf-8") as file:
                file.write(line + "\n")

    def save(self, session: Session) -> None:
        if not self.folder:
            return
        body = {"mode": session.mode, "model": session.model, "verbose": session.verbose, "turns": session.turns}
        path = self.folder / f"{session.id}.json"
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(body), encoding="utf-8")
        temporary.replace(path)

    def session(self, session_id: str) -> Session:
        found = self.sessions.get(session_id)
        if found is None:
            raise RequestError.resource_not_found(session_id)
        return found

    async def send(self, session: Session, update: Any) -> None:
        await self.client.session_update(session_id=session.id, update=update)

    def later(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.background.add(task)
        task.add_done_callback(self.background.discard)

    async def announce_commands(self, session: Session) -> None:
        await self.send(
            session,
            update_available_commands(
                AvailableCommand(
                    name=name,
                    description=description,
                    input=AvailableCommandInput(root=UnstructuredCommandInput(hint=hint)) if hint else None,
                )
                for name, description, hint in COMMANDS
            ),
        )

    # -- the protocol -----------------------------------------------------------

    async def initialize(self, protocol_version: int, **_: Any) -> InitializeResponse:
        self.log("initialize")
        return InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_capabilities=AgentCapabilities(load_session=self.folder is not None),
            agent_info=Implementation(name="sdk-agent", title="SDK test agent", version="1.0.0"),
        )

    async def new_session(self, cwd: str, **_: Any) -> NewSessionResponse:
        self.log("session/new")
        session = Session(uuid.uuid4().hex)
        self.sessions[session.id] = session
        self.save(session)
        self.later(self.announce_commands(session))
        return NewSessionResponse(session_id=session.id, modes=session.modes(), config_options=session.options())

    async def load_session(self, cwd: str, session_id: str, **_: Any) -> LoadSessionResponse:
        self.log("session/load")
        path = self.folder / f"{session_id}.json" if self.folder else None
        if path is None or not path.is_file():
            raise RequestError.resource_not_found(session_id)
        body = json.loads(path.read_text(encoding="utf-8"))
        session = Session(session_id)
        session.mode, session.model, session.verbose = body["mode"], body["model"], body["verbose"]
        session.turns = body["turns"]
        self.sessions[session_id] = session
        # The protocol wants the whole conversation replayed before the answer.
        for turn in session.turns:
            await self.send(session, update_user_message_text(turn["prompt"]))
            await self.send(session, update_agent_message_text(turn["answer"]))
        self.later(self.announce_commands(session))
        return LoadSessionResponse(modes=session.modes(), config_options=session.options())

    async def set_session_mode(self, session_id: str, mode_id: str, **_: Any) -> SetSessionModeResponse:
        self.log(f"session/set_mode {mode_id}")
        session = self.session(session_id)
        if mode_id not in MODES:
            raise RequestError.invalid_params({"modeId": mode_id})
        session.mode = mode_id
        self.save(session)
        await self.send(session, update_current_mode(mode_id))
        return SetSessionModeResponse()

    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **_: Any
    ) -> SetSessionConfigOptionResponse:
        self.log(f"session/set_config_option {config_id} {value}")
        session = self.session(session_id)
        if config_id == "model" and value in MODELS:
            session.model = str(value)
        elif config_id == "verbose" and isinstance(value, bool):
            session.verbose = value
        else:
            raise RequestError.invalid_params({"configId": config_id, "value": value})
        self.save(session)
        return SetSessionConfigOptionResponse(config_options=session.options())

    async def cancel(self, session_id: str, **_: Any) -> None:
        self.log("session/cancel")
        if session_id in self.sessions:
            self.sessions[session_id].cancelled.set()

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> PromptResponse:
        session = self.session(session_id)
        text = "".join(getattr(block, "text", "") for block in prompt)
        self.log("prompt " + json.dumps(text))
        session.cancelled.clear()
        run = asyncio.ensure_future(self.answer(session, text))
        stop = asyncio.ensure_future(session.cancelled.wait())
        try:
            await asyncio.wait({run, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not run.done():
                run.cancel()
                await asyncio.gather(run, return_exceptions=True)
                return PromptResponse(stop_reason="cancelled")
            answer, reason = run.result()
        finally:
            stop.cancel()
        session.turns.append({"prompt": text, "answer": answer})
        self.save(session)
        return PromptResponse(
            stop_reason=reason,
            usage=Usage(total_tokens=30, input_tokens=10, output_tokens=20),
        )

    # -- the words ----------------------------------------------------------------

    async def answer(self, session: Session, text: str) -> tuple[str, str]:
        word, _, rest = text.strip().partition(" ")
        if text.startswith("/"):
            return await self.command(session, text)
        handler = {
            "permission": self.permission,
            "slow": self.slow,
            "die": self.die,
            "late": self.late,
            "tools": self.tools,
            "refuse": self.refuse,
            "remember": self.remember,
            "switch": self.switch,
            "pid": self.pid,
        }.get(word)
        if handler:
            return await handler(session, rest)
        return await self.stream(session, f"You said: {text}")

    async def stream(self, session: Session, text: str) -> tuple[str, str]:
        for at in range(0, len(text), 8):
            await self.send(session, update_agent_message_text(text[at : at + 8]))
            await asyncio.sleep(0)
        return text, "end_turn"

    async def command(self, session: Session, text: str) -> tuple[str, str]:
        name, _, rest = text[1:].partition(" ")
        if name == "echo":
            return await self.stream(session, rest)
        return await self.stream(session, f"command {text}")

    async def permission(self, session: Session, rest: str) -> tuple[str, str]:
        call = "call-" + uuid.uuid4().hex[:8]
        what = rest or "ls"
        await self.send(
            session,
            start_tool_call(call, f"Run {what}", kind="execute", status="pending", raw_input={"command": what}),
        )
        reply = await self.client.request_permission(
            session_id=session.id,
            tool_call=ToolCallUpdate(
                tool_call_id=call, title=f"Run {what}", kind="execute", raw_input={"command": what}
            ),
            options=PERMISSIONS,
        )
        chosen = getattr(reply.outcome, "option_id", None) or "cancelled"
        allowed = chosen.startswith("yes")
        await self.send(
            session,
            update_tool_call(
                call,
                status="completed" if allowed else "failed",
                content=[tool_content(text_block(f"outcome {chosen}"))],
            ),
        )
        return await self.stream(session, f"permission: {chosen}")

    async def slow(self, session: Session, rest: str) -> tuple[str, str]:
        seconds = float(rest or "30")
        steps = max(1, int(seconds * 4))
        for step in range(steps):
            await self.send(session, update_agent_message_text(f"tick {step}\n"))
            await asyncio.sleep(seconds / steps)
        return "slow", "end_turn"

    async def die(self, session: Session, _: str) -> tuple[str, str]:
        await self.send(session, update_agent_message_text("about to die"))
        await asyncio.sleep(0.05)
        print("sdk agent: leaving on request", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
        return "", "end_turn"

    async def late(self, session: Session, rest: str) -> tuple[str, str]:
        delay = float(rest or "1")

        async def straggler() -> None:
            await asyncio.sleep(delay)
            await self.send(session, update_agent_message_text("late news"))

        self.later(straggler())
        return await self.stream(session, "more will follow")

    async def tools(self, session: Session, _: str) -> tuple[str, str]:
        await self.send(session, update_agent_thought_text("let me see"))
        await self.send(
            session,
            update_plan([plan_entry("look", status="in_progress"), plan_entry("tell", priority="low")]),
        )
        await self.send(
            session, start_tool_call("read-1", "Read notes.txt", kind="read", status="pending", raw_input={"path": "notes.txt"})
        )
        await self.send(session, update_tool_call("read-1", status="in_progress"))
        await self.send(
            session,
            update_tool_call("read-1", status="completed", content=[tool_content(text_block("three notes"))]),
        )
        await self.send(
            session,
            update_plan([plan_entry("look", status="completed"), plan_entry("tell", priority="low", status="completed")]),
        )
        await self.send(session, UsageUpdate(session_update="usage_update", used=1234, size=200000))
        return await self.stream(session, "There are three notes.")

    async def refuse(self, session: Session, _: str) -> tuple[str, str]:
        return "", "refusal"

    async def remember(self, session: Session, _: str) -> tuple[str, str]:
        count = len(session.turns)
        first = session.turns[0]["prompt"] if session.turns else "nothing"
        return await self.stream(session, f"{count} turns before this one, first: {first}")

    async def switch(self, session: Session, rest: str) -> tuple[str, str]:
        if rest in MODES:
            session.mode = rest
            await self.send(session, update_current_mode(rest))
        else:
            session.verbose = not session.verbose
            await self.send(
                session, ConfigOptionUpdate(session_update="config_option_update", config_options=session.options())
            )
        return await self.stream(session, "switched")

    async def pid(self, session: Session, _: str) -> tuple[str, str]:
        return await self.stream(session, f"pid {os.getpid()}")


if __name__ == "__main__":
    asyncio.run(run_agent(Agent()))
