"""A client of the Python SDK, 1.x or 2.x, or of FastMCP, that uses all that a server offers and prints what it saw on the wire.

usage: client.py < TARGETS     TARGETS: a JSON list of {"name", "transport": "stdio" | "http" | "sse", "command", "args" | "url", "client": "fastmcp" if not the SDK,
                               "tools": prefix of names, "uris": prefix of URIs, "quiet": answers are JSON, "stateless", "calls" and "prompts": lists of [label, name, arguments]}

It prints a JSON object: name of the target → what was seen, by step. The same steps run with every target, so what is seen through the
gateway can be compared with what is seen without it.
"""
import json
import logging
import sys
import warnings
from contextlib import asynccontextmanager, suppress

import anyio
import mcp.types as types
from mcp import ClientSession, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

try:
    from mcp import McpError
    from pydantic import AnyUrl as URL
except ImportError:  # 2.x
    from mcp import MCPError as McpError
    URL = str

warnings.filterwarnings("ignore")  # about features that end with 1.x
TEXT = 'ünï “日本語” 🚪\u2029 \\ "quoted"\t\x7f'
STEP_SECONDS = 30
CLIENT = types.Implementation(name="the-client", version="9.8.7")
ROOTS = [types.Root(uri="file:///srv/a%20b", name=TEXT), types.Root(uri="file:///tmp")]
ANSWER = {"name": TEXT, "size": 3}
VALUES = [TEXT, {"b": 1, "a": [None, True, -0.0, 1e21, 12345678901234567890, 0.1]}, [], "", None, "x" * 300_000]


class Tap:
    """A stream of a session, in either direction; `record` sees each message first."""

    def __init__(self, stream, record):
        self.stream, self.record = stream, record

    async def __aenter__(self):
        await self.stream.__aenter__()
        return self

    async def __aexit__(self, *error):
        return await self.stream.__aexit__(*error)

    def __aiter__(self):
        return self

    async def __anext__(self):
        item = await self.stream.__anext__()
        self.record(item)
        return item

    async def send(self, item):
        self.record(item)
        await self.stream.send(item)

    async def aclose(self):
        await self.stream.aclose()


def wire(item):
    """A message as it is on the wire."""
    return item.message.model_dump(by_alias=True, mode="json", exclude_unset=True)


class Seen:
    """The messages from the server, and the ids of the sent requests."""

    def __init__(self):
        self.steps, self.notifications, self.questions, self.answers, self.sent = {}, {}, {}, {}, []
        self.arrived = anyio.Event()

    def send(self, item):
        message = wire(item)
        if "method" in message and "id" in message:
            self.sent.append(message["id"])

    def answer_since(self, sent):
        """The answer to the first request after `sent` others; the SDK may have sent further requests."""
        return self.answers.get(self.sent[sent]) if sent < len(self.sent) else None

    def record(self, item):
        if isinstance(item, Exception):
            self.steps["exception on the way"] = repr(item)
            return
        message = wire(item)
        if "method" not in message:
            self.answers[message["id"]] = {key: message[key] for key in ("result", "error") if key in message}
        elif "id" in message:
            self.questions.setdefault(message["method"], []).append(message.get("params"))
        else:
            params = message.get("params")
            if params and params.get("progressToken") in self.sent:
                params["progressToken"] = "the id of a request"
            self.notifications.setdefault(message["method"], []).append(params)
        self.arrived.set()
        self.arrived = anyio.Event()

    async def until(self, method, number):
        """Waits for so many notifications of a method in all."""
        while len(self.notifications.get(method, ())) < number:
            await self.arrived.wait()


def sampled(params):
    """The answer of the model."""
    asked = params.model_dump(by_alias=True, mode="json")
    text = f"{asked['systemPrompt']}: {asked['messages'][0]['content']['text']} {TEXT}"
    return types.CreateMessageResult.model_validate({"role": "assistant", "content": {"type": "text", "text": text}, "model": "tiny", "stopReason": "endTurn"})


async def on_sampling(_context, params):
    return sampled(params)


async def on_elicitation(_context, _params):
    return types.ElicitResult(action="accept", content=ANSWER)


async def on_roots(_context):
    return types.ListRootsResult(roots=ROOTS)


async def ignore(*_args):
    pass


@asynccontextmanager
async def by_sdk(target, seen):
    """A session of the SDK."""
    if target["transport"] == "stdio":
        opened = stdio_client(StdioServerParameters(command=target["command"], args=target["args"], env=target.get("env")))
    elif target["transport"] == "sse":
        opened = sse_client(target["url"])
    else:
        opened = streamable_http_client(target["url"])
    async with opened as (read, write, *_):
        async with ClientSession(Tap(read, seen.record), Tap(write, seen.send), sampling_callback=on_sampling, elicitation_callback=on_elicitation,
                                 list_roots_callback=on_roots, message_handler=ignore, client_info=CLIENT) as session:
            await session.initialize()
            yield session


@asynccontextmanager
async def by_fastmcp(target, seen):
    """The session of a client of FastMCP, which opens it by itself."""
    import fastmcp
    from fastmcp.client.transports import SSETransport, StdioTransport, StreamableHttpTransport, http, sse, stdio

    class Tapped(ClientSession):
        """A session that is listened to."""

        def __init__(self, read, write, **more):
            super().__init__(Tap(read, seen.record), Tap(write, seen.send), **more)

    for module in (http, sse, stdio):
        module.ClientSession = Tapped
    if target["transport"] == "stdio":
        transport = StdioTransport(target["command"], target["args"], keep_alive=False)
    else:
        transport = (SSETransport if target["transport"] == "sse" else StreamableHttpTransport)(target["url"])

    async def sampling(_messages, params, _context):
        return sampled(params)

    async def elicitation(_message, _type, _params, _context):
        return fastmcp.client.elicitation.ElicitResult(action="accept", content=ANSWER)

    async with fastmcp.Client(transport, sampling_handler=sampling, elicitation_handler=elicitation, roots=ROOTS, client_info=CLIENT) as client:
        yield client.session


class Visit:
    """One run of all steps."""

    def __init__(self, target, session, seen):
        self.target, self.session, self.seen = target, session, seen
        self.listed = set()

    def tool(self, name):
        return self.target.get("tools", "") + name

    def uri(self, uri):
        return URL(self.target.get("uris", "") + uri)

    async def step(self, name, action, *args, **more):
        """Runs one request, and records the answer on the wire, or the reason for its absence."""
        sent, refused = len(self.seen.sent), None
        try:
            with anyio.fail_after(STEP_SECONDS):
                await action(*args, **more)
        except McpError as error:
            refused = error.error.message
        except Exception as error:  # the SDK does not accept the answer, or received no answer
            refused = type(error).__name__
        answer = self.seen.answer_since(sent) or {}
        expected = answer.get("error", {}).get("message")
        self.seen.steps[name] = answer if refused == expected else {"exception": refused, "answer": answer}
        return answer

    async def call(self, label, name, arguments=None, **more):
        await self.step(label, self.session.call_tool, self.tool(name), arguments or {}, **more)

    async def has(self, label, name, arguments=None, **more):
        """A call, if the server has this tool."""
        if self.tool(name) in self.listed:
            await self.call(label, name, arguments, **more)

    async def notified(self, method, number):
        """Waits for notifications, and leaves it to the comparison to find that they are missing."""
        with anyio.move_on_after(STEP_SECONDS):
            await self.seen.until(method, number)

    async def list(self, kind, method):
        """All pages, as one list."""
        items, cursor = [], None
        while True:
            answer = await self.step(kind, method, params=types.PaginatedRequestParams(cursor=cursor))
            if "result" not in answer:
                return []
            result = answer["result"]
            key = next(key for key in result if isinstance(result[key], list))
            items += result[key]
            cursor = result.get("nextCursor")
            if not cursor:
                self.seen.steps[kind] = {key: items, "more": {name: value for name, value in result.items() if name not in (key, "nextCursor")}}
                return items

    async def run(self):
        await self.step("ping", self.session.send_ping)
        self.listed = {tool["name"] for tool in await self.list("tools", self.session.list_tools)}
        await self.list("resources", self.session.list_resources)
        await self.list("templates", self.session.list_resource_templates)
        self.listed |= {prompt["name"] for prompt in await self.list("prompts", self.session.list_prompts)}
        await self.calls()
        await self.reads()
        if not self.target.get("quiet") and not self.target.get("stateless"):
            await self.news()
            await self.questions()
            await self.changes()
            await self.cancel()
        if self.seen.steps["initialize"]["result"]["capabilities"].get("tasks") and self.tool("job") in self.listed:
            await self.tasks()

    async def calls(self):
        for index, value in enumerate(VALUES):
            await self.has(f"echo {index}", "echo", {"value": value})
        await self.has("blocks", "blocks")
        await self.has("failing", "fail", {"message": TEXT})
        await self.has("invalid", "echo")
        await self.call("unknown", "nonesuch")
        await self.has("meta", "meta", meta={"trace/id": TEXT, "n": 1.5})
        await self.has("who", "who")
        await self.has("big", "big", {"size": 400_000})
        for label, name, arguments in self.target.get("calls", ()):
            await self.call(label, name, arguments)
        for label, name, arguments in self.target.get("prompts", ()):
            await self.step(label, self.session.get_prompt, self.tool(name), arguments)

    async def reads(self):
        for uri in ("memo://notes/one", "memo://notes/%E6%97%A5", "memo://blobs/a%20b?q=1#f", "memo://missing/x", "memo://broken/x"):
            await self.step(f"read {uri}", self.session.read_resource, self.uri(uri))
        await self.step("unknown prompt", self.session.get_prompt, self.tool("nonesuch"))
        prompt = types.PromptReference(type="ref/prompt", name=self.tool("greet"))
        template = types.ResourceTemplateReference(type="ref/resource", uri=str(self.target.get("uris", "")) + "memo://notes/{name}")
        if self.tool("greet") in self.listed:
            await self.step("prompt", self.session.get_prompt, self.tool("greet"), {"who": TEXT})
            await self.step("complete prompt", self.session.complete, prompt, {"name": "who", "value": TEXT}, {"how": "loud"})
        await self.step("complete template", self.session.complete, template, {"name": "name", "value": ""})

    async def news(self):
        await self.has("count", "count", {"steps": 3}, progress_callback=ignore)
        if self.tool("count") in self.listed:
            await self.notified("notifications/progress", 3)
        if self.tool("log") in self.listed:
            await self.step("level", self.session.set_logging_level, "debug")
            await self.call("log", "log")
            await self.notified("notifications/message", 4)
        if self.tool("touch") in self.listed:
            uri = self.uri("memo://notes/one")
            if "result" in await self.step("subscribe", self.session.subscribe_resource, uri):
                await self.call("touch", "touch", {"uri": "memo://notes/one"})
                await self.notified("notifications/resources/updated", 1)
                await self.step("unsubscribe", self.session.unsubscribe_resource, uri)

    async def questions(self):
        for name in ("sample", "elicit", "roots", "ping"):
            await self.has(f"asks {name}", name)

    async def changes(self):
        if self.tool("grow") not in self.listed:
            return
        await self.call("grow", "grow")
        await self.call("grown", "grown")
        await self.list("tools with grown", self.session.list_tools)
        await self.notified("notifications/tools/list_changed", 1)
        await self.call("shrink", "shrink")
        await self.list("tools without grown", self.session.list_tools)
        await self.notified("notifications/tools/list_changed", 2)

    async def cancel(self):
        """The server reports whether it received the cancellation. Without the gateway, an answer to the cancelled call arrives."""
        if self.tool("wait") not in self.listed:
            return
        waiting, ended = anyio.Event(), anyio.Event()

        async def begun(*_args):
            waiting.set()

        async def wait():
            with suppress(McpError):
                await self.session.call_tool(self.tool("wait"), {}, progress_callback=begun)
            ended.set()

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            with anyio.fail_after(STEP_SECONDS):
                await waiting.wait()
            request = self.seen.sent[-1]
            told = types.CancelledNotification.model_validate({"method": "notifications/cancelled", "params": {"requestId": request, "reason": "enough"}})
            await self.session.send_notification(types.ClientNotification(told) if isinstance(types.ClientNotification, type) else told)
            with anyio.move_on_after(STEP_SECONDS):
                while '["wait"]' not in json.dumps(self.seen.steps.get("cancelled")).replace("\\", ""):
                    await self.call("cancelled", "cancelled")
            if "caller" not in self.target:  # the session of the SDK may end if its own call is given up while the answer arrives
                with anyio.move_on_after(STEP_SECONDS):
                    await ended.wait()
            group.cancel_scope.cancel()

    async def tasks(self):
        jobs = self.session.experimental
        for label, fails in (("done", False), ("failed", True)):
            made = await self.step(f"task {label}", jobs.call_tool_as_task, self.tool("job"), {"fails": fails})
            task = made["result"]["task"]["taskId"]
            await self.step(f"task {label} result", jobs.get_task_result, task, types.CallToolResult)
            await self.step(f"task {label} status", jobs.get_task, task)
        await self.step("task unknown", jobs.get_task, "nonesuch")
        await self.step("tasks", jobs.list_tasks)
        if not self.target.get("stateless"):
            await self.notified("notifications/tasks/status", 4)


async def visit(target):
    """All steps with one target."""
    seen = Seen()
    try:
        async with (by_fastmcp if target.get("client") == "fastmcp" else by_sdk)(target, seen) as session:
            seen.steps["initialize"] = seen.answer_since(0)
            await Visit(target, session, seen).run()
    except Exception as error:
        logging.exception("%s", target["name"])
        seen.steps["exception"] = f"{type(error).__name__}: {error}"
    return {"steps": seen.steps, "notifications": seen.notifications, "questions": seen.questions}


async def main():
    """One target after the other: servers over HTTP are the same process for all."""
    json.dump({target["name"]: await visit(target) for target in json.load(sys.stdin)}, sys.stdout)


logging.basicConfig(level=logging.ERROR)
anyio.run(main)
