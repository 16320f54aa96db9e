package rl

import "fmt"

// Profile is a named convention.
type Profile struct {
	Name, Source string
	Objective    Objective
}

// ProfileSettings are the settings and blocks of an Objective that a profile gives values to.
var ProfileSettings = []string{"advantage", "ratio", "clip", "loss", "kl", "entropy", "zero_variance"}

// Profiles are the conventions of the field under the names people use for them, the first the paper's. Each is a fresh
// copy. They cover the objective; rates, schedules and sizes are settings of an experiment.
func Profiles() []Profile {
	paper := PaperObjective()

	verl := PaperObjective()
	verl.Advantage = &Advantage{Baseline: "group_mean", Scale: "group_std", DDOF: 1, Eps: 1e-6, Missing: "spread", Lone: "reward"}
	verl.Ratio = &Ratio{Level: "token", Denominator: "old", LogClamp: 20}
	verl.Clip = &Clip{Low: 0.2, High: 0.2, Dual: 3}
	verl.Loss = &Loss{Aggregate: "token_mean", Rows: "non_empty", CountEps: 1e-8}
	verl.KL = &KL{Beta: 0, Estimator: "k3", Gradient: "own", Place: "loss", Aggregate: "loss", LogClamp: 20, ValueClamp: 10}

	trl := PaperObjective()
	trl.Advantage = &Advantage{Baseline: "group_mean", Scale: "group_std", DDOF: 1, Eps: 1e-4, Missing: "leave_out", Lone: "formula"}
	trl.Ratio = &Ratio{Level: "token", Denominator: "old"}
	trl.Loss = &Loss{Aggregate: "token_mean", Rows: "all"}
	trl.KL = &KL{Beta: 0, Estimator: "k3", Gradient: "own", Place: "loss", Aggregate: "loss"}

	openrlhf := PaperObjective()
	openrlhf.Advantage = &Advantage{Baseline: "group_mean", Scale: "group_std", DDOF: 1, Eps: 1e-9, Missing: "spread", Lone: "formula"}
	openrlhf.Ratio = &Ratio{Level: "token", Denominator: "old", LogClamp: 20}
	openrlhf.Loss = &Loss{Aggregate: "token_mean", Rows: "non_empty", CountEps: 1e-8}
	openrlhf.KL = &KL{Beta: 0.01, Estimator: "k1", Gradient: "own", Place: "reward", Aggregate: "token_mean", ValueClamp: 10}

	drGRPO := PaperObjective()
	drGRPO.Advantage = &Advantage{Baseline: "group_mean", Scale: "none", Missing: "spread", Lone: "formula"}
	drGRPO.Ratio = &Ratio{Level: "token", Denominator: "old"}
	drGRPO.Loss = &Loss{Aggregate: "constant", Rows: "all", Scale: 1024}
	drGRPO.KL = &KL{Beta: 0, Estimator: "k3", Gradient: "own", Place: "loss", Aggregate: "loss"}

	dapo := PaperObjective()
	dapo.Advantage = &Advantage{Baseline: "group_mean", Scale: "group_std", DDOF: 1, Eps: 1e-6, Missing: "spread", Lone: "reward"}
	dapo.Ratio = &Ratio{Level: "token", Denominator: "old", LogClamp: 20}
	dapo.Clip = &Clip{Low: 0.2, High: 0.28, Dual: 10}
	dapo.Loss = &Loss{Aggregate: "token_mean", Rows: "non_empty"}
	dapo.KL = &KL{Beta: 0, Estimator: "k3", Gradient: "own", Place: "loss", Aggregate: "loss"}
	dapo.ZeroVariance = "resample"

	gspo := PaperObjective()
	gspo.Advantage = &Advantage{Baseline: "group_mean", Scale: "group_std", DDOF: 1, Eps: 1e-6, Missing: "spread", Lone: "reward"}
	gspo.Ratio = &Ratio{Level: "sequence_mean", Denominator: "old", LogClamp: 10, OnlyAbove: true}
	gspo.Clip = &Clip{Low: 3e-4, High: 4e-4}
	gspo.Loss = &Loss{Aggregate: "trajectory_mean", Rows: "non_empty", CountEps: 1e-8}
	gspo.KL = &KL{Beta: 0, Estimator: "k3", Gradient: "own", Place: "loss", Aggregate: "loss"}

	profiles := []Profile{
		{"paper", "RC-GRPO, equations of section 3.2", paper},
		{"verl", "verl, compute_policy_loss_vanilla and its GRPO defaults", verl},
		{"trl", "TRL 1.16, GRPOTrainer with its default loss type dapo", trl},
		{"openrlhf", "OpenRLHF, PolicyLoss with group_norm and the penalty in the reward", openrlhf},
		{"dr_grpo", "Liu et al. 2025: no deviation, constant length", drGRPO},
		{"dapo", "Yu et al. 2025: higher upper bound, token mean, resampling", dapo},
		{"gspo", "Zheng et al. 2025: sequence-mean ratio", gspo},
	}
	for i := range profiles {
		profiles[i].Objective.Profile = profiles[i].Name
	}
	return profiles
}

// ProfileNamed returns a profile, or an error that lists the names there are.
func ProfileNamed(name string) (Objective, error) {
	var names []string
	for _, p := range Profiles() {
		if p.Name == name {
			return p.Objective, nil
		}
		names = append(names, p.Name)
	}
	return Objective{}, fmt.Errorf("no profile %q; there are %v", name, names)
}

// UsePreset replaces the whole objective by a profile's. A name that is none changes nothing.
func (o *Objective) UsePreset(name string) {
	if p, err := ProfileNamed(name); err == nil {
		*o = p
	}
}
