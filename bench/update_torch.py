"""Repeats the updates of RC-GRPO under DIR in PyTorch, from equations 6 to 9 of the paper, and compares losses, gradients
and weights.

usage: update_torch.py DIR      exit status 1 if a number differs by more than its tolerance

PyTorch computes in float64 here, so that every difference is ours: float32 rounds the gradients of a pretrained model
at 1e-4 of the largest entry of a tensor, in either program. An entry of a gradient is right relative to that largest
entry. Adam divides a gradient by its size: where the true gradient is near 0, its rounding decides the sign of a step of
size lr. So weights may differ by up to 2 lr per step there, but almost all are equal to lr / 50.
"""
import json
import pathlib
import sys

import torch
import transformers

transformers.logging.disable_progress_bar()


def logprobs(model, row):
    ids, mask = torch.tensor([row["ids"]]), torch.tensor(row["mask"])
    logp = model(ids).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
    return logp[mask[1:]]


def advantages(rewards, group, eps):  # eq. 6
    r = torch.tensor(rewards, dtype=torch.float64).view(-1, group)
    return ((r - r.mean(1, True)) / (r.std(1, correction=0, keepdim=True) + eps)).flatten()


def compare(folder):
    ours = json.loads((folder / "ours.json").read_text())
    load = lambda name: transformers.AutoModelForCausalLM.from_pretrained(
        folder / name, dtype=torch.float64, attn_implementation="eager")
    model, reference, o = load("before"), load("before").requires_grad_(False), ours["optimizer"]
    adam = torch.optim.AdamW(model.parameters(), lr=ours["lr"], betas=(o["Beta1"], o["Beta2"]), eps=o["Eps"],
                             weight_decay=o["Decay"])
    worst, at = {}, iter(ours["steps"])
    note = lambda what, far: worst.update({what: max(worst.get(what, 0), far)})
    for rows, passes in zip(ours["updates"], (2, 1)):
        adv = advantages([r["reward"] for r in rows], ours["group"], ours["advantage_eps"])
        with torch.no_grad():
            old, ref = [logprobs(model, r) for r in rows], [logprobs(reference, r) for r in rows]
        for _ in range(passes):
            loss, step, clipped = 0.0, next(at), 0
            adam.zero_grad()
            for r, a, lo, lr in zip(rows, adv, old, ref):
                lp = logprobs(model, r).double()
                ratio = (lp - lo.double()).sum().exp()  # eq. 7
                bound = ratio.clamp(1 - ours["clip"], 1 + ours["clip"])
                d = lp - lr.double()
                kl = ((-d).exp() - 1 + d).sum()
                part = (ours["beta"] * kl - torch.min(ratio * a, bound * a)) / len(rows)  # eq. 8 and 9
                clipped += bool(bound * a < ratio * a)
                part.backward()
                loss += part.item()
            note("loss", abs(loss - step["Loss"]) / max(1, abs(loss)))
            note("clip fraction", abs(clipped / len(rows) - step["ClipFraction"]))
            for name, p in model.named_parameters():
                want, g = step["Gradient"][name], p.grad.flatten()
                note("norms", abs(g.double().norm().item() - want["Norm"]) / want["Norm"])
                note("entries", (g[want["At"]] - torch.tensor(want["Values"], dtype=torch.float64)).abs().max().item() / want["Largest"])
            torch.nn.utils.clip_grad_norm_(model.parameters(), o["Clip"])
            adam.step()
    after = dict(load("after").named_parameters())
    far = torch.cat([(p - after[name]).detach().abs().flatten() for name, p in model.named_parameters()]) / ours["lr"]
    note("weights / lr", far.max().item())
    note("weights beyond lr / 50", (far > 0.02).float().mean().item())
    return worst


LIMITS = {"loss": 1e-5, "clip fraction": 0, "norms": 1e-4, "entries": 2e-4, "weights / lr": 6,
          "weights beyond lr / 50": 1e-3}
failed = False
for folder in sorted(p.parent for p in pathlib.Path(sys.argv[1]).glob("*/ours.json")):
    for what, far in compare(folder).items():
        bad = not far <= LIMITS[what]
        failed |= bad
        print(f"{folder.name}: {what}, largest difference {far:.1e}{'  FAILED' if bad else ''}")
sys.exit(failed)
