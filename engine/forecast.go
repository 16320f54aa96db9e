package engine

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// Forecast is what a run of a plan would cost if every stage took its expected time and whatever runs unless unchanged
// ran. Stages without expectation count as nothing and are counted.
type Forecast struct {
	Wall       time.Duration // from the start of the run to its end, on this machine
	Work       time.Duration // of all stages together
	GPUHours   float64       // devices times hours
	Bytes      int64         // that the results take in the store
	Unknown    int           // stages that nothing is known of
	Placements map[*Planned]Placement
}

// Placement is where and when a node would run.
type Placement struct {
	Executor string
	CPUs     int
	GPUs     []string      // ids of its devices
	Start    time.Duration // after the start of the run
	Memory   int64         // bytes that it may use on its device; 0 where nobody says
	Unfit    string        // why it can never run here; the rest is then empty
}

// expectLike gives nodes that have never run the expectations of what is most like them: the median of the recorded runs
// of their stage (other seeds, other instances), or else of their kind in this experiment.
func (p *Plan) estimate() {
	type likeness struct{ kind, name string }
	times, bytes := map[likeness][]time.Duration{}, map[likeness][]int64{}
	for _, d := range p.Nodes {
		if d.Last == nil {
			continue
		}
		for _, like := range []likeness{{d.Kind.Name, d.Name}, {d.Kind.Name, ""}} {
			times[like] = append(times[like], seconds(d.Last))
			bytes[like] = append(bytes[like], d.Last.Bytes())
		}
	}
	if len(times) == 0 {
		return
	}
	for like := range times {
		slices.Sort(times[like])
		slices.Sort(bytes[like])
	}
	for _, d := range p.Nodes {
		if d.Last != nil {
			continue
		}
		like := likeness{d.Kind.Name, d.Name}
		if times[like] == nil {
			like.name = ""
		}
		if n := len(times[like]); n > 0 {
			d.Estimate, d.EstimateBytes = times[like][n/2], bytes[like][n/2]
		}
	}
}

// Forecast runs the scheduler over expected times instead of stages.
func (p *Plan) Forecast(ctx context.Context) Forecast {
	f := Forecast{Placements: map[*Planned]Placement{}}
	r := &run{Plan: p}
	r.link()
	m := Detect(ctx, p.Experiment.Site, slices.ContainsFunc(r.tasks, func(t *task) bool { return t.state != ended && t.Resources.GPUs > 0 }))
	begin := time.Now()
	s := Queue{Free: Share{CPUs: m.CPUs, GPUs: len(m.GPUs), Memory: m.Memory}}
	free, now, moment := m.GPUs, begin, 0
	var running []*task
	ends := map[*task]time.Time{}
	release := func(t *task) {
		t.request = &Request{ID: t.Address, Need: m.share(t.Resources), ReadyAt: moment, Rank: t.rank, Estimate: t.Estimate}
		s.Add(t.request)
	}
	var settle func(t *task) // what reads it has one less to wait for
	settle = func(t *task) {
		t.state = ended
		for _, reader := range t.readers {
			if reader.waits--; reader.waits == 0 && reader.state == waiting {
				if m.unfit(reader.Node) != "" {
					settle(reader)
				} else {
					release(reader)
				}
			}
		}
	}
	for _, t := range r.tasks {
		if t.state == ended {
			continue
		}
		if t.Estimate == 0 {
			f.Unknown++
		}
		f.Work += t.Estimate
		f.GPUHours += t.Estimate.Hours() * float64(t.Resources.GPUs)
		f.Bytes += t.EstimateBytes
		if why := m.unfit(t.Node); why != "" {
			f.Placements[t.Planned] = Placement{Unfit: why}
		}
	}
	for _, t := range slices.Clone(r.tasks) {
		if t.state == waiting && t.waits == 0 && t.request == nil {
			if m.unfit(t.Node) != "" {
				settle(t)
			} else {
				release(t)
			}
		}
	}
	for {
		for c := s.Next(now); c != nil; c = s.Next(now) {
			t := r.byAddress[c.ID]
			t.state = ready
			t.gpus, free = slices.Clone(free[:c.Need.GPUs]), free[c.Need.GPUs:]
			f.Placements[t.Planned] = Placement{Executor: cmp.Or(t.Executor, p.Experiment.Site.Executor, "local"), CPUs: c.Need.CPUs, GPUs: t.gpus, Start: now.Sub(begin),
				Memory: m.memoryOf(t.Resources)}
			ends[t] = now.Add(t.Estimate)
			running = append(running, t)
		}
		if len(running) == 0 {
			break
		}
		first := slices.MinFunc(running, func(a, b *task) int { return ends[a].Compare(ends[b]) })
		running = slices.DeleteFunc(running, func(t *task) bool { return t == first })
		moment++
		now = ends[first]
		s.Release(first.request)
		free = append(free, first.gpus...)
		slices.Sort(free)
		settle(first)
	}
	f.Wall = now.Sub(begin)
	return f
}
