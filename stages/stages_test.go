package stages

import (
	"testing"

	"rcgrpo/engine/lang"
)

// Only commands may use several devices; all other stages are one process on one device.
func TestOnlyExecMayHaveSeveralDevices(t *testing.T) {
	for _, k := range Kinds() {
		if k.MultiGPU != (k.Name == "exec") {
			t.Errorf("kind %s: several devices is %v", k.Name, k.MultiGPU)
		}
	}
}

// Describe panics if a tag or a type of a setting is none of package lang.
func TestSettingsOfAllKindsAreWellFormed(t *testing.T) {
	taken := map[string]bool{}
	for _, s := range lang.StageSettings() {
		taken["setting "+s.Name] = true
	}
	for _, k := range Kinds() {
		d := k.Describe()
		for _, preset := range k.Presets() {
			k.DescribePreset(preset)
		}
		if taken[k.Name] || d.Summary == "" || d.Version < 1 || k.AfterFailures && !k.InProcess {
			t.Errorf("kind %s: want a name of its own, a summary, a version, and AfterFailures with InProcess only", k.Name)
		}
		taken[k.Name] = true
		for _, s := range d.Settings {
			if taken["setting "+s.Name] {
				t.Errorf("kind %s: setting %s means something else in every stage", k.Name, s.Name)
			}
		}
	}
}
