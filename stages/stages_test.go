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

func TestSettingsOfAllKindsAreWellFormed(t *testing.T) {
	for _, mistake := range lang.Registry(Kinds()).Check() {
		t.Error(mistake)
	}
}
