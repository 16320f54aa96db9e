"""Makes the fixtures of GGUF: a small Llama with every supported type of tensor, and numbers of SmolLM2-135M-Instruct.
Needs the packages gguf 0.19.0, numpy, torch and transformers 5.17.0.

usage: gguf_fixtures.py FILE.gguf OUT      FILE.gguf is that of .deps/smollm2, OUT is bench/fixtures/hf/gguf
"""
import gzip
import hashlib
import json
import pathlib
import sys

import gguf
import numpy as np
import tokenizers
import torch
import transformers

file, out = pathlib.Path(sys.argv[1]).absolute(), pathlib.Path(sys.argv[2])
assert transformers.__version__ == "5.17.0", transformers.__version__
torch.manual_seed(38)
rng = np.random.default_rng(38)
out.mkdir(parents=True, exist_ok=True)
T = gguf.GGMLQuantizationType


def write(name, data):
    (out / (name + ".gz")).write_bytes(gzip.compress(data, 9, mtime=0))


def model_of(path):
    m = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    return m.eval()


# Offsets of the float16 numbers of a block, by type.
SCALES = {T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0], T.Q4_K: [0, 2], T.Q5_K: [0, 2],
          T.Q6_K: [208]}


def blocks(kind, rows, width):
    """Random bytes, whose scales are finite: most as in a model, some zero, subnormal or negative."""
    if kind not in SCALES:
        values = rng.normal(0, 0.05, (rows, width)).astype(np.float32)
        return gguf.quants.quantize(values, kind)
    size, length = gguf.GGML_QUANT_SIZES[kind]
    b = rng.integers(0, 256, (rows * width // size, length), dtype=np.uint8)
    for at in SCALES[kind]:
        d = rng.normal(0, 1e-4 if length > 100 else 0.005, len(b)).astype(np.float16)
        d[::7] = rng.choice(np.array([0.0, -0.0, 6e-8, -5e-5], np.float16), len(d[::7]))
        b[:, at : at + 2] = d.view(np.uint8).reshape(-1, 2)
    return b.reshape(rows, -1)


def small(path):
    hidden, heads, kv, mlp, vocab = 256, 4, 2, 32, 64
    w = gguf.GGUFWriter(path, "llama")
    w.add_context_length(128)
    w.add_embedding_length(hidden)
    w.add_block_count(2)
    w.add_feed_forward_length(mlp)
    w.add_head_count(heads)
    w.add_head_count_kv(kv)
    w.add_key_length(8)
    w.add_value_length(8)
    w.add_rope_dimension_count(8)
    w.add_rope_freq_base(10000.0)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_vocab_size(vocab)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    letters = [chr(c) for c in range(33, 33 + vocab - 4)]
    w.add_token_list(["<|end|>"] + letters + [letters[0] + letters[1], "<think>", "[PAD63]"])
    w.add_token_types([gguf.TokenType.CONTROL] + [gguf.TokenType.NORMAL] * (vocab - 3) +
                      [gguf.TokenType.USER_DEFINED, gguf.TokenType.UNUSED])
    w.add_token_merges([letters[0] + " " + letters[1]])
    w.add_bos_token_id(0)
    w.add_eos_token_id(0)
    w.add_chat_template("{% for m in messages %}{{ m['content'] }}<|end|>{% endfor %}")

    def add(name, kind, rows, width):
        w.add_tensor(name, blocks(kind, rows, width), raw_dtype=kind)

    def norm(name):
        w.add_tensor(name, rng.normal(1, 0.1, hidden).astype(np.float32))

    add("token_embd.weight", T.F16, vocab, hidden)
    norm("output_norm.weight")
    for i, (q, k, v, o, gate, up, down) in enumerate([
        (T.Q5_K, T.Q6_K, T.F16, T.F32, T.Q4_K, T.BF16, T.Q4_0), (T.Q8_0, T.Q5_0, T.Q4_K, T.BF16, T.Q5_1, T.Q6_K, T.Q4_1)]):
        norm(f"blk.{i}.attn_norm.weight")
        norm(f"blk.{i}.ffn_norm.weight")
        add(f"blk.{i}.attn_q.weight", q, heads * 8, hidden)
        add(f"blk.{i}.attn_k.weight", k, kv * 8, hidden)
        add(f"blk.{i}.attn_v.weight", v, kv * 8, hidden)
        add(f"blk.{i}.attn_output.weight", o, hidden, heads * 8)
        add(f"blk.{i}.ffn_gate.weight", gate, mlp, hidden)
        add(f"blk.{i}.ffn_up.weight", up, mlp, hidden)
        add(f"blk.{i}.ffn_down.weight", down, hidden, mlp)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def tensors(path):
    """The dequantised values by name, in the order of the file."""
    return {t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32)
            for t in gguf.GGUFReader(path).tensors}


def sums(values):
    return {name: hashlib.sha256(v.tobytes()).hexdigest() for name, v in values.items()}


def logits(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0]


path = out / "types.gguf"
small(path)
values = tensors(path)
assert all(np.isfinite(v).all() for v in values.values())
ids = [1, 5, 60, 0, 33, 7, 7, 41]
last = logits(model_of(path), ids)[-1]
assert last.isfinite().all()
write("types.json", json.dumps({"sha256": sums(values), "first": {n: v.flatten()[:32].tolist() for n, v in values.items()},
                                "input_ids": ids, "last_logits": last.tolist()}).encode())
write("types.gguf", path.read_bytes())
path.unlink()

SHOWN = 97  # every so many-th logit is written
PROMPTS = [  # as ids of the tokenizer in ../tokenizers/smollm2.tokenizer.json
    "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    "<|im_start|>user\nList three fruits.<|im_end|>\n<|im_start|>assistant\n",
    "def fibonacci(n):\n    ",
    "The 12 months of 2024 are",
    "<|im_start|>user\nMove the file report.txt to the folder archive.<|im_end|>\n<|im_start|>assistant\n",
    "Once upon a time, in a small village by the sea,",
]
tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizers.Tokenizer.from_str(
    gzip.decompress((out.parent / "tokenizers" / "smollm2.tokenizer.json.gz").read_bytes()).decode()))
model = model_of(file)
prompts = []
for text in PROMPTS:
    ids = tokenizer.encode(text, add_special_tokens=False)
    last = logits(model, ids)[-1]
    # Without an end token, so that all continuations have 64.
    more = model.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=64, eos_token_id=None, pad_token_id=0,
                          output_logits=True, return_dict_in_generate=True)
    top = torch.cat(more.logits).topk(2).values
    margin, more = (top[:, 0] - top[:, 1]).min().item(), more.sequences[0].tolist()
    assert len(more) == len(ids) + 64
    prompts.append({"text": text, "input_ids": ids, "continuation_ids": more[len(ids):], "smallest_margin": margin,
                    "last_logits": [round(x, 6) for x in last[::SHOWN].tolist()]})
    print(repr(tokenizer.decode(more[len(ids):])), margin)
write("smollm2.json", json.dumps({"sha256": sums(tensors(file)), "every": SHOWN, "prompts": prompts}).encode())
