"""An agent: it calls the policy and the tools of each task itself, one JSON-RPC request per line (docs/own_tasks.md)."""
import json
import sys
import urllib.request

def post(url, key, body):
    headers = {"Content-Type": "application/json", "Authorization": "Bearer " + key,
               "Accept": "application/json, text/event-stream"}
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)) as answer:
        return json.load(answer)

def play(task, base_url, api_key, model, mcp_url):
    messages = [{"role": "user", "content": task["user"]}]
    for step in range(4):
        reply = post(base_url + "/chat/completions", api_key,
                     {"model": model, "messages": messages, "tools": task["tools"]})["choices"][0]["message"]
        messages.append(reply)
        if not reply.get("tool_calls"):
            break
        for call in reply["tool_calls"]:
            params = {"name": call["function"]["name"], "arguments": json.loads(call["function"]["arguments"])}
            result = post(mcp_url, api_key, {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})["result"]
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result["content"][0]["text"]})
    return {"text": reply["content"] or ""}

for line in sys.stdin:
    request = json.loads(line)
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": play(**request["params"])}), flush=True)
