// Package curate contains the stage kind `curate`: data sets of trajectories for fine-tuning.
//
// The port expert contains one trajectory per task, made by executing the ground truth of the task, or the
// successes of rollouts. The port mixed (paper, appendix on the dataset) contains the same trajectories marked
// high and failures marked low, at an exact ratio. A failure is a rollout with reward 0 or an expert episode
// spoilt on purpose, labeled as such; both are executed and checked to have reward 0. If all rollouts of a task
// succeeded, other tasks fill its quota; summary.json (a Summary) counts this for pages.
package curate

import (
	"fmt"

	"github.com/dustin/go-humanize/english"
	"github.com/hashicorp/hcl/v2"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/stages/rl/blocks"
)

// SummaryFile is the file of the port mixed that holds its Summary.
const SummaryFile = "summary.json"

// Summary counts the contents of a mixed data set.
type Summary struct {
	Experts    int `json:"experts"`
	Real       int `json:"real"`        // failures from rollouts
	Spoilt     int `json:"spoilt"`      // failures made from experts
	Rollouts   int `json:"rollouts"`    // rollouts offered
	Missing    int `json:"missing"`     // rollouts without a reward, whose environment failed
	Failed     int `json:"failed"`      // rollouts with reward 0
	Duplicates int `json:"duplicates"`  // failed ones that repeat another of their task
	NoFailure  int `json:"no_failure"`  // tasks without a failed rollout, whose quota passed on
	ShortReal  int `json:"short_real"`  // real failures asked for and not to be had, replaced by spoilt ones
	Unspoiled  int `json:"unspoilable"` // tasks whose expert episode could not be spoilt, whose quota passed on
}

// Kind returns the stage kind.
func Kind() *lang.Kind {
	return &lang.Kind{
		Name: "curate",
		Summary: "Data sets for fine-tuning: expert trajectories, and experts with failures at an exact ratio, marked " +
			"by reward token.",
		Version: 3,
		New:     func() lang.Stage { return &settings{Ratio: 1} },
		Outputs: func(s lang.Stage) map[string]string {
			ports := map[string]string{"expert": "dataset"}
			if s.(*settings).mixes() {
				ports["mixed"] = "dataset"
			}
			return ports
		},
		Stochastic: func(s lang.Stage) bool { return s.(*settings).mixes() },
		Light:      true,
	}
}

type settings struct {
	// tasks whose ground truth makes the experts
	Tasks artifact.Ref `hcl:"tasks" port:"tasks"`
	// rollouts on these tasks, such as those of an API model: their different episodes with reward 1 are the experts
	// instead
	Experts []artifact.Ref `hcl:"experts,optional" port:"trajectories"`
	// rollouts on these tasks; those with reward 0 are real failures. Sample more than needed: without spoilt
	// failures the stage fails if too many rollouts succeed or repeat
	Failures []artifact.Ref `hcl:"failures,optional" port:"trajectories"`
	// failures per expert trajectory (paper: 1)
	Ratio float64 `hcl:"ratio,optional"`
	// share of failures that are spoilt expert episodes
	Spoilt float64 `hcl:"spoilt,optional"`

	At map[string]hcl.Range `hcl:",ranges"`
}

// CheckInputs reports rollouts that may contain too few failures for the mixed data set, before they are sampled.
// It reports nothing if spoilt experts can fill the gap or if the number of episodes is unknown.
func (s *settings) CheckInputs(n *lang.Node) hcl.Diagnostics {
	if s.Spoilt > 0 || s.Ratio <= 0 || len(s.Failures) == 0 {
		return nil
	}
	offered := 0
	for _, ref := range s.Failures {
		in, ok := n.Input(ref)
		if !ok {
			return nil
		}
		sampler, ok := in.From.Stage.(lang.EpisodeSampler)
		if !ok {
			return nil
		}
		offered += sampler.EpisodesPerTask()
	}
	d := &hcl.Diagnostic{Severity: hcl.DiagWarning, Summary: "Barely enough rollouts", Subject: s.At["failures"].Ptr()}
	fatal := fmt.Sprintf("more than %.0f %% of them succeed or repeat a failure", 100*(1-s.Ratio/float64(offered)))
	switch {
	case s.Ratio >= float64(offered):
		d.Severity, d.Summary, fatal = hcl.DiagError, "Too few rollouts", "one of them succeeds or repeats a failure"
	case 2*s.Ratio <= float64(offered):
		return nil
	}
	d.Detail = fmt.Sprintf("ratio = %v requires that many real failures per task, and the stages in failures sample %s "+
		"per task: this stage fails if %s. Raise samples of the rollouts, lower ratio, or allow spoilt experts (spoilt "+
		"above 0).", s.Ratio, english.Plural(offered, "rollout", ""), fatal)
	return hcl.Diagnostics{d}
}

// Size implements lang.Sizer.
func (s *settings) Size(inputs map[string]lang.Size) (map[string]lang.Size, float64) {
	experts := inputs["tasks"]
	return map[string]lang.Size{"expert": experts, "mixed": experts.Times(1 + s.Ratio)}, 0
}

func (s *settings) Check() (diags hcl.Diagnostics) {
	bad := blocks.Mistakes(&diags)
	bad(s.Ratio < 0, "Negative ratio", s.At["ratio"],
		"The ratio is a number of failures per expert trajectory, at least 0; got %v.", s.Ratio)
	bad(s.Spoilt < 0 || s.Spoilt > 1, "Share out of range", s.At["spoilt"],
		"spoilt is a share of the failures, between 0 and 1; got %v.", s.Spoilt)
	return diags
}

// WithoutEffect returns the settings that have no effect in combination with the others.
func (s *settings) WithoutEffect() map[string]string {
	e := blocks.Effects{}
	e.Add(!s.mixes(), "without failures, real or spoilt, there is no port mixed", "ratio")
	e.Add(len(s.Failures) > 0 && s.Ratio == 0, "ratio is 0, so there are no failures", "spoilt")
	return e
}

// mixes reports whether there is a port mixed.
func (s *settings) mixes() bool { return len(s.Failures) > 0 || s.Spoilt > 0 }
