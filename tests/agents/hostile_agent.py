"""A scripted, badly behaved ACP agent: what a client must survive.

Standard library only. `hostile_agent.py TRICK [ARG]`: everything but the named
trick is answered correctly, so that a test fails for one reason. README.md
lists the tricks.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

TRICK = sys.argv[1] if len(sys.argv) > 1 else "none"
ARG = sys.argv[2] if len(sys.argv) > 2 else ""
SESSION = "hostile-session"
OUT = sys.stdout.buffer


def raw(data: bytes) -> None:
    OUT.write(data)
    OUT.flush()


def send(message: dict) -> None:
    raw(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def answer(request: dict, result: dict) -> None:
    send({"id": request["id"], "result": result})


def update(body: dict, session: str = SESSION) -> None:
    send({"method": "session/update", "params": {"sessionId": session, "update": body}})


def say(text: str) -> None:
    update({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}})


def commands() -> None:
    update(
        {
            "sessionUpdate": "available_commands_update",
            "availableCommands": [{"name": "early", "description": "announced before the answer"}],
        }
    )


def grandchild() -> int:
    """A descendant that leaves the agent's process group and outlives its parent."""
    child = subprocess.Popen(
        [sys.executable, "-c", "import os, time; os.setsid(); time.sleep(600)"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return child.pid


def permission(request_id: int) -> None:
    send(
        {
            "id": request_id,
            "method": "session/request_permission",
            "params": {
                "sessionId": SESSION,
                "toolCall": {"toolCallId": f"call-{request_id}", "title": "Run it", "kind": "execute"},
                "options": [
                    {"optionId": "a", "name": "Allow", "kind": "allow_once"},
                    {"optionId": "r", "name": "Reject", "kind": "reject_once"},
                ],
            },
        }
    )


def new_session(request: dict) -> None:
    if TRICK == "early-update":
        commands()
    if TRICK == "slow-session":
        time.sleep(float(ARG) if ARG else 2.0)
    if TRICK == "refuse-session":
        send({"id": request["id"], "error": {"code": -32000, "message": "Authentication required"}})
        return
    answer(request, {"sessionId": SESSION})


def prompt(request: dict) -> None:
    match TRICK:
        case "long-line":
            say("x" * (int(ARG) if ARG else 10 * 1024 * 1024))
            say("after the long line")
        case "no-newline":
            say("last words")
            body = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": {"stopReason": "end_turn"}})
            raw(body.encode())
            sys.exit(0)
        case "noise":
            raw(b"Loading model ...\n\n\x1b[31mwarning\x1b[0m\n{not json}\n[1,2]\n42\n")
            say("after the noise")
        case "double-answer":
            say("once")
            answer(request, {"stopReason": "end_turn"})
            send({"id": request["id"], "error": {"code": -32603, "message": "second answer"}})
            return
        case "wrong-id":
            send({"id": 987654, "result": {}})
            send({"id": "not-yours", "result": {}})
            say("after answers to nothing")
        case "cancel-deaf":
            say("you cannot stop me")
            return
        case "exit":
            say("about to leave")
            print("hostile agent: leaving mid turn", file=sys.stderr, flush=True)
            sys.exit(int(ARG) if ARG else 7)
        case "flood":
            for number in range(int(ARG) if ARG else 100_000):
                say(f"{number} ")
        case "flood-unknown":
            for number in range(int(ARG) if ARG else 20_000):
                update({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "?"}}, f"other-{number}")
            say("after the flood")
        case "flood-requests":
            for number in range(int(ARG) if ARG else 2_000):
                permission(10_000 + number)
            return
        case "bad-utf8":
            raw(
                b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"'
                + SESSION.encode()
                + b'","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"a\xff\xfeb"}}}}\n'
            )
        case "grandchild":
            say(f"grandchild {grandchild()} of {os.getpid()}")
        case "unknown-request":
            send({"id": 77, "method": "fs/read_text_file", "params": {"sessionId": SESSION, "path": "/etc/passwd"}})
            reply = read()
            say(f"answered {reply['error']['code']}" if reply and "error" in reply else f"answered {reply}")
        case "two-permissions":
            permission(501)
            permission(502)
            return
        case "late":
            answer(request, {"stopReason": "end_turn"})
            time.sleep(float(ARG) if ARG else 1.0)
            say("late news")
            return
        case "hang":
            return
        case _:
            say("hello")
    answer(request, {"stopReason": "end_turn"})


def read() -> dict | None:
    line = sys.stdin.buffer.readline()
    return json.loads(line) if line else None


def main() -> None:
    open_prompt: dict | None = None
    cancelled = 0
    while (message := read()) is not None:
        method = message.get("method")
        if method == "initialize":
            if TRICK == "wrong-version":
                answer(message, {"protocolVersion": 99})
            elif TRICK == "silent":
                continue
            else:
                answer(message, {"protocolVersion": 1, "agentCapabilities": {}})
        elif method == "session/new":
            new_session(message)
        elif method == "session/prompt":
            open_prompt = message
            prompt(message)
        elif method == "session/cancel":
            if TRICK in ("hang", "flood-requests", "two-permissions") and open_prompt is not None:
                if TRICK == "hang":
                    answer(open_prompt, {"stopReason": "cancelled"})
                    open_prompt = None
        elif method is None and TRICK == "two-permissions":
            outcome = message.get("result", {}).get("outcome", {}).get("outcome")
            cancelled += outcome == "cancelled"
            say(f"permission {message['id']} {outcome}; ")
            if message["id"] == 502 and open_prompt is not None:
                answer(open_prompt, {"stopReason": "cancelled" if cancelled else "end_turn"})
        elif method is not None and "id" in message:
            send({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})


if __name__ == "__main__":
    main()
