"""Records the requests that the official handlers of BFCL send to API models.

usage: bench/api_requests.py PACKAGE OUT [invented.jsonl|tasks.txt]

PACKAGE is a folder with a copy of the package bfcl_eval 2026.3.23 and its data (its import creates folders there). The
vendors' packages openai, anthropic and google-genai must be installed. Each handler class runs the official loop
against a server on loopback that records the bodies and plays scripted replies. The script writes to the folder OUT:

  invented.jsonl  conversations about invented tools: requests of the user, replies, and bodies of the requests, each
                  without the fields that equal those of the body before it; SYSTEM stands for the system prompt
  tasks.txt       for each of the 800 multi-turn tasks a digest of the bodies of its conversation, in one column per
                  API and mode: the SHA-256 of their canonical JSON, one per line, 16 hexadecimal digits
"""
import ast, contextlib, copy, hashlib, inspect, io, json, os, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from unittest.mock import MagicMock

package, out = sys.argv[1:3]
sys.path.insert(0, package)
for name in ["dotenv", "tqdm", "filelock", "numpy", "pandas", "tabulate", "huggingface_hub", "requests", "overrides"] + [
        "bfcl_eval.model_handler.parser." + p + "_parser" for p in ["java", "js", "json", "xml"]]:
    try:
        __import__(name)
    except ImportError:
        sys.modules[name] = type("Stub", (MagicMock,), {"__path__": []})()
if isinstance(sys.modules.get("overrides"), MagicMock):
    sys.modules["overrides"].override = lambda f: f

replies, bodies = [], []


class Recorder(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True

    def do_POST(self):
        bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        body = json.dumps(replies[len(bodies) - 1]).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"
for vendor in ["OPENAI", "ANTHROPIC", "GOOGLE", "GLM"]:
    os.environ[vendor + "_API_KEY"] = "none"
os.environ.update(OPENAI_BASE_URL=url + "/v1", ANTHROPIC_BASE_URL=url, GOOGLE_GEMINI_BASE_URL=url)

from bfcl_eval.constants.executable_backend_config import CLASS_FILE_PATH_MAPPING
from bfcl_eval.constants.default_prompts import DEFAULT_SYSTEM_PROMPT_FORMAT
from bfcl_eval.model_handler import base_handler
from bfcl_eval.model_handler.api_inference.claude import ClaudeHandler
from bfcl_eval.model_handler.api_inference.gemini import GeminiHandler
from bfcl_eval.model_handler.api_inference.glm import GLMAPIHandler
from bfcl_eval.model_handler.api_inference.openai_completion import OpenAICompletionsHandler
from bfcl_eval.model_handler.api_inference.openai_response import OpenAIResponsesHandler
from bfcl_eval.model_handler.utils import formulate_system_prompt
from bfcl_eval.utils import load_dataset_entry, load_ground_truth_entry
from openai import OpenAI

MODELS = [  # the paper's five, and one of the API openai-chat
    ("anthropic", "claude-opus-4-5-20251101", ClaudeHandler),
    ("anthropic", "claude-sonnet-4-5-20250929", ClaudeHandler),
    ("openai", "gpt-5.2-2025-12-11", OpenAIResponsesHandler),
    ("google", "gemini-3-pro-preview", GeminiHandler),
    ("glm", "glm-4.7", GLMAPIHandler),
    ("openai-chat", "gpt-4.1-2025-04-14", OpenAICompletionsHandler),
    ("openai", "gpt-4.1-2025-04-14", OpenAIResponsesHandler),
    ("glm", "glm-4.6", GLMAPIHandler),
]
DIGESTED = [0, 2, 3, 4, 5]


def response(api, model, n, text, calls):
    """The body of reply n: a text, or calls as (name, arguments)."""
    if api == "openai":
        output = [{"id": f"rs_{n}", "type": "reasoning", "summary": [{"type": "summary_text", "text": "I think."}],
                   "encrypted_content": "c2VjcmV0"}]
        if text:
            output.append({"id": f"msg_{n}", "type": "message", "role": "assistant", "status": "completed",
                           "content": [{"type": "output_text", "text": text, "annotations": []}]})
        for i, (name, arguments) in enumerate(calls):
            output.append({"id": f"fc_{n}_{i}", "type": "function_call", "call_id": f"call_{n}_{i}", "name": name,
                           "arguments": arguments, "status": "completed"})
        return {"id": f"resp_{n}", "object": "response", "created_at": 1764000000, "status": "completed", "model": model,
                "output": output, "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
                "usage": {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 10,
                          "output_tokens_details": {"reasoning_tokens": 5}, "total_tokens": 110}}
    if api in ("openai-chat", "glm"):
        message = {"role": "assistant", "content": text or None}
        if api == "glm":
            message["reasoning_content"] = "I think."
        if calls:
            message["tool_calls"] = [{"id": f"call_{n}_{i}", "type": "function",
                                      "function": {"name": name, "arguments": arguments}}
                                     for i, (name, arguments) in enumerate(calls)]
        return {"id": f"chatcmpl_{n}", "object": "chat.completion", "created": 1764000000, "model": model,
                "choices": [{"index": 0, "finish_reason": "tool_calls" if calls else "stop", "message": message}],
                "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}}
    if api == "anthropic":
        content = [{"type": "text", "text": text}] if text else []
        for i, (name, arguments) in enumerate(calls):
            content.append({"type": "tool_use", "id": f"call_{n}_{i}", "name": name, "input": json.loads(arguments)})
        return {"id": f"msg_{n}", "type": "message", "role": "assistant", "model": model, "content": content,
                "stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None,
                "usage": {"input_tokens": 100, "output_tokens": 10}}
    parts = [{"text": "I think.", "thought": True}]
    if text:
        parts.append({"text": text, "thoughtSignature": "c2lnbmVk"})
    for name, arguments in calls:
        parts.append({"functionCall": {"name": name, "args": json.loads(arguments)}, "thoughtSignature": "c2lnbmVk"})
    return {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}],
            "usageMetadata": {"promptTokenCount": 100, "candidatesTokenCount": 10, "thoughtsTokenCount": 5,
                              "totalTokenCount": 115}, "modelVersion": model, "responseId": f"r{n}"}


def handler(api, model, make, mode):
    h = make(model_name=model, temperature=0.001, registry_name=model + ("-FC" if mode == "fc" else ""),
             is_fc_model=mode == "fc")
    if api == "glm":  # its base URL is fixed
        h.client = OpenAI(api_key="none", base_url=url)
    return h


def play(h, entry, script):
    """Runs the official loop and returns the bodies of its requests."""
    replies[:], bodies[:] = script, []
    with contextlib.redirect_stdout(io.StringIO()):
        h.inference(copy.deepcopy(entry), False, True)
    return list(bodies)


def bare(calls):
    """Calls as a model without tools writes them."""
    text = ", ".join(f"{name}({', '.join(f'{k}={v!r}' for k, v in json.loads(args).items())})" for name, args in calls)
    return f"[{text}]"


# Conversations about invented tools.
BAKE = {"name": "bake", "description": "Bake a cake.", "parameters": {"type": "dict", "required": ["flour"], "properties": {
    "flour": {"type": "float", "description": "Kilograms; 0 < flour ≤ 5 & dry."},
    "style": {"type": "string", "description": "Style.", "enum": ["layer", "sponge"], "default": "sponge"},
    "eggs": {"type": "array", "description": "Masses.", "items": {"type": "float"}, "default": [50.0, None]},
    "oven": {"type": "dict", "description": "Oven.", "properties": {"heat": {"type": "integer", "description": "Degrees.",
        "maximum": 300, "default": 180}, "fan": {"type": "boolean", "description": "Fan on.", "default": True}}},
    "level": {"type": "integer", "description": "Shelf.", "enum": [1, 2], "maximum": 2},
    "tags": {"type": "tuple", "description": "Tags.", "items": {"type": "string"}, "minItems": 1, "maxItems": 3}}},
    "response": {"type": "dict", "properties": {"ok": {"type": "boolean", "description": "Success."}}}}
EAT = {"name": "eat", "description": "Eat it.", "parameters": {"type": "dict", "properties": {}, "required": []}}
LATE = {"name": "sell", "description": "Sell a cake.", "parameters": {"type": "dict", "required": ["price"], "properties": {
    "price": {"type": "float", "description": "Price."}}}, "response": {"type": "dict", "properties": {}}}
HINT = " Note that the provided function is in Python 3 syntax."
SCRIPTS = {
    "calls": (["Bake “two” <cakes> & eat\nthem.", "Thanks."], {}, [
        ("", [("bake", '{"flour": 1.0, "style": "layer", "tags": ["é", "\\u2028", "a\'b"]}'), ("eat", "{}")]),
        ("Now I eat.", [("eat", "{}")]), ("Both are gone.", []), ("You are welcome.", [])]),
    "many turns": (["One.", "Two.", "Three.", "Four."], {}, [
        ("First.", []), ("", [("eat", "{}")]), ("Second.", []), ("", [("bake", '{"flour": 2.5, "oven": {"heat": 200, '
        '"fan": false}, "eggs": [50.5, 3]}')]), ("", [("eat", "{}")]), ("Third.", []), ("Fourth.", [])]),
    "late tool": (["Sell a cake.", None, "And eat."], {"1": [LATE]}, [
        ("I cannot sell.", []), ("", [("sell", '{"price": 9.99}')]), ("Sold.", []), ("", [("eat", "{}")]), ("Eaten.", [])]),
}


def changed(before, body):
    """The fields of a body that differ from those of the body before it."""
    assert before.keys() <= body.keys()
    return {k: v for k, v in body.items() if before.get(k) != v}


def invented(file):
    rows = []
    count, made, system = 0, [], None

    def execute(calls, *args, **kwargs):
        nonlocal count
        results = []
        for call in calls:
            count += 1
            results.append(json.dumps({"result": f"{count} 'quoted' \"é\"", "call": call}))
        if calls:
            made.append(results)
        return results, {}

    real = base_handler.execute_multi_turn_func_call
    base_handler.execute_multi_turn_func_call = execute
    for at, (api, model, make) in enumerate(MODELS):
        for mode in ["fc", "prompt"]:
            h = handler(api, model, make, mode)
            for name, (users, held, steps) in list(SCRIPTS.items())[:1 if at in (1, 6, 7) else None]:
                count, made = 0, []
                tools = [copy.deepcopy(BAKE), copy.deepcopy(EAT)]
                for tool in tools:
                    tool["description"] += HINT
                entry = {"id": "multi_turn_base_0", "initial_config": {}, "involved_classes": [], "function": tools,
                         "missed_function": held, "question": [[] if u is None else [{"role": "user", "content": u}]
                                                               for u in users]}
                script = [response(api, model, n, text if mode == "fc" or not calls else bare(calls),
                                   calls if mode == "fc" else []) for n, (text, calls) in enumerate(steps)]
                sent = play(h, entry, script)
                assert len(sent) == len(script), (api, mode, name, len(sent), len(script))
                if mode == "prompt":
                    system = formulate_system_prompt(DEFAULT_SYSTEM_PROMPT_FORMAT, tools)
                row = {"api": api, "model": model, "mode": mode, "name": name, "late": list(held),
                       "users": users, "results": made, "replies": script, "bodies": [changed(a, b) for a, b in zip([{}] + sent, sent)]}
                rows.append(json.dumps(row, ensure_ascii=False))
    base_handler.execute_multi_turn_func_call = real
    text = json.dumps(system, ensure_ascii=False)
    rows.insert(0, json.dumps({"tools": [BAKE, EAT, LATE], "system": system}, ensure_ascii=False))
    file.write("\n".join([rows[0]] + [row.replace(text, '"SYSTEM"') for row in rows[1:]]) + "\n")


# The 800 tasks: in each turn the ground truth in one reply, then a text.
def signature(classes, name):
    for owner in classes:
        module = __import__(CLASS_FILE_PATH_MAPPING[owner], fromlist=[owner])
        method = getattr(getattr(module, owner), name, None)
        if method:
            return list(inspect.signature(method).parameters)[1:]
    raise LookupError(name)


def parsed(classes, call):
    node = ast.parse(call, mode="eval").body
    names = signature(classes, node.func.id)
    arguments = {names[i]: ast.literal_eval(v) for i, v in enumerate(node.args)}
    arguments.update({k.arg: ast.literal_eval(k.value) for k in node.keywords})
    return node.func.id, json.dumps(arguments)


def canonical(bodies):
    lines = [json.dumps(b, sort_keys=True, separators=(",", ":"), ensure_ascii=False) for b in bodies]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def tasks(file):
    handlers = [(api, model, mode, handler(api, model, make, mode))
                for api, model, make in [MODELS[i] for i in DIGESTED] for mode in ["fc", "prompt"]]
    file.write(" ".join(["task"] + [f"{api}/{mode}" for api, _, mode, _ in handlers]) + "\n")
    for category in ["base", "long_context", "miss_func", "miss_param"]:
        entries = load_dataset_entry("multi_turn_" + category)
        truths = {x["id"]: x["ground_truth"] for x in load_ground_truth_entry("multi_turn_" + category)}
        for entry in entries:
            steps = []
            for turn, truth in enumerate(truths[entry["id"]]):
                if truth:
                    steps.append(("", [parsed(entry["involved_classes"], c) for c in truth]))
                steps.append((f"Turn {turn} is done.", []))
            row = [entry["id"]]
            for at, (api, model, mode, h) in enumerate(handlers):
                h.model_name_underline_replaced = f"m{at}"  # names the instances of the classes
                script = [response(api, model, n, text if mode == "fc" or not calls else bare(calls),
                                   calls if mode == "fc" else []) for n, (text, calls) in enumerate(steps)]
                row.append(canonical(play(h, entry, script)))
            file.write(" ".join(row) + "\n")
            file.flush()


os.makedirs(out, exist_ok=True)
for name, write in [("invented.jsonl", invented), ("tasks.txt", tasks)]:
    if name in (sys.argv[3:] or [name]):
        with open(os.path.join(out, name), "w") as file:
            write(file)
