"""An MCP server written with decorators, as most are: with FastMCP 3, the FastMCP of the SDK 1.x, or the MCPServer of 2.x.

usage: decorated.py fastmcp | bundled | mcpserver stdio | http     http prints its origin; it serves /mcp (event streams), /json, /stateless and /sse
"""
import json
import logging
import os
import sys
import warnings
from typing import Any

import anyio
import mcp.types as types
from pydantic import BaseModel, Field

FLAVOUR, MODE = sys.argv[1:]
warnings.filterwarnings("ignore")  # about features that 2026-07-28 deprecates
os.environ["FASTMCP_LOG_ENABLED"] = "false"
if FLAVOUR == "fastmcp":
    from fastmcp import Context, FastMCP
elif FLAVOUR == "bundled":
    from mcp.server.fastmcp import Context, FastMCP
else:
    from mcp.server.mcpserver import Context, MCPServer as FastMCP

TEXT = 'naïve “日本語” 🚪\u2028 \\ "quoted"\t\x7f'
cancelled = []


class Echo(BaseModel):
    """Makes an output schema."""

    value: Any
    text: str = Field(description=TEXT)


class Answer(BaseModel):
    """What a person is asked."""

    name: str
    size: int = 1


def plain(model):
    """A model as it would be sent."""
    return json.dumps(model.model_dump(by_alias=True, mode="json", exclude_none=True), ensure_ascii=False)


def grown() -> str:
    """Came later."""
    return "grown"


def make(**settings):
    """A server with all its parts."""
    server = FastMCP("decorated", instructions="Ask the *decorated*. " + TEXT, **settings)

    @server.tool(title="Écho", description=TEXT)
    def echo(value: Any) -> Echo:
        return Echo(value=value, text=TEXT)

    @server.tool()
    def fail(message: str) -> str:
        raise ValueError(message)

    @server.tool()
    async def count(steps: int, ctx: Context) -> str:
        for step in range(steps):
            await ctx.report_progress(step + 0.5, steps, f"step {step} 🚪")
        return "counted"

    @server.tool()
    async def log(ctx: Context) -> list[int]:
        for say in (ctx.debug, ctx.info, ctx.warning, ctx.error):
            await say(TEXT)
        return [1, 2, 3]

    @server.tool()
    def big(size: int) -> str:
        return "é" * (size // 2)

    @server.tool()
    async def sample(ctx: Context) -> str:
        message = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=TEXT))
        return plain(await ctx.session.create_message(messages=[message], max_tokens=7, system_prompt="be brief", related_request_id=ctx.request_id))

    @server.tool()
    async def elicit(ctx: Context) -> str:
        answer = await ctx.elicit("Who? " + TEXT, Answer)
        return f"{answer.action} {answer.data.name} {answer.data.size}"

    @server.tool()
    async def roots(ctx: Context) -> str:
        return plain(await ctx.session.list_roots())

    @server.tool()
    async def touch(uri: str, ctx: Context) -> str:
        await ctx.session.send_resource_updated(uri)
        return "touched"

    @server.tool()
    async def grow(ctx: Context) -> str:
        server.add_tool(grown)
        await ctx.session.send_tool_list_changed()
        return "grew"

    @server.tool()
    async def shrink(ctx: Context) -> str:
        (server.local_provider if FLAVOUR == "fastmcp" else server).remove_tool("grown")
        await ctx.session.send_tool_list_changed()
        return "shrank"

    @server.tool()
    async def wait(ctx: Context) -> str:
        await ctx.report_progress(0, None, "waiting")
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            cancelled.append("wait")
            raise

    @server.tool(name="cancelled")
    def list_cancelled() -> str:
        found = json.dumps(cancelled)
        cancelled.clear()
        return found

    @server.resource("memo://notes/one", title="Eins", description=TEXT, mime_type="text/plain")
    def one() -> str:
        return TEXT

    @server.resource("memo://blobs/all", mime_type="application/x-all")
    def blob() -> bytes:
        return bytes(range(256))

    @server.resource("memo://notes/{name}")
    def note(name: str) -> str:
        return f"{name} {TEXT}"

    @server.resource("memo://broken/{name}")
    def broken(name: str) -> str:
        raise ValueError("a broken resource")

    @server.prompt(title="Grüß", description=TEXT)
    def greet(who: str, how: str = "well") -> str:
        return f"Hello {who}, {how} {TEXT}"

    return server


def app_of(path, **mode):
    """The ASGI application of a server of its own."""
    if FLAVOUR == "fastmcp":
        return make().http_app(path=path, **mode)
    sse = mode.pop("transport", "http") == "sse"
    if FLAVOUR == "bundled":
        server = make(**mode, **({"sse_path": path} if sse else {"streamable_http_path": path}))
        return server.sse_app() if sse else server.streamable_http_app()
    return make().sse_app(sse_path=path) if sse else make().streamable_http_app(streamable_http_path=path, **mode)


def over_http():
    """Until SIGTERM."""
    from asgi import serve
    from starlette.routing import Mount

    apps = {
        "/mcp": app_of("/mcp"),
        "/json": app_of("/json", json_response=True),
        "/stateless": app_of("/stateless", stateless_http=True),
        "/sse": app_of("/sse", transport="sse"),
    }

    async def by_path(scope, receive, send):
        await apps.get(scope["path"], apps["/sse"])(scope, receive, send)  # or messages to it

    serve([Mount("/", app=by_path)], [lambda _app, app=app: app.router.lifespan_context(app) for app in apps.values()])


if __name__ == "__main__":
    logging.basicConfig(level=logging.CRITICAL)
    if MODE == "stdio":
        print("decorated: starting", file=sys.stderr, flush=True)
        make().run("stdio", **({"show_banner": False} if FLAVOUR == "fastmcp" else {}))
    else:
        over_http()
