#!/usr/bin/env python3
"""Runs lm_torch.py with the architecture of SmolLM2 (Llama, tied embeddings) instead of Qwen2.

usage: smollm2_torch.py LM_TORCH_PY [its arguments]
"""
import runpy, sys

import transformers


def config(**shape):
    return transformers.LlamaConfig(**{**shape, "tie_word_embeddings": True, "rope_theta": 100000.0})


transformers.Qwen2Config, transformers.Qwen2ForCausalLM = config, transformers.LlamaForCausalLM
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
