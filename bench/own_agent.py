"""An agent with Python's official packages openai and mcp (docs/own_tasks.md). It plays one episode. The package
openai reads OPENAI_BASE_URL and OPENAI_API_KEY."""
import asyncio, json, os

import mcp, openai


async def main():
    task, policy = json.loads(os.environ["RCGRPO_TASK"]), openai.AsyncOpenAI()
    messages = [{"role": "user", "content": task["user"]}]
    async with mcp.Client(os.environ["RCGRPO_MCP_URL"]) as tools:
        offered = {tool.name for tool in (await tools.list_tools()).tools}
        assert offered == {tool["function"]["name"] for tool in task["tools"]}, offered
        while True:
            answer = await policy.chat.completions.create(
                model=os.environ["RCGRPO_MODEL"], messages=messages, tools=task["tools"])
            reply = answer.choices[0].message
            messages.append(reply)
            if not reply.tool_calls:
                return reply.content
            for call in reply.tool_calls:
                result = await tools.call_tool(call.function.name, json.loads(call.function.arguments))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result.content[0].text})
            if call.function.name == "done":
                return ""


print(json.dumps({"text": asyncio.run(main())}))
