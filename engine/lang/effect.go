package lang

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/hashicorp/hcl/v2"
)

// EffectChecker is a stage that knows which settings have no effect on its result, given the other settings. A
// file that sets such a setting to another value than the default is wrong, and the decoder reports it. Pages mark
// the defaults among them (Setting.NoEffect).
type EffectChecker interface {
	// WithoutEffect returns these settings by name ("clip.low", "alarm[0].limit") with the reason, a clause such
	// as "a constant rate does not fall". It is called if Check reports nothing.
	WithoutEffect() map[string]string
}

// markEffects sets NoEffect of each setting of an instance and reports those that the file sets without effect.
// ranges are the ranges of the settings in the file.
func (in *instance) markEffects(ranges map[string]hcl.Range) hcl.Diagnostics {
	teller, ok := in.stage.(EffectChecker)
	if !ok {
		return nil
	}
	idle := teller.WithoutEffect()
	if len(idle) == 0 {
		return nil
	}
	defaults := map[string]string{}
	for _, s := range settingsOf(in.block.kind.defaults(in.stage)) {
		defaults[s.Name] = s.Value
	}
	var diags hcl.Diagnostics
	for i := range in.settings {
		s := &in.settings[i]
		s.NoEffect = idle[s.Name]
		at, written := ranges[s.Name]
		if value, known := defaults[s.Name]; s.NoEffect == "" || !written || known && value == s.Value {
			continue
		}
		diags = append(diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Setting without effect",
			Subject: &at,
			Detail: fmt.Sprintf("%s = %s has no effect: %s. Remove it.", s.Name,
				strings.ReplaceAll(s.Value, `","`, `", "`), s.NoEffect)})
	}
	return diags
}

// defaults returns a stage with the default settings and the preset of stage.
func (k *Kind) defaults(stage Stage) Stage {
	fresh := k.New()
	v := reflect.ValueOf(stage).Elem()
	for _, f := range fieldsOf(v.Type()) {
		if name := v.FieldByIndex(f.index); f.preset && name.String() != "" {
			fresh.(Preset).UsePreset(name.String())
		}
	}
	return fresh
}

func settingsOf(stage Stage) []Setting {
	var w settingsWalker
	w.structure(reflect.ValueOf(stage).Elem(), "", true)
	return w.settings
}
