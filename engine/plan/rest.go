package plan

import (
	"context"
	"slices"
	"strings"
	"time"

	"rcgrpo/engine/lang"
	"rcgrpo/engine/machine"
)

// Rest estimates the time until the end of a run, from the progress of its stages. It needs no earlier run:
// a stage that has not started takes as long per pass over a token (lang.Sizer) as those of its kind took in this run,
// or else as all of them did.
type Rest struct {
	plan    *Plan
	machine machine.Machine
	passes  map[*Planned]float64
}

// Spent is the wall time that a stage has taken for a share of its computation, between 0 and 1.
type Spent struct {
	Share float64
	Time  time.Duration
	Ended bool
}

// NewRest returns the estimator of a plan.
func NewRest(ctx context.Context, p *Plan) *Rest {
	r := &Rest{plan: p, passes: map[*Planned]float64{}}
	ports := map[*lang.Node]map[string]lang.Size{}
	needsGPU := false
	for _, d := range p.Nodes { // in the order of their inputs
		sizer, ok := d.Stage.(lang.Sizer)
		if !ok {
			continue
		}
		inputs := map[string]lang.Size{}
		for _, in := range d.Inputs {
			setting, _, _ := strings.Cut(in.Setting, "[")
			size, sum := ports[in.From][in.Ref.Port], inputs[setting]
			inputs[setting] = lang.Size{Rows: sum.Rows + size.Rows, Tokens: sum.Tokens + size.Tokens}
		}
		sizes, passes := sizer.Size(inputs)
		ports[d.Node] = sizes
		if d.open() && passes > 0 {
			r.passes[d] = passes
			needsGPU = needsGPU || d.Resources.GPUs > 0
		}
	}
	r.machine = machine.Detect(ctx, p.Experiment.Site, needsGPU)
	return r
}

// Left returns the wall time until the end of the run, by the time that its stages have spent so far; 0 if no stage
// with a size has progressed yet. Stages of unknown size count by their last run, without one as nothing.
func (r *Rest) Left(spent map[string]Spent) time.Duration {
	type pace struct{ seconds, passes float64 }
	const all = ""
	paces := map[string]pace{} // by kind
	for d, passes := range r.passes {
		s, ok := spent[d.Address]
		if !ok || s.Share <= 0 {
			continue
		}
		for _, kind := range []string{d.Kind.Name, all} {
			sum := paces[kind]
			paces[kind] = pace{sum.seconds + s.Time.Seconds(), sum.passes + s.Share*passes}
		}
	}
	if paces[all].passes == 0 {
		return 0
	}
	s := r.plan.newSimulation(func(d *Planned) (time.Duration, bool) {
		if !d.open() || spent[d.Address].Ended {
			return 0, false
		}
		passes, sized := r.passes[d]
		if d.DuplicateOf != nil { // it takes the result of the other
			return 0, true
		}
		if !sized {
			return d.Estimate, true
		}
		p, measured := paces[d.Kind.Name]
		if !measured {
			p = paces[all]
		}
		seconds := p.seconds / p.passes * passes * (1 - spent[d.Address].Share)
		return time.Duration(seconds * float64(time.Second)), true
	})
	s.machine = r.machine
	s.machine.GPUs = slices.Clone(r.machine.GPUs)
	return s.run(map[*Planned]Placement{})
}
