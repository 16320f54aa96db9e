"""Loads every model folder under DIR with transformers and compares its logits with ours.json beside the weights.

usage: transformers_load.py DIR      exit status 1 when a folder does not load or a logit differs by more than 1e-4
"""
import json
import pathlib
import sys

import torch
import transformers

failed = False
for folder in sorted(p.parent for p in pathlib.Path(sys.argv[1]).glob("*/ours.json")):
    ours = json.loads((folder / "ours.json").read_text())
    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    with torch.no_grad():
        logits = model(torch.tensor([ours["input_ids"]])).logits[0, -1]
    far = (logits - torch.tensor(ours["last_logits"])).abs().max().item()
    strange = {k: sorted(v) for k, v in report.items() if v}
    bad = not far <= 1e-4 or bool(strange)
    failed |= bad
    print(f"{folder.name}: {len(logits)} logits, largest difference {far:.1e}{' ' + str(strange) if strange else ''}{'  FAILED' if bad else ''}")
sys.exit(failed)
