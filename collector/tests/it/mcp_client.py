"""A client of MCP, by its official SDK: lists the tools, calls one, and prints what it got.

mcp_client.py MODE URL TOKEN, or mcp_client.py MODE COMMAND ARGUMENT…
"""

import asyncio
import json
import sys

from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client


async def main(mode, target, arguments):
    if target.startswith("http"):
        http = create_mcp_http_client(headers={"Authorization": f"Bearer {arguments[0]}"})
        server = streamable_http_client(target, http_client=http)
    else:
        server = StdioServerParameters(command=target, args=arguments)
    async with Client(server, mode=mode) as client:
        tools = await client.list_tools()
        # The SDK compares the answer with the tool's schema.
        found = await client.call_tool("operations", {"top": 2})
        failed = await client.call_tool("search", {"formula": "{"})
    print(
        json.dumps(
            {
                "tools": [tool.name for tool in tools.tools],
                "answer": found.structured_content,
                "is_error": [found.is_error, failed.is_error],
            }
        )
    )


asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
