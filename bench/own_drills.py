"""Drills as tasks of a Python program: the official classes play them (docs/own_tasks.md). tasks.jsonl beside this file
has the drills; bench/own_drills.sh writes it and compares the time of a training with that on the same built-in drills."""
import ast, copy, importlib, json, sys

CLASSES = {"GorillaFileSystem": "gorilla_file_system", "MessageAPI": "message_api", "TicketAPI": "ticket_api"}
SOURCE = "bfcl_eval.eval_checker.multi_turn_eval.func_source_code."
episodes, rows = {}, {}
for line in open("tasks.jsonl"):
    row = json.loads(line)
    rows[row["id"]] = row


def parsed(text):
    call = ast.parse(text, mode="eval").body
    assert not call.args, text
    return {"name": call.func.id, "arguments": {k.arg: ast.literal_eval(k.value) for k in call.keywords}}


def started(row):
    instances = []
    for name in row["classes"]:
        instance = getattr(importlib.import_module(SOURCE + CLASSES[name]), name)()
        instance._load_scenario(copy.deepcopy(row["initial_config"].get(name, {})), long_context=False)
        instances.append(instance)
    return instances


def execute(instances, call):
    for instance in instances:
        if hasattr(instance, call["name"]):
            try:
                result = getattr(instance, call["name"])(**call["arguments"])
            except Exception as error:
                return f"Error during execution: {error}"
            if isinstance(result, str):
                return result
            return json.dumps(result, default=str) if isinstance(result, dict) else str(result)
    return f"Error during execution: name '{call['name']}' is not defined"


def state(instances):
    return [{k: v for k, v in vars(i).items() if not k.startswith("_")} for i in instances]


def hello(protocol):
    return {"episodes": 64, "tools": [{"name": "cd"}]}


def tasks(set, n, seed):
    return {"tasks": [{"id": id, "family": row["family"], "category": row["category"],
                       "expert": [[parsed(c) for c in t["ground_truth"]] for t in row["turns"]]}
                      for id, row in list(rows.items())[:n]]}


def reset(episode, task, seed):
    row = rows[task["id"]]
    episodes[episode] = {"row": row, "instances": started(row), "turn": 0, "calls": []}
    return {"user": row["turns"][0]["user"]}


def step(episode, text, calls):
    e = episodes[episode]
    if calls:
        e["calls"] += calls
        return {"results": [execute(e["instances"], c) for c in calls]}
    e["turn"] += 1
    if e["turn"] == len(e["row"]["turns"]):
        return {"done": True}
    return {"user": e["row"]["turns"][e["turn"]]["user"]}


def score(episode):
    e = episodes[episode]
    truth = started(e["row"])
    wanted = [parsed(c) for t in e["row"]["turns"] for c in t["ground_truth"]]
    for call in wanted:
        execute(truth, call)
    return {"reward": int(state(truth) == state(e["instances"]) and all(c in e["calls"] for c in wanted))}


def close(episode):
    del episodes[episode]
    return {}


for line in sys.stdin:
    request = json.loads(line)
    result = globals()[request["method"]](**request["params"])
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
