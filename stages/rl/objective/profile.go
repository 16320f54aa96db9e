package objective

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Profile is a named convention.
type Profile struct {
	Name, Source string
	Objective    Objective
}

// ProfileSettings are the settings and blocks of an Objective that a profile sets.
var ProfileSettings = []string{"advantage", "ratio", "clip", "loss", "kl", "minibatches", "passes", "entropy",
	"zero_variance"}

// Profiles returns the conventions of other trainers and papers, the first the paper's, as fresh copies. They
// cover the objective only, not rates, schedules and sizes.
func Profiles() []Profile {
	paper := PaperObjective()

	verl := PaperObjective()
	verl.Advantage = &Advantage{Baseline: "group_mean", Scale: "group_std", DDOF: 1, Eps: 1e-6, Missing: "leave_out",
		Lone: "reward"}
	verl.Ratio = &Ratio{Level: "token", Denominator: "old", LogClamp: 20}
	verl.Clip = &Clip{Low: 0.2, High: 0.2, Dual: 3}
	verl.Loss = &Loss{Aggregate: "token_mean", Rows: "non_empty", CountEps: 1e-8}
	verl.KL = &KL{Beta: 0, Estimator: "k3", Gradient: "own", Place: "loss", Aggregate: "loss", LogClamp: 20,
		ValueClamp: 10}
	verl.Minibatches = 256

	trl := PaperObjective()
	trl.Advantage = &Advantage{Baseline: "group_mean", Scale: "group_std", DDOF: 1, Eps: 1e-4, Missing: "leave_out",
		Lone: "formula"}
	trl.Ratio = &Ratio{Level: "token", Denominator: "old"}
	trl.Loss = &Loss{Aggregate: "token_mean", Rows: "all"}
	trl.KL = &KL{Beta: 0, Estimator: "k3", Gradient: "own", Place: "loss", Aggregate: "loss"}

	openrlhf := PaperObjective()
	openrlhf.Advantage = &Advantage{Baseline: "group_mean", Scale: "group_std", DDOF: 1, Eps: 1e-9,
		Missing: "leave_out", Lone: "formula"}
	openrlhf.Ratio = &Ratio{Level: "token", Denominator: "old", LogClamp: 20}
	openrlhf.Loss = &Loss{Aggregate: "token_mean", Rows: "non_empty", CountEps: 1e-8}
	openrlhf.KL = &KL{Beta: 0.01, Estimator: "k1", Gradient: "own", Place: "reward", Aggregate: "token_mean",
		ValueClamp: 10}

	drGRPO := PaperObjective()
	drGRPO.Advantage = &Advantage{Baseline: "group_mean", Scale: "none", Missing: "leave_out", Lone: "formula"}
	drGRPO.Ratio = &Ratio{Level: "token", Denominator: "old"}
	drGRPO.Loss = &Loss{Aggregate: "constant", Rows: "all", Scale: 1024}
	drGRPO.KL = &KL{Beta: 0, Estimator: "k3", Gradient: "own", Place: "loss", Aggregate: "loss"}

	dapo := PaperObjective()
	dapo.Advantage = &Advantage{Baseline: "group_mean", Scale: "group_std", DDOF: 1, Eps: 1e-6, Missing: "leave_out",
		Lone: "reward"}
	dapo.Ratio = &Ratio{Level: "token", Denominator: "old", LogClamp: 20}
	dapo.Clip = &Clip{Low: 0.2, High: 0.28, Dual: 10}
	dapo.Loss = &Loss{Aggregate: "token_mean", Rows: "non_empty"}
	dapo.KL = &KL{Beta: 0, Estimator: "k3", Gradient: "own", Place: "loss", Aggregate: "loss"}
	dapo.ZeroVariance = "resample"

	gspo := PaperObjective()
	gspo.Advantage = &Advantage{Baseline: "group_mean", Scale: "group_std", DDOF: 1, Eps: 1e-6, Missing: "leave_out",
		Lone: "reward"}
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

// ProfileNamed returns a profile, or an error that lists the known names.
func ProfileNamed(name string) (Objective, error) {
	var names []string
	for _, p := range Profiles() {
		if p.Name == name {
			return p.Objective, nil
		}
		names = append(names, p.Name)
	}
	return Objective{}, fmt.Errorf("no profile %q; known are %v", name, names)
}

// UsePreset replaces the objective by a profile. An unknown name has no effect.
func (o *Objective) UsePreset(name string) {
	if p, err := ProfileNamed(name); err == nil {
		*o = p
	}
}

// Set assigns a text to a setting named as in the language ("clip.high", "zero_variance"); strings may be quoted.
// Blocks of o are replaced, not changed, so copies of o keep theirs.
func (o *Objective) Set(name, text string) error {
	block, setting, nested := strings.Cut(name, ".")
	at := fieldOf(reflect.ValueOf(o).Elem(), block)
	if nested && at.field.IsValid() && at.field.Kind() == reflect.Pointer {
		copied := reflect.New(at.field.Type().Elem())
		copied.Elem().Set(at.field.Elem())
		if inner := fieldOf(copied.Elem(), setting); inner.field.IsValid() {
			if err := inner.set(name, text); err != nil {
				return err
			}
			at.field.Set(copied)
			return nil
		}
	} else if !nested && at.field.IsValid() && at.field.Kind() != reflect.Pointer {
		return at.set(name, text)
	}
	return fmt.Errorf("the objective has no setting %s; rcgrpo kinds grpo --profile paper lists them", name)
}

// settingField is a field of a settings struct with its allowed strings.
type settingField struct {
	field   reflect.Value
	choices []string
}

// fieldOf returns the field with an hcl tag of that name, or an invalid field.
func fieldOf(v reflect.Value, name string) settingField {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		tag, role, _ := strings.Cut(f.Tag.Get("hcl"), ",")
		if tag == name && (role == "optional" || role == "block") {
			return settingField{v.Field(i), strings.Split(f.Tag.Get("choices"), "|")}
		}
	}
	return settingField{}
}

func (f settingField) set(name, text string) error {
	var err error
	want := "a number"
	switch f.field.Kind() {
	case reflect.String:
		value := strings.Trim(text, `"`)
		if !slices.Contains(f.choices, value) {
			return fmt.Errorf("%s is one of %s; got %q", name, strings.Join(f.choices, ", "), value)
		}
		f.field.SetString(value)
	case reflect.Bool:
		var value bool
		want = "true or false"
		value, err = strconv.ParseBool(text)
		f.field.SetBool(value)
	case reflect.Int:
		var value int64
		want = "a whole number"
		value, err = strconv.ParseInt(text, 10, 64)
		f.field.SetInt(value)
	default:
		var value float64
		value, err = strconv.ParseFloat(text, 64)
		f.field.SetFloat(value)
	}
	if err != nil {
		return fmt.Errorf("%s is %s; got %q", name, want, text)
	}
	return nil
}
