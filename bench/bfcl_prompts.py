"""Records the prompts that the official handlers of bfcl-eval write, by the official loop with scripted replies.

usage: bench/bfcl_prompts.py > bench/fixtures/bfcl/handler_prompts.jsonl
Invented tools: the conversation and every prompt. The 800 tasks: SHA-256 of the prompt before the last reply, given
"Done." in every turn.
"""
import hashlib, json, os, sys, tempfile, types

os.environ["BFCL_PROJECT_ROOT"] = tempfile.mkdtemp()
import bfcl_official  # stubs

sys.stdout, out = open(os.devnull, "w"), sys.stdout
from bfcl_eval.constants.model_config import MODEL_CONFIG_MAPPING
from bfcl_eval.model_handler import base_handler
from bfcl_eval.utils import load_dataset_entry

MODELS = ["Qwen/Qwen3-8B-FC", "meta-llama/Llama-3.1-8B-Instruct-FC"]
TOOLS = [
    {"name": "lamp", "description": "Schaltet eine Lampe. \u00fc \u2014 \U0001f4a1", "parameters": {"type": "dict", "properties": {
        "room": {"type": "string", "description": "Room.", "enum": ["a", "b"]},
        "level": {"type": "float", "description": "Level.", "default": 0.50, "maximum": 1e30},
        "names": {"type": "array", "items": {"type": "string"}, "default": []}}, "required": ["room"]},
     "response": {"type": "dict", "properties": {}}},
    {"name": "done.now", "description": "", "parameters": {"type": "dict", "properties": {}, "required": []}},
]
QWEN = [
    [["Hi there.", "Hello!\n"], [" spaces \n", "<think>\nwhy\n</think>\n\nSo.", ]],
    [["Both on", '<tool_call>\n{"name": "lamp", "arguments": {"room": "a", "level": 1.0, "x": "\u00e9"}}\n</tool_call>\n'
      '<tool_call>\n{"name": "lamp", "arguments": {"room":"b","level":1e3,"n":null,"t":true}}\n</tool_call>', "Done."],
     ["Again", 'Sure. <tool_call>\n{"name": "lamp", "arguments": "{\\"room\\": \\"a\\"}"}\n</tool_call> ok', "ok"]],
    [["Think", '<think>\n\nfirst\n<think>second\n</think>\n\n<tool_call>\n{"arguments": {}, "name": "done.now"}\n'
      '</tool_call>', "<think>x</think>y</think>z", ], ["Next", "bye"]],
    [["Same", '<tool_call>\n{"name": "lamp", "arguments": {}}\n</tool_call><tool_call>\n{"name": "done.now", '
      '"arguments": {}}\n</tool_call><tool_call>\n{"name": "lamp", "arguments": {}}\n</tool_call>', "ok"], ["B", "b"]],
    [["Nested", '<tool_call>\n{"name": "lamp", "arguments": {"a": [1, {"b": NaN}]}, "function": {"name": "q", '
      '"arguments": [1]}}\n</tool_call>', "ok"], ["C", "c"]],
    [["Broken", "<tool_call>\n{\"name\": \n</tool_call>"], ["Cut", '<tool_call>\n{"name": "lamp", "argum'], ["D", "d"]],
    [["Inner", '<think>\n<tool_call>\n{"name": "lamp", "arguments": {}}\n</tool_call>\n</think>\n\nNo.'], ["E", "e"]],
    [["List", "<tool_call>\n[1]\n</tool_call>"], ["F", "f"]],
    [["Text", '<tool_call>\n"function"\n</tool_call>'], ["F", "f"]],
    [["No name", '<tool_call>\n{"arguments": {}}\n</tool_call>'], ["F", "f"]],
    [["No arguments", '<tool_call>\n{"name": "lamp"}\n</tool_call>'], ["F", "f"]],
    [["Number", '<tool_call>\n{"name": 5, "arguments": {}}\n</tool_call>', "x"], ["F", "f"]],
    [["Arguments", '<tool_call>\n{"name": "lamp", "arguments": [1]}\n</tool_call>'], ["F", "f"]],
    [["Bad text", '<tool_call>\n{"name": "lamp", "arguments": "{"}\n</tool_call>'], ["F", "f"]],
]
LLAMA = [
    [[" Hi there.\n", "\u3000Hello! \n"], ["B", "b"]],
    [["One", '{"name": "lamp", "parameters": {"room": "a", "x": "\u00e9"}}', "Done."], ["B", "b"]],
    [["Two", '<|python_tag|>{"name": "lamp", "parameters": {"room": "a"}}; {"name": "done.now", "parameters": {}}', "ok"],
     ["B", "b"]],
    [["List", '[{"name": "lamp", "parameters": {"room": "a"}}, {"name": "lamp", "parameters": {"room": \'b\'}}]', "ok"],
     ["true", '{"name": "lamp", "parameters": {"on": true}}'], ["cut", '{"name": "lamp", "param'], ["none", "[]"], ["B", "b"]],
    [["Odd", '{"name": 5, "parameters": {"a": 1}}', "5"], ["B", '{"name": "x"}'], ["C", ";"], ["D", ""]],
]


class Client:
    """Answers with the next reply and records prompts."""

    def __init__(self, replies):
        self.replies, self.prompts = iter(replies), []
        self.completions = self

    def create(self, prompt, **_):
        self.prompts.append(prompt)
        choice = types.SimpleNamespace(text=next(self.replies))
        return types.SimpleNamespace(choices=[choice], usage=types.SimpleNamespace(prompt_tokens=0, completion_tokens=0))


def play(model, entry, replies):
    config = MODEL_CONFIG_MAPPING[model]
    handler = config.model_handler(config.model_name, 0, model, True)
    handler.max_context_length, handler.model_path_or_id = 1 << 20, "x"
    handler.tokenizer = types.SimpleNamespace(tokenize=lambda text: [])
    handler.client = Client(replies)
    failed = ""
    try:
        result, _ = handler.inference(entry, False, True)
    except Exception as e:
        result, failed = None, type(e).__name__
    calls = []
    for reply in replies[:len(handler.client.prompts)]:
        try:
            text = handler._parse_query_response_prompting(Client([reply]).create(""))["model_responses"]
            calls.append(handler.decode_execute(text, has_tool_call_tag=False))
        except Exception:
            calls.append([])
    return handler.client.prompts, calls, failed


def row(**fields):
    print(json.dumps(fields), file=out)


def results(calls, *_, **__):
    return [f"result of {call} \u2713" for call in calls], {}


execute = base_handler.execute_multi_turn_func_call
base_handler.execute_multi_turn_func_call = results
for model, cases in zip(MODELS, [QWEN, LLAMA]):
    for turns in cases:
        replies = [reply for turn in turns for reply in turn[1:]]
        entry = {"id": "multi_turn_base_0", "function": json.loads(json.dumps(TOOLS)), "involved_classes": [],
                 "question": [[{"role": "user", "content": turn[0]}] for turn in turns]}
        prompts, calls, failed = play(model, entry, replies)
        row(model=model, tools=TOOLS, users=[turn[0] for turn in turns], replies=replies, calls=calls, prompts=prompts,
            failed=failed)
base_handler.execute_multi_turn_func_call = lambda *_, **__: ([], {})
for category in ["multi_turn_base", "multi_turn_long_context", "multi_turn_miss_func", "multi_turn_miss_param"]:
    for entry in load_dataset_entry(category):
        text = json.dumps(entry)
        for model in MODELS:
            entry = json.loads(text)
            prompts, _, failed = play(model, entry, ["Done."] * len(entry["question"]))
            assert not failed
            row(model=model, task=entry["id"], sha256=hashlib.sha256(prompts[-1].encode()).hexdigest())
