"""Serves an ASGI application on a free port of 127.0.0.1, and prints its origin on the first line."""
import socket
from contextlib import AsyncExitStack, asynccontextmanager

import uvicorn
from starlette.applications import Starlette


def serve(routes, lifespans):
    """Runs until SIGTERM. `lifespans` are functions that give an asynchronous context, entered before the first request."""

    @asynccontextmanager
    async def lifespan(app):
        async with AsyncExitStack() as stack:
            for enter in lifespans:
                await stack.enter_async_context(enter(app))
            yield

    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # asyncio sets TCP_NODELAY only if the protocol is named
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    config = uvicorn.Config(Starlette(routes=routes, lifespan=lifespan), log_level="critical", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listener])
