// Package stages lists the kinds of stages that an experiment may use. Each kind has a package of its own; Kinds is the
// literal list. The kind report lives in package reports, which no stage may import.
package stages

import (
	"slices"

	"rcgrpo/engine"
	"rcgrpo/stages/curate"
	"rcgrpo/stages/eval"
	"rcgrpo/stages/exec"
	"rcgrpo/stages/grpo"
	"rcgrpo/stages/model"
	"rcgrpo/stages/rollout"
	"rcgrpo/stages/sft"
	"rcgrpo/stages/tasks"
)

// Kinds returns the kinds in the order in which an experiment usually has them.
func Kinds() []*engine.Kind {
	return slices.Concat(
		[]*engine.Kind{model.Kind(), tasks.Kind(), rollout.Kind(), curate.Kind()},
		sft.Kinds(),
		grpo.Kinds(),
		[]*engine.Kind{eval.Kind(), exec.Kind()},
	)
}
