package reports

import (
	"cmp"
	"slices"
	"strings"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/reports/page"
)

// Design is what the arms of an experiment differ in. Nothing of it is read from a label.
type Design struct {
	Model  string `json:"model,omitempty"`  // key of the module of its stages, or apiModels
	Init   string `json:"init,omitempty"`   // "SFT", "RCTP-FT"; "" for a policy that read no data set
	Method string `json:"method,omitempty"` // "GRPO", "RC-GRPO"; "" for a policy without RL
}

// initial names the model and the initialisation: "qwen/SFT".
func (d Design) initial() string { return strings.TrimPrefix(d.Model+"/"+d.Init, "/") }

// apiModels is the model of arms whose policy is an endpoint.
const apiModels = "API models"

// designOf follows the policy of a stage to its base model and reads the types of the ports on the way: the last stage
// that learned from a data set is the initialisation, the last one that learned on tasks the method. The labels of an
// evaluation take precedence. ref names the stage.
func designOf(n *lang.Node, ref artifact.Ref) (d Design) {
	d.Model = strings.TrimSuffix(moduleKeys(ref), "/")
	at := n
	if _, labeled := n.Stage.(lang.Labeled); labeled { // an evaluation reads tasks and learns nothing
		at = policyOf(n)
	}
	for ; at != nil; at = policyOf(at) {
		reads := func(port string) bool {
			return slices.ContainsFunc(at.Inputs, func(in lang.Input) bool { return in.Ref.Type == port })
		}
		name := strings.ToUpper(at.Kind.Name)
		switch {
		case d.Method == "" && reads("tasks"):
			d.Method = name
		case d.Init == "" && policyOf(at) != nil && reads("dataset"):
			d.Init = name
		}
	}
	for _, in := range n.Inputs {
		if in.Setting == "policy" && in.Ref.Type == "endpoint" {
			d.Model = apiModels
		}
	}
	if stage, ok := n.Stage.(lang.Labeled); ok {
		l := stage.Labels()
		d = Design{cmp.Or(l.Model, d.Model), cmp.Or(l.Init, d.Init), cmp.Or(l.Method, d.Method)}
	}
	return d
}

// policyOf returns the stage whose policy the stage reads; nil for a base model.
func policyOf(n *lang.Node) *lang.Node {
	for _, in := range n.Inputs {
		if in.Setting == "policy" {
			return in.From
		}
	}
	return nil
}

// Names of the groups of arms, in the order of the rows.
const (
	groupBaselines = "Baselines"
	groupArms      = "Arms"
)

// baseline reports whether the arm is only compared with: other arms of the study were trained by RL, this one was
// not.
func (s *Study) baseline(a *Arm) bool {
	trained := func(a *Arm) bool { return a.Method != "" || a.hasCurve() }
	return !trained(a) && slices.ContainsFunc(s.Arms, func(b Arm) bool { return trained(&b) })
}

// group names the rows to which the arm belongs.
func (s *Study) group(a *Arm) string {
	group := groupArms
	if s.baseline(a) {
		group = groupBaselines
	}
	if a.Model == apiModels {
		return a.Model
	} else if a.Model != "" {
		return a.Model + ": " + strings.ToLower(group)
	}
	return group
}

// groupArms sorts the arms stably into their groups, baselines first, and the proposed method to the end of its group.
func (s *Study) groupArms() {
	models := []string{apiModels} // above the others
	proposed := s.proposed()
	rank := map[string][]int{}
	for _, a := range s.Arms {
		last := map[bool]int{true: 1}
		rank[a.Label] = []int{page.IndexOrAppend(&models, a.Model), last[!s.baseline(&a)], last[a.Label == proposed]}
	}
	slices.SortStableFunc(s.Arms, func(a, b Arm) int { return slices.Compare(rank[a.Label], rank[b.Label]) })
}

// proposed returns the second arm of the first comparison if all its pairs have the same one, "" otherwise.
func (s *Study) proposed() string {
	if len(s.Compare) > 0 && len(s.Compare[0].Pairs) > 0 && s.Compare[0].subject() == s.Compare[0].Pairs[0][1] {
		return s.Compare[0].subject()
	}
	return ""
}

// definitions explain the paper's methods and its measure of the signal, for readers who do not know the paper.
var definitions = []page.Term{
	{Name: "SFT", Text: "fine-tuning on expert trajectories"},
	{Name: "RCTP-FT", Text: "fine-tuning on good and bad episodes, each with a reward token, high or low"},
	{Name: "GRPO", Text: "RL that compares several episodes of one task, a group"},
	{Name: "RC-GRPO", Text: "GRPO whose episodes each draw a reward token"},
	{Name: "group without variance", Text: "all its rewards are equal, so nothing is learned"},
}

// terms returns the definitions of what the arms differ in, and of the measure if the question is about it.
func (s *Study) terms() []page.Term {
	return slices.DeleteFunc(slices.Clone(definitions), func(t page.Term) bool {
		return !slices.ContainsFunc(s.Arms, func(a Arm) bool { return a.Init == t.Name || a.Method == t.Name }) &&
			!(strings.HasPrefix(t.Name, "group") && slices.ContainsFunc(s.leading(), func(c Comparison) bool {
				return c.Outcome == "zero_variance"
			}))
	})
}

// cross returns the arms of the largest complete table of initialisations by methods that starts with the first
// initialisation: its rows (Design.initial) and methods, and the label of each arm. Arms with equal designs stay out of
// it, because no cell could name one of them.
func (s *Study) cross(set string) (rows, methods []string, label func(row, method string) string) {
	labels := map[[2]string][]string{}
	for i := range s.Arms {
		a := &s.Arms[i]
		if a.Method != "" && len(a.scored(set, true).runs) > 0 {
			cell := [2]string{a.initial(), a.Method}
			labels[cell] = append(labels[cell], a.Label)
			page.IndexOrAppend(&rows, a.initial())
			page.IndexOrAppend(&methods, a.Method)
		}
	}
	has := func(row, method string) bool { return len(labels[[2]string{row, method}]) == 1 }
	rows = slices.DeleteFunc(rows, func(row string) bool {
		return len(slices.DeleteFunc(slices.Clone(methods), func(m string) bool { return !has(row, m) })) < 2
	})
	methods = slices.DeleteFunc(methods, func(m string) bool {
		return slices.ContainsFunc(rows, func(row string) bool { return !has(row, m) })
	})
	return rows, methods, func(row, method string) string { return labels[[2]string{row, method}][0] }
}
