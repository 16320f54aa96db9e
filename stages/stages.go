// Package stages lists the kinds of stages of an experiment, one package per kind. Start with Kinds. It also
// gives the command views of policies: Memory and Layout. The kind report is in package reports, which no stage
// may import.
package stages

import (
	"slices"

	"rcgrpo/engine/lang"
	"rcgrpo/stages/curate"
	"rcgrpo/stages/endpoint"
	"rcgrpo/stages/eval"
	"rcgrpo/stages/exec"
	"rcgrpo/stages/grpo"
	"rcgrpo/stages/model"
	"rcgrpo/stages/rollout"
	"rcgrpo/stages/sft"
	"rcgrpo/stages/tasks"
)

// Kinds returns the kinds in their usual order in an experiment.
func Kinds() []*lang.Kind {
	return slices.Concat(
		[]*lang.Kind{model.Kind(), endpoint.Kind(), tasks.Kind(), rollout.Kind(), curate.Kind()},
		sft.Kinds(),
		grpo.Kinds(),
		[]*lang.Kind{eval.Kind(), exec.Kind()},
	)
}

// Advice returns the setting that a stage is advised to change on its devices, a clause; "" for none.
func Advice(n *lang.Node) string {
	if s, ok := n.Stage.(lang.Advised); ok {
		return s.Advice(n.Resources.GPUs)
	}
	return ""
}
