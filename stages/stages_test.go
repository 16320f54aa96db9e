package stages

import "testing"

// Only commands may use several devices; all other stages are one process on one device.
func TestOnlyExecMayHaveSeveralDevices(t *testing.T) {
	for _, k := range Kinds() {
		if k.MultiGPU != (k.Name == "exec") {
			t.Errorf("kind %s: several devices is %v", k.Name, k.MultiGPU)
		}
	}
}
