package stages

import (
	"testing"

	"rcgrpo/engine"
)

// Several devices are for commands, which know what to do with them; all other stages are one process on one
// device.
func TestOnlyExecMayHaveSeveralDevices(t *testing.T) {
	for _, k := range Kinds() {
		if k.Devices != (k.Name == "exec") {
			t.Errorf("kind %s: several devices is %v", k.Name, k.Devices)
		}
	}
}

func TestSettingsOfAllKindsAreWellFormed(t *testing.T) {
	for _, mistake := range engine.Registry(Kinds()).Check() {
		t.Error(mistake)
	}
}
