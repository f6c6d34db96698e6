"""The client of the SDK 2.x as it connects by default: it asks for 2026-07-28 first, and falls back to `initialize`.

usage: probe.py URL-OF-HTTP URL-OF-SSE COMMAND ARGUMENT...     prints a JSON list: for HTTP, HTTP+SSE and stdio, the revision and the number of tools
"""
import json
import sys
import warnings

import anyio
from mcp import StdioServerParameters
from mcp.client import Client
from mcp.client.sse import sse_client

warnings.filterwarnings("ignore")
WAIT_SECONDS = 30


async def main():
    """One connection after the other."""
    http, sse, command, *args = sys.argv[1:]
    seen = []
    for server in (http, sse_client(sse), StdioServerParameters(command=command, args=args)):
        with anyio.fail_after(WAIT_SECONDS):
            async with Client(server) as client:
                seen.append([client.session.protocol_version, len((await client.list_tools()).tools)])
    print(json.dumps(seen))


anyio.run(main)
