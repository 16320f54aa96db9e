"""A shop: tools, tasks and reward of tools.hcl, one JSON-RPC request per line (docs/own_tasks.md)."""
import json
import random
import sys

ITEMS = ["apple", "fig", "grape", "lemon", "melon", "peach", "pear", "plum"]
TOOLS = [{"name": "add", "description": "Puts items into the cart.", "parameters": {"type": "object", "properties": {
    "item": {"type": "string"}, "n": {"type": "integer"}}, "required": ["item", "n"]}}]
episodes = {}  # the task and the cart of each

def hello(protocol):
    return {"episodes": 64, "tools": TOOLS}

def tasks(set, n, seed):
    numbers = [(j, k) for j in range(1, 10) for k in range(1, 10) if ((j + k) % 5 == 0) == (set == "test")]
    rng, out = random.Random(f"{set} {seed}"), []
    for i in range(n):
        want = dict(zip(rng.sample(ITEMS, 2), rng.choice(numbers)))
        calls = [{"name": "add", "arguments": {"item": item, "n": k}} for item, k in want.items()]
        family = "+".join(map(str, sorted(want.values())))
        out.append({"id": f"{set}_{seed}_{i}", "family": family, "want": want, "expert": [calls]})
    return {"tasks": out}

def reset(episode, task, seed):
    episodes[episode] = (task["want"], {})
    return {"user": "Put in " + " and ".join(f"{k} {item}" for item, k in task["want"].items()) + "."}

def step(episode, text, calls):
    return {"results": [add(episodes[episode][1], call) for call in calls]} if calls else {"done": True}

def add(cart, call):
    item, n = call["arguments"].get("item"), call["arguments"].get("n")
    if call["name"] != "add" or item not in ITEMS or not isinstance(n, int):
        return {"error": "want add(item, n)"}
    cart[item] = cart.get(item, 0) + n
    return f"{cart[item]} {item}"

def score(episode):
    want, cart = episodes[episode]
    return {"reward": 1 if cart == want else 0}

def close(episode):
    del episodes[episode]
    return {}

METHODS = {f.__name__: f for f in (hello, tasks, reset, step, score, close)}
for line in sys.stdin:
    request = json.loads(line)
    result = METHODS[request["method"]](**request["params"])
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
