package stages

import "rcgrpo/engine/lang"

// Advice returns the setting that a stage is advised to change on its devices, a clause; "" for none.
func Advice(n *lang.Node) string {
	if s, ok := n.Stage.(interface{ Advice(gpus int) string }); ok {
		return s.Advice(n.Resources.GPUs)
	}
	return ""
}
