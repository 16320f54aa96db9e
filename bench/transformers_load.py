"""Loads every model folder under DIR with transformers, and every adapter with peft, and compares the logits, or the
log-probabilities of the tokens, with ours.json beside the weights, which also names the base of an adapter.

usage: transformers_load.py DIR      exit status 1 when a folder does not load or a number differs by more than 1e-4
"""
import json
import pathlib
import sys

import torch
import transformers


def load(folder, ours):
    adapter = folder / "adapter_config.json"
    base = ours.get("base", folder)
    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        base, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    if adapter.exists():
        import peft
        if ours.get("rows", 0) > model.get_input_embeddings().num_embeddings:  # reward tokens that the base does not know
            model.resize_token_embeddings(ours["rows"])
        model = peft.PeftModel.from_pretrained(model, folder)
    return model, report


failed = False
for folder in sorted(p.parent for p in pathlib.Path(sys.argv[1]).glob("*/ours.json")):
    ours = json.loads((folder / "ours.json").read_text())
    model, report = load(folder, ours)
    ids = torch.tensor([ours["input_ids"]])
    with torch.no_grad():
        logits = model(ids).logits[0]
    if "last_logits" in ours:
        what, far = "logits", (logits[-1] - torch.tensor(ours["last_logits"])).abs().max().item()
    else:
        logp = logits[:-1].log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
        what, far = "log-probabilities", (logp - torch.tensor(ours["logprobs"])).abs().max().item()
    strange = {k: sorted(v) for k, v in report.items() if v}
    bad = not far <= 1e-4 or bool(strange)
    failed |= bad
    print(f"{folder.name}: {what}, largest difference {far:.1e}{' ' + str(strange) if strange else ''}{'  FAILED' if bad else ''}")
sys.exit(failed)
