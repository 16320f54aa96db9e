"""Writes bfcl/testdata/tool_documents.txt: digests of the tool documents that the official code makes for each API.

usage: bench/bfcl_tools.py FOLDER DATA > bfcl/testdata/tool_documents.txt
FOLDER contains a copy of the package bfcl_eval (its import creates folders there), DATA the benchmark's data.
"""
import copy, hashlib, json, os, sys
from unittest.mock import MagicMock

folder, data = sys.argv[1:3]
sys.path.insert(0, folder)
for name in ["tenacity", "dotenv", "tqdm", "filelock", "overrides", "numpy", "pandas", "tabulate", "huggingface_hub",
             "requests"] + ["bfcl_eval.model_handler.parser." + p + "_parser" for p in ["java", "js", "json", "xml"]]:
    try:
        __import__(name)
    except ImportError:
        sys.modules[name] = type("Stub", (MagicMock,), {"__path__": []})()

from bfcl_eval.constants.default_prompts import DEFAULT_SYSTEM_PROMPT_FORMAT
from bfcl_eval.constants.enums import ModelStyle
from bfcl_eval.constants.executable_backend_config import MULTI_TURN_FUNC_DOC_FILE_MAPPING
from bfcl_eval.constants.type_mappings import GORILLA_TO_OPENAPI
from bfcl_eval.model_handler.utils import convert_to_tool, formulate_system_prompt
from bfcl_eval.utils import _func_doc_language_specific_pre_processing

styles = {"openai": ModelStyle.OPENAI_RESPONSES, "openai-chat": ModelStyle.OPENAI_COMPLETIONS,
          "anthropic": ModelStyle.ANTHROPIC, "google": ModelStyle.GOOGLE}


def write(owner, what, when, text):
    print(owner, what, when, hashlib.sha256(text.encode()).hexdigest())


for owner, file in MULTI_TURN_FUNC_DOC_FILE_MAPPING.items():
    path = os.path.join(data, "multi_turn_func_doc", file)
    if not os.path.exists(path) or owner.startswith("Memory") or owner == "WebSearchAPI":
        continue
    late = [json.loads(line) for line in open(path) if line.strip()]
    start = _func_doc_language_specific_pre_processing(copy.deepcopy(late), "multi_turn_base")
    for when, functions in [("start", start), ("late", late)]:
        for name, style in styles.items():
            tools = convert_to_tool(functions, GORILLA_TO_OPENAPI, style)
            write(owner, name, when, "\n".join(json.dumps(tool) for tool in tools))
    write(owner, "prompt", "start", formulate_system_prompt(DEFAULT_SYSTEM_PROMPT_FORMAT, start))
