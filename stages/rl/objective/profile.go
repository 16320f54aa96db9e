package objective

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Profile is a named convention.
type Profile struct {
	Name, Source string
	Objective    Objective
}

// ProfileSettings are the settings and blocks of an Objective that a profile sets.
var ProfileSettings = []string{"advantage", "ratio", "clip", "loss", "kl", "sampler_correction",
	"minibatches", "passes", "entropy", "zero_variance"}

// profiles are the conventions of other trainers and papers, as their differences from the paper's.
var profiles = []struct{ name, source, settings string }{
	{"paper", "RC-GRPO, equations of section 3.2", ""},
	{"verl", "verl, compute_policy_loss_vanilla and its GRPO defaults", `advantage.ddof=1 advantage.lone=reward
		ratio.level=token clip.dual=3 loss.aggregate=token_mean loss.rows=non_empty loss.count_eps=1e-8
		kl.beta=0 kl.log_clamp=20 kl.value_clamp=10 minibatches=256`},
	{"trl", "TRL 1.16, GRPOTrainer with its default loss type dapo", `advantage.ddof=1 advantage.eps=1e-4
		ratio.level=token ratio.log_clamp=0 loss.aggregate=token_mean kl.beta=0`},
	{"openrlhf", "OpenRLHF, PolicyLoss with group_norm and the penalty in the reward", `advantage.ddof=1
		advantage.eps=1e-9 ratio.level=token loss.aggregate=token_mean loss.rows=non_empty loss.count_eps=1e-8
		kl.beta=0.01 kl.estimator=k1 kl.place=reward kl.aggregate=token_mean kl.value_clamp=10`},
	{"dr_grpo", "Liu et al. 2025: no deviation, constant length", `advantage.scale=none advantage.eps=0
		ratio.level=token ratio.log_clamp=0 loss.aggregate=constant loss.scale=1024 kl.beta=0`},
	{"dapo", "Yu et al. 2025: higher upper bound, token mean, resampling", `advantage.ddof=1 advantage.lone=reward
		ratio.level=token clip.high=0.28 clip.dual=10 loss.aggregate=token_mean loss.rows=non_empty kl.beta=0
		zero_variance=resample`},
	{"gspo", "Zheng et al. 2025: sequence-mean ratio", `advantage.ddof=1 advantage.lone=reward
		ratio.level=sequence_mean ratio.log_clamp=10 ratio.only_above=true clip.low=3e-4 clip.high=4e-4
		loss.aggregate=trajectory_mean loss.rows=non_empty loss.count_eps=1e-8 kl.beta=0`},
}

// Profiles returns the conventions of other trainers and papers, the first the paper's, as fresh copies. They
// cover the objective only, not rates, schedules and sizes.
func Profiles() []Profile {
	list := make([]Profile, len(profiles))
	for i, p := range profiles {
		o := PaperObjective()
		o.Profile = p.name
		for setting := range strings.FieldsSeq(p.settings) {
			name, value, _ := strings.Cut(setting, "=")
			if err := o.Set(name, value); err != nil {
				panic(err) // the table above names a setting that does not exist
			}
		}
		list[i] = Profile{p.name, p.source, o}
	}
	return list
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
	unknown := fmt.Errorf("the objective has no setting %s; rcgrpo kinds grpo --profile paper lists them", name)
	block, setting, nested := strings.Cut(name, ".")
	field, choices := fieldOf(reflect.ValueOf(o).Elem(), block)
	if !field.IsValid() || nested != (field.Kind() == reflect.Pointer) || field.Kind() == reflect.Slice {
		return unknown
	}
	if !nested {
		return assign(field, choices, name, text)
	}
	copied := reflect.New(field.Type().Elem())
	copied.Elem().Set(field.Elem())
	inner, choices := fieldOf(copied.Elem(), setting)
	if !inner.IsValid() {
		return unknown
	}
	if err := assign(inner, choices, name, text); err != nil {
		return err
	}
	field.Set(copied)
	return nil
}

// fieldOf returns the field with an hcl tag of that name, or an invalid field, and its allowed strings.
func fieldOf(v reflect.Value, name string) (field reflect.Value, choices []string) {
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		hcl, role, _ := strings.Cut(tag.Get("hcl"), ",")
		if hcl == name && (role == "optional" || role == "block") {
			return v.Field(i), strings.Split(tag.Get("choices"), "|")
		}
	}
	return field, nil
}

// assign sets the field of the named setting.
func assign(field reflect.Value, choices []string, name, text string) error {
	if field.Kind() == reflect.String {
		text = strings.Trim(text, `"`)
		if !slices.Contains(choices, text) {
			return fmt.Errorf("%s is one of %s; got %q", name, strings.Join(choices, ", "), text)
		}
		field.SetString(text)
		return nil
	}
	if err := json.Unmarshal([]byte(text), field.Addr().Interface()); err != nil {
		want := map[reflect.Kind]string{reflect.Bool: "true or false", reflect.Int: "a whole number"}
		return fmt.Errorf("%s is %s; got %q", name, cmp.Or(want[field.Kind()], "a number"), text)
	}
	return nil
}
