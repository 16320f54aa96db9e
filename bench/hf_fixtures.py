"""Makes another folder of the form of $FIXTURES/hf: models of other shapes with other random weights, and their numbers by
transformers and peft. Tokenizers, templates and malformed files stay those of FROM.

usage: hf_fixtures.py FROM OUT [SEED]      FROM/hf is copied to OUT/hf, its models made anew

The committed qwen3-tiny, llama32-tiny and smollm3-tiny are those of seed 1.
"""
import gzip
import json
import pathlib
import shutil
import sys

import torch
import transformers
from torch.nn.functional import log_softmax

source, out = pathlib.Path(sys.argv[1]) / "hf", pathlib.Path(sys.argv[2]) / "hf"
seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
torch.manual_seed(seed)
torch.set_num_threads(1)
transformers.utils.logging.disable_progress_bar()
shutil.copytree(source, out, ignore=lambda folder, names: names if pathlib.Path(folder).name == "models" else [])
rows = json.loads((out / "special_rows/expect.json").read_text())
rows["cases"] = []  # numbers of the models of FROM
(out / "special_rows/expect.json").write_text(json.dumps(rows))

LENGTHS = [1, 5, 33, 150]
VOCAB = 512  # of the model in work; the last twelve ids are padding


def ids(n):
    return torch.randint(0, VOCAB - 12, (n,)).tolist()


def statistics(model, row):
    with torch.no_grad():
        logits = model(torch.tensor([row])).logits[0]
    logp = log_softmax(logits, -1)
    return logits, [logp[t, row[t + 1]].item() for t in range(len(row) - 1)], (-(logp.exp() * logp).sum(-1)).tolist()


def masked_batch(n, longest):
    lengths = [longest] + torch.randint(4, longest, (n - 1,)).tolist()
    batch = {"input_ids": [], "attention_mask": [], "loss_mask": []}
    for length in lengths:
        pad = longest - length
        batch["input_ids"].append(ids(length) + [VOCAB - 5] * pad)
        batch["attention_mask"].append([1] * length + [0] * pad)
        batch["loss_mask"].append([0, 1] + torch.randint(0, 2, (length - 2,)).tolist() + [0] * pad)
    return batch


def mean_loss(model, batch):
    b = {k: torch.tensor(v) for k, v in batch.items()}
    logp = log_softmax(model(b["input_ids"], attention_mask=b["attention_mask"]).logits[:, :-1], -1)
    taken = logp.gather(2, b["input_ids"][:, 1:, None])[..., 0]
    mask = b["loss_mask"][:, 1:]
    return -(taken * mask).sum() / mask.sum()


def train(model, batches, rates):
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=1, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
    losses, norms = [], []
    for batch, rate in zip(batches, rates):
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        loss = mean_loss(model, batch)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(parameters, 1.0).item())
        losses.append(loss.item())
        optimizer.step()
    return losses, norms


def numbers(folder):
    global VOCAB
    load = lambda: transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    model = load()
    VOCAB = model.config.vocab_size
    rotary = model.model.rotary_emb
    positions = [0, 1, 7, 100, 300]
    cos, sin = rotary(torch.zeros(1), torch.tensor([positions]))
    half = cos.shape[-1] // 2
    p = {"model": folder.name, "dtype": "float32",
         "rope": {"inv_freq": rotary.inv_freq.tolist(), "positions": positions,
                  "cos_first_half": cos[0, :, :half].tolist(), "sin_first_half": sin[0, :, :half].tolist()},
         "sequences": [], "padded": [], "greedy": []}
    for length in LENGTHS:
        row = ids(length)
        logits, logp, entropy = statistics(model, row)
        p["sequences"].append({"name": f"length {length}", "input_ids": row, "next_token_logprobs": logp, "entropies": entropy,
                               "full_logits": [{"position": at, "logits": logits[at].tolist()} for at in {0, length - 1}]})
    for side in "right", "left":
        lengths, longest = [3, 20, 11], 20
        table, rows = [], []
        for length in lengths:
            row, pad = ids(length), [VOCAB - 5] * (longest - length)
            table.append(row + pad if side == "right" else pad + row)
            logits, logp, _ = statistics(model, row)
            rows.append({"first": 0 if side == "right" else longest - length, "length": length, "next_token_logprobs": logp, "last_logits": logits[-1].tolist()})
        p["padded"].append({"input_ids": table, "rows": rows})
    for length in 2, 9, 30:
        prompt = ids(length)
        row = list(prompt)
        while len(row) < length + 24:
            best, second = statistics(model, row)[0][-1].topk(2)[0].tolist()
            if best - second < 1e-3:  # rounding could decide
                break
            row.append(statistics(model, row)[0][-1].argmax().item())
        p["greedy"].append({"prompt_ids": prompt, "continuation_ids": row[length:]})
    batch = masked_batch(3, 30)
    loss = mean_loss(model, batch)
    loss.backward()
    norms = {name: w.grad.norm().item() for name, w in model.named_parameters()}
    p["gradient"] = dict(batch, loss=loss.item(), grad_l2=norms, grad_full={n: w.grad.tolist() for n, w in model.named_parameters() if n == "model.norm.weight" or "0.self_attn.q_norm" in n or "0.self_attn.k_norm" in n},
                         total_grad_norm=sum(n * n for n in norms.values()) ** 0.5)

    batches = [masked_batch(2, 24) for _ in range(20)]
    course = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = transformers.get_cosine_schedule_with_warmup(course, 2, 20)
    rates = []
    for _ in batches:
        rates.append(schedule.get_last_lr()[0])
        course.step()
        schedule.step()
    probe = ids(40)
    model = load()
    losses, norms = train(model, batches, rates)
    full = {"loss": losses, "grad_norm_pre_clip": norms, "final": {"params": {n: {"abs_sum": w.abs().double().sum().item()} for n, w in model.named_parameters()}},
            "final_probe": {"input_ids": probe, "position": 39, "logits": statistics(model, probe)[0][39].tolist()}}

    import peft
    adapter = peft.get_peft_model(load(), peft.LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"], task_type="CAUSAL_LM"))
    adapter.peft_config["default"].base_model_name_or_path = folder.name
    adapter.save_pretrained(folder / "lora_init")
    losses, norms = train(adapter, batches, rates)
    adapter.save_pretrained(folder / "lora_final")
    merged = statistics(adapter.merge_and_unload(), probe)[0]
    p["training"] = {"optimizer": {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.01, "max_grad_norm": 1.0}, "lr": rates, "batches": batches, "full": full,
                     "lora": {"init": "lora_init", "final": "lora_final", "loss": losses, "grad_norm_pre_clip": norms,
                              "merged_probe": {"input_ids": probe, "logits": [{"position": at, "logits": merged[at].tolist()} for at in (10, 39)]}}}
    with gzip.open(folder / "parity.json.gz", "wt") as file:
        json.dump(p, file)


shape = dict(vocab_size=512, hidden_size=48, intermediate_size=112, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=3, max_position_embeddings=512)
llama3 = dict(rope_type="llama3", rope_theta=1e5, factor=4.0, low_freq_factor=1.0, high_freq_factor=8.0, original_max_position_embeddings=32)
small = dict(vocab_size=140, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512)
for name, config in {
    "qwen2-tiny": transformers.Qwen2Config(**shape, rope_parameters={"rope_type": "default", "rope_theta": 3e4}, rms_norm_eps=1e-5, tie_word_embeddings=False),
    "qwen2-tied": transformers.Qwen2Config(**dict(shape, num_hidden_layers=4, num_key_value_heads=1), rope_parameters={"rope_type": "default", "rope_theta": 1e6}, rms_norm_eps=1e-6, tie_word_embeddings=True),
    "qwen3-tiny": transformers.Qwen3Config(**small, head_dim=16, rope_parameters={"rope_type": "default", "rope_theta": 1e6}, rms_norm_eps=1e-6, tie_word_embeddings=False),
    "llama32-tiny": transformers.LlamaConfig(**dict(small, num_key_value_heads=1), rope_parameters=dict(llama3, factor=32.0, high_freq_factor=4.0, rope_theta=5e5), rms_norm_eps=1e-5, tie_word_embeddings=True),
    "smollm3-tiny": transformers.SmolLM3Config(**dict(small, num_hidden_layers=5), rope_parameters={"rope_type": "default", "rope_theta": 5e6}, no_rope_layer_interval=2, rms_norm_eps=1e-6, tie_word_embeddings=True, pad_token_id=None, bos_token_id=1, eos_token_id=2),
    "llama31-tiny": transformers.LlamaConfig(**shape, rope_parameters=llama3, rms_norm_eps=1e-6, tie_word_embeddings=False),
}.items():
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for w_name, w in model.named_parameters():  # wider than a start, biases and norms included
            w.copy_(((1 if "norm" in w_name else 0) + 0.15 * torch.randn_like(w)).bfloat16())  # half as many bytes when compressed
    folder = out / "models" / name
    folder.mkdir(parents=True)
    for file in (source / "models" / name).glob("*.json"):
        if file.name not in ("config.json", "config_v5.json", "model.safetensors.index.json", "generation_config.json"):
            shutil.copy(file, folder)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    numbers(folder)
    print(folder)
