"""Plays ground truths with the official MCP client: arguments are a URL with a path per task, a file with the calls,
results and verdict of each task, and the words of a server on standard input and output, of the first task."""
import asyncio, json, sys

import mcp

url, path = sys.argv[1:3]
server = mcp.StdioServerParameters(command=sys.argv[3], args=sys.argv[4:])


async def call(client, name, arguments):
    result = await client.call_tool(name, arguments)
    return result.content[0].text, bool(result.is_error)


async def play(row, address):
    async with mcp.Client(address) as client:
        for turn in row["turns"]:
            request, _ = await call(client, "next_request", {})
            assert request == turn["user"], (row["id"], request)
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert names >= set(turn["revealed"]), (row["id"], turn["revealed"])
            for c in turn["calls"]:
                got = await call(client, c["name"], c["arguments"])
                assert got == (c["text"], c["error"]), (row["id"], c, got)
        verdict, _ = await call(client, "next_request", {})
        assert json.loads(verdict) == row["verdict"], (row["id"], verdict)


async def main():
    rows = [json.loads(line) for line in open(path)]
    await play(rows[0], server)
    limit = asyncio.Semaphore(8)

    async def one(row):
        async with limit:
            await play(row, url + row["id"])

    await asyncio.gather(*map(one, rows))
    print(f"{len(rows)} tasks, {sum(len(t['calls']) for r in rows for t in r['turns'])} calls: results and verdicts are equal")


asyncio.run(main())
