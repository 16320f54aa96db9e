"""Writes a checkpoint of the family Llama as GGUF in float32, for llama.cpp. Needs the packages gguf and numpy.

usage: serve_gguf.py FOLDER FILE
"""
import json
import pathlib
import sys

import gguf
import numpy as np

folder, file = pathlib.Path(sys.argv[1]), sys.argv[2]
config = json.loads((folder / "config.json").read_text())
raw = (folder / "model.safetensors").read_bytes()
size = int.from_bytes(raw[:8], "little")
header, data = json.loads(raw[8 : 8 + size]), raw[8 + size :]


def tensor(name):
    h = header[name]
    assert h["dtype"] == "F32", h
    start, end = h["data_offsets"]
    return np.frombuffer(data[start:end], np.float32).reshape(h["shape"])


def pairs(weight, heads):
    """Reorders the rows of each head: llama.cpp rotates neighbouring rows, transformers halves of a head."""
    shape = weight.shape
    return weight.reshape(heads, 2, shape[0] // heads // 2, shape[1]).swapaxes(1, 2).reshape(shape)


heads, kv = config["num_attention_heads"], config["num_key_value_heads"]
w = gguf.GGUFWriter(file, "llama")
w.add_context_length(config["max_position_embeddings"])
w.add_embedding_length(config["hidden_size"])
w.add_block_count(config["num_hidden_layers"])
w.add_feed_forward_length(config["intermediate_size"])
w.add_head_count(heads)
w.add_head_count_kv(kv)
w.add_key_length(config["head_dim"])
w.add_value_length(config["head_dim"])
w.add_rope_dimension_count(config["head_dim"])
w.add_rope_freq_base(config["rope_theta"])
w.add_layer_norm_rms_eps(config["rms_norm_eps"])
w.add_vocab_size(config["vocab_size"])
w.add_file_type(gguf.LlamaFileType.ALL_F32)

# Only ids are sent and read, so any vocabulary of the right size serves.
w.add_tokenizer_model("gpt2")
w.add_tokenizer_pre("gpt-2")
w.add_token_list([f"<{i}>" for i in range(config["vocab_size"])])
w.add_token_types([gguf.TokenType.NORMAL] * config["vocab_size"])
w.add_token_merges(["< 0", "< 1"])
w.add_bos_token_id(0)
w.add_eos_token_id(0)
w.add_add_bos_token(False)

names = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
         "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
w.add_tensor("token_embd.weight", tensor("model.embed_tokens.weight"))
w.add_tensor("output_norm.weight", tensor("model.norm.weight"))
if "lm_head.weight" in header:
    w.add_tensor("output.weight", tensor("lm_head.weight"))
for i in range(config["num_hidden_layers"]):
    for theirs, ours in names.items():
        value = tensor(f"model.layers.{i}.{theirs}.weight")
        if ours in ("attn_q", "attn_k"):
            value = pairs(value, heads if ours == "attn_q" else kv)
        w.add_tensor(f"blk.{i}.{ours}.weight", np.ascontiguousarray(value))
w.write_header_to_file()
w.write_kv_data_to_file()
w.write_tensors_to_file()
w.close()
