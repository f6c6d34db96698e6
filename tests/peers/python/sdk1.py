"""An MCP server with all features of the low-level server of the SDK 1.x.

usage: sdk1.py stdio | http     http prints its origin; it serves /mcp (event streams), /json, /stateless and /sse (HTTP+SSE)
"""
import json
import logging
import sys
import warnings
from contextlib import nullcontext

import anyio
import mcp.types as types
from mcp.server.lowlevel import Server
from mcp.server.lowlevel.helper_types import ReadResourceContents
from mcp.shared.exceptions import McpError

warnings.filterwarnings("ignore", category=DeprecationWarning)  # about tasks, which end with 1.x
TEXT = 'naïve “日本語” 🚪\u2028 \\ "quoted"\t\x7f'
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PAGE = 3

server = Server("python-sdk", version="1.2.3", instructions="Ask the *Python* SDK. " + TEXT, website_url="https://example.com/")
tasks = server.experimental.enable_tasks()
cancelled = []
grown = []
subscribed = []

OBJECT = {"type": "object"}


def tool(name, properties=None, **more):
    """A tool whose arguments are all required."""
    properties = properties or {}
    return types.Tool(name=name, inputSchema={**OBJECT, "properties": properties, "required": list(properties)}, **more)


STRING, INTEGER = {"type": "string"}, {"type": "integer"}
TOOLS = [
    tool("echo", {"value": {}}, title="Écho", description=TEXT, outputSchema={**OBJECT, "properties": {"value": {}}, "required": ["value"]},
         annotations=types.ToolAnnotations(title="Echo", readOnlyHint=True, openWorldHint=False), _meta={"x/y": [1, 2.50, None]},
         icons=[types.Icon(src="data:image/png;base64," + PIXEL, mimeType="image/png", sizes=["1x1"])]),
    tool("blocks"),
    tool("fail", {"message": STRING}),
    tool("meta"),
    tool("who"),
    tool("count", {"steps": INTEGER}),
    tool("log"),
    tool("big", {"size": INTEGER}),
    tool("sample"),
    tool("elicit"),
    tool("roots"),
    tool("ping"),
    tool("touch", {"uri": STRING}),
    tool("grow"),
    tool("shrink"),
    tool("wait"),
    tool("cancelled"),
    tool("job", {"fails": {"type": "boolean"}}, execution=types.ToolExecution(taskSupport="optional")),
]


def plain(model):
    """A model as it would be sent."""
    return model.model_dump(by_alias=True, mode="json", exclude_none=True) if model else None


def said(value):
    """A text block: strings as they are, everything else as JSON."""
    return [types.TextContent(type="text", text=value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))]


@server.list_tools()
async def list_tools(request: types.ListToolsRequest) -> types.ListToolsResult:
    """In pages."""
    tools = TOOLS + grown
    start = int(request.params.cursor or 0) if request and request.params else 0
    return types.ListToolsResult(tools=tools[start:start + PAGE], nextCursor=str(start + PAGE) if start + PAGE < len(tools) else None)


async def echo(args, _ctx):
    return said(TEXT), {"value": args["value"]}


async def blocks(_args, _ctx):
    note = types.TextResourceContents(uri="memo://notes/one", mimeType="text/plain", text=TEXT)
    return types.CallToolResult(
        content=[
            types.TextContent(type="text", text=TEXT, annotations=types.Annotations(audience=["user"], priority=0.25), _meta={"a": 1}),
            types.ImageContent(type="image", data=PIXEL, mimeType="image/png"),
            types.AudioContent(type="audio", data="AAAA", mimeType="audio/wav"),
            types.EmbeddedResource(type="resource", resource=note),
            types.ResourceLink(type="resource_link", uri="memo://notes/one", name="one", size=3),
            types.ResourceLink(type="resource_link", uri="https://example.com/two", name="two"),
        ],
        _meta={"of": "the result"},
    )


async def fail(args, _ctx):
    raise ValueError(args["message"])


async def meta(_args, ctx):
    found = plain(ctx.meta) or {}
    return said({"has_token": "progressToken" in found, **{key: value for key, value in found.items() if key != "progressToken"}})


async def who(_args, ctx):
    return said(plain(ctx.session.client_params))


async def count(args, ctx):
    for step in range(args["steps"]):
        await ctx.session.send_progress_notification(ctx.meta.progressToken, step + 0.5, args["steps"], f"step {step} 🚪", str(ctx.request_id))
    return said("counted")


async def log(_args, ctx):
    for level in ("debug", "warning", "emergency"):
        await ctx.session.send_log_message(level, {"at": level, "text": TEXT}, "a.logger", ctx.request_id)
    await ctx.session.send_log_message("error", TEXT, None, ctx.request_id)
    return said("logged")


async def big(args, _ctx):
    return said("é" * (args["size"] // 2))


async def sample(_args, ctx):
    message = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=TEXT))
    return said(plain(await ctx.session.create_message(
        [message], max_tokens=7, system_prompt="be brief", temperature=0.5, stop_sequences=["."], metadata={"k": [None]},
        model_preferences=types.ModelPreferences(hints=[types.ModelHint(name="small")], speedPriority=0.9), related_request_id=ctx.request_id)))


async def elicit(_args, ctx):
    schema = {**OBJECT, "properties": {"name": {"type": "string", "title": "Ваше имя"}, "size": {"type": "integer", "minimum": 1}}, "required": ["name"]}
    return said(plain(await ctx.session.elicit_form("Who? " + TEXT, schema, ctx.request_id)))


async def roots(_args, ctx):
    return said(plain(await ctx.session.list_roots()))


async def ping(_args, ctx):
    return said(plain(await ctx.session.send_ping()))


async def touch(args, ctx):
    await ctx.session.send_resource_updated(args["uri"])
    return said("touched")


async def grow(_args, ctx):
    grown.append(tool("grown", description="came later"))
    await ctx.session.send_tool_list_changed()
    return said("grew")


async def shrink(_args, ctx):
    grown.clear()
    await ctx.session.send_tool_list_changed()
    return said("shrank")


async def grown_tool(_args, _ctx):
    return said("grown" if grown else "not there")


async def wait(_args, ctx):
    await ctx.session.send_progress_notification(ctx.meta.progressToken, 0, None, "waiting", str(ctx.request_id))
    try:
        await anyio.sleep_forever()
    except anyio.get_cancelled_exc_class():
        cancelled.append("wait")
        raise


async def list_cancelled(_args, _ctx):
    found = list(cancelled)
    cancelled.clear()
    return said(found)


async def job(args, ctx):
    async def work(task):
        await task.update_status("half way " + TEXT)
        if args["fails"]:
            raise ValueError("the job failed")
        return types.CallToolResult(content=said("done " + TEXT))

    return await ctx.experimental.run_task(work) if ctx.experimental.is_task else said("done at once")


HANDLERS = dict(echo=echo, blocks=blocks, fail=fail, meta=meta, who=who, count=count, log=log, big=big, sample=sample, elicit=elicit, roots=roots, ping=ping,
                touch=touch, grow=grow, shrink=shrink, grown=grown_tool, wait=wait, cancelled=list_cancelled, job=job)


@server.call_tool()
async def call_tool(name, arguments):
    """An unknown tool is a failed call, as the SDK does it."""
    if name not in HANDLERS:
        raise ValueError(f"Unknown tool: {name}")
    return await HANDLERS[name](arguments, server.request_context)


@server.list_resources()
async def list_resources():
    """One text, one blob."""
    return [
        types.Resource(uri="memo://notes/one", name="one", title="Eins", description=TEXT, mimeType="text/plain", size=9,
                       annotations=types.Annotations(audience=["assistant"], priority=1.0)),
        types.Resource(uri="memo://blobs/a%20b?q=1#f", name="blob"),
    ]


@server.list_resource_templates()
async def list_templates():
    """One."""
    return [types.ResourceTemplate(uriTemplate="memo://notes/{name}", name="note", description="any note")]


@server.read_resource()
async def read_resource(uri):
    """What the URI says, in two parts; blobs are bytes."""
    if "missing" in str(uri):
        raise McpError(types.ErrorData(code=-32002, message=f"Resource not found: {uri}", data={"uri": str(uri)}))
    if "broken" in str(uri):
        raise ValueError("a broken resource")
    if "blobs" in str(uri):
        return [ReadResourceContents(content=bytes(range(256)), mime_type="application/x-all")]
    return [ReadResourceContents(content=f"{uri} {TEXT}", mime_type="text/plain", meta={"part": part}) for part in (1, 2)]


@server.subscribe_resource()
async def subscribe(uri):
    """Remembers it."""
    subscribed.append(str(uri))


@server.unsubscribe_resource()
async def unsubscribe(uri):
    """Forgets it."""
    subscribed.remove(str(uri))


@server.list_prompts()
async def list_prompts():
    """One with arguments."""
    return [types.Prompt(name="greet", title="Grüß", description=TEXT, arguments=[types.PromptArgument(name="who", description="whom", required=True),
                                                                                types.PromptArgument(name="how")])]


@server.get_prompt()
async def get_prompt(name, arguments):
    """Text and an embedded resource."""
    if name != "greet":
        raise McpError(types.ErrorData(code=types.INVALID_PARAMS, message=f"Unknown prompt: {name}"))
    note = types.TextResourceContents(uri="memo://notes/one", text=TEXT)
    return types.GetPromptResult(description="a greeting", messages=[
        types.PromptMessage(role="user", content=types.TextContent(type="text", text=f"Hello {arguments['who']} {TEXT}")),
        types.PromptMessage(role="assistant", content=types.EmbeddedResource(type="resource", resource=note)),
    ])


@server.completion()
async def complete(ref, argument, context):
    """Says what it was asked."""
    about = plain(ref) | {"context": plain(context)}
    return types.Completion(values=[json.dumps(about, sort_keys=True), argument.name, argument.value + TEXT], total=12, hasMore=True)


level = []


@server.set_logging_level()
async def set_level(wanted):
    """Nothing is filtered: the client shows what comes."""
    level[:] = [wanted]


async def over_stdio():
    """Until the end of standard input."""
    from mcp.server.stdio import stdio_server

    print("python-sdk: starting", file=sys.stderr, flush=True)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options(notifications()))


def notifications():
    """All lists may change."""
    from mcp.server.lowlevel import NotificationOptions

    return NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)


def over_http():
    """Until SIGTERM."""
    from asgi import serve
    from mcp.server.sse import SseServerTransport
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from starlette.responses import Response
    from starlette.routing import Mount, Route

    options = server.create_initialization_options(notifications())
    server.create_initialization_options = lambda *_args, **_more: options
    managers = {
        "/mcp": StreamableHTTPSessionManager(server),
        "/json": StreamableHTTPSessionManager(server, json_response=True),
        "/stateless": StreamableHTTPSessionManager(server, stateless=True),
    }
    sse = SseServerTransport("/messages/")

    class Endpoint:
        """A manager as an application: a class, so that Starlette passes all HTTP methods to it."""

        def __init__(self, manager):
            self.manager = manager

        async def __call__(self, scope, receive, send):
            await self.manager.handle_request(scope, receive, send)

    async def open_sse(request):
        async with sse.connect_sse(request.scope, request.receive, request._send) as (read, write):
            await server.run(read, write, options)
        return Response()

    run_tasks = tasks.run()  # once for all sessions: the SDK would end it with the first of them
    tasks.run = nullcontext
    routes = [Route(path, Endpoint(manager)) for path, manager in managers.items()]
    routes += [Route("/sse", open_sse), Mount("/messages/", app=sse.handle_post_message)]
    serve(routes, [lambda _app: run_tasks, *(lambda _app, manager=manager: manager.run() for manager in managers.values())])


if __name__ == "__main__":
    logging.basicConfig(level=logging.CRITICAL)  # the SDK logs the end of a session as an error
    if sys.argv[1] == "stdio":
        anyio.run(over_stdio)
    else:
        over_http()
