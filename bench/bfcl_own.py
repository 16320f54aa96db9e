"""The handler of the model `own` of bench/bfcl_official.py: prompts by the template of the model's folder, replies as the
layout of that family ($FAMILY: qwen2 or llama) reads them, so verdicts equal those of `eval`."""
import json, os

from bfcl_eval.constants.model_config import ModelConfig
from bfcl_eval.model_handler.local_inference.base_oss_handler import OSSHandler
from bfcl_eval.model_handler.local_inference.llama_3_1 import LlamaHandler_3_1
from bfcl_eval.model_handler.local_inference.qwen_fc import QwenFCHandler
from bfcl_eval.model_handler.utils import convert_to_function_call
from overrides import override

TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": "string"}


def schema(v, key=""):
    if isinstance(v, dict):
        return {k: schema(x, k) for k, x in v.items()}
    return [schema(x) for x in v] if isinstance(v, list) else TYPES.get(v, v) if key == "type" else v


class Own(OSSHandler):
    skip_special_tokens = False

    @override
    def _format_prompt(self, messages, function):
        replies = {f"\ue000{i}\ue001": m["content"] for i, m in enumerate(messages) if m["role"] == "assistant"}
        shown = [{"role": m["role"], "content": f"\ue000{i}\ue001" if m["role"] == "assistant" else m["content"]}
                 for i, m in enumerate(messages)]
        prompt = self.tokenizer.apply_chat_template(shown, tools=function, tokenize=False, add_generation_prompt=True)
        for mark, text in replies.items():  # a template may change spaces around a reply
            prompt = prompt.replace(mark, text)
        return prompt

    @override
    def _pre_query_processing_prompting(self, test_entry: dict) -> dict:
        tools = [{k: v for k, v in tool.items() if k != "response"} for tool in test_entry["function"]]
        for tool in tools:
            tool["description"] = tool["description"].removesuffix(" Note that the provided function is in Python 3 syntax.")
        return {"message": [], "function": [{"type": "function", "function": schema(tool)} for tool in tools]}

    @override
    def _parse_query_response_prompting(self, api_response) -> dict:
        if api_response.choices[0].finish_reason == "length":
            raise ValueError("the reply is too long")
        return super()._parse_query_response_prompting(api_response)

    @override
    def decode_execute(self, result, has_tool_call_tag):
        if os.environ["FAMILY"] != "llama":
            return QwenFCHandler.decode_execute(QwenFCHandler, result, has_tool_call_tag)
        try:
            return LlamaHandler_3_1.decode_execute(self, result, has_tool_call_tag)
        except Exception:
            call = json.loads(result.replace("<|python_tag|>", ""))
            return convert_to_function_call([{call["name"]: call["parameters"]}])


def config():
    return ModelConfig(model_name="own", display_name="own", url="", org="", license="", model_handler=Own,
                       input_price=None, output_price=None, is_fc_model=True, underscore_to_dot=False)
