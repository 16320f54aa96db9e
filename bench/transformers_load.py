"""Loads every model folder under DIR with transformers, and every adapter with peft, and compares the logits with ours.json
beside the weights.

usage: transformers_load.py DIR      exit status 1 when a folder does not load or a logit differs by more than 1e-4
"""
import json
import pathlib
import sys

import torch
import transformers



def load(folder):
    adapter = folder / "adapter_config.json"
    base = pathlib.Path(json.loads(adapter.read_text())["base_model_name_or_path"]) if adapter.exists() else folder
    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        base, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    if adapter.exists():
        import peft
        model = peft.PeftModel.from_pretrained(model, folder)
    return model, report


failed = False
for folder in sorted(p.parent for p in pathlib.Path(sys.argv[1]).glob("*/ours.json")):
    ours = json.loads((folder / "ours.json").read_text())
    model, report = load(folder)
    with torch.no_grad():
        logits = model(torch.tensor([ours["input_ids"]])).logits[0, -1]
    far = (logits - torch.tensor(ours["last_logits"])).abs().max().item()
    strange = {k: sorted(v) for k, v in report.items() if v}
    bad = not far <= 1e-4 or bool(strange)
    failed |= bad
    print(f"{folder.name}: {len(logits)} logits, largest difference {far:.1e}{' ' + str(strange) if strange else ''}{'  FAILED' if bad else ''}")
sys.exit(failed)
