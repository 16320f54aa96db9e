package engine

import (
	"cmp"
	"context"
	"fmt"
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

// machine is what the local executor may give out.
type machine struct {
	cpus   int
	gpus   []string // ids
	memory int64    // bytes; 0: not limited
	view   view     // what the driver says of the devices, when someone wants any
}

// machineFor reads the site, and asks the driver for the devices when someone wants any.
func machineFor(ctx context.Context, site *Site, wantsGPU bool) machine {
	if site == nil {
		site = &Site{AutoGPUs: true}
	}
	m := machine{cpus: cmp.Or(site.CPUs, ownCPUs()), gpus: slices.Clone(site.GPUs), memory: site.Memory}
	if wantsGPU {
		m.view = inspectNow(ctx)
	}
	if wantsGPU && site.AutoGPUs {
		for _, d := range m.view.devices {
			m.gpus = append(m.gpus, d.index)
		}
	}
	return m
}

// unfit says why a node can never run on the machine, "" when it can.
func (m machine) unfit(n *Node) string {
	switch {
	case n.Resources.GPUs > 1 && !n.Kind.MultiGPU:
		return fmt.Sprintf("asks for %s, and a %s stage works on one so far: the others would be held and stand idle. Write gpus = 1; instances and seeds run side by side, each on a device of its own",
			Plural(n.Resources.GPUs, "GPU"), n.Kind.Name)
	case n.Resources.GPUs > len(m.gpus):
		return fmt.Sprintf("asks for %s and this machine offers %d (executor \"local\" of the site file, `gpus`)", Plural(n.Resources.GPUs, "GPU"), len(m.gpus))
	case n.Resources.GPUs > len(m.view.able(n.Resources.GPUMemory, m.gpus)):
		return fmt.Sprintf("asks for %s with %d MiB each, and %d of this machine have that much", Plural(n.Resources.GPUs, "GPU"),
			n.Resources.GPUMemory>>20, len(m.view.able(n.Resources.GPUMemory, m.gpus)))
	case m.memory > 0 && n.Resources.Memory > m.memory:
		return fmt.Sprintf("asks for %d bytes of memory and the site file grants %d", n.Resources.Memory, m.memory)
	}
	return ""
}

// share is what a node occupies of the machine. Of CPUs it gets what there is.
func (m machine) share(n *Node) share {
	s := share{cpus: min(max(1, n.Resources.CPUs), m.cpus), gpus: n.Resources.GPUs}
	if m.memory > 0 {
		s.memory = n.Resources.Memory
	}
	return s
}

// Forecast runs the scheduler over expected times instead of stages.
func (p *Plan) Forecast(ctx context.Context) Forecast {
	f := Forecast{Placements: map[*Planned]Placement{}}
	r := &run{Plan: p}
	r.link()
	m := machineFor(ctx, p.Experiment.Site, slices.ContainsFunc(r.tasks, func(t *task) bool { return !t.settled() && t.Resources.GPUs > 0 }))
	begin := time.Now()
	s := schedule{free: share{m.cpus, len(m.gpus), m.memory}}
	free, now, moment := m.gpus, begin, 0
	var running []*task
	ends := map[*task]time.Time{}
	release := func(t *task) {
		t.claim = &claim{task: t, need: m.share(t.Node), released: moment, rank: t.rank, expect: t.Estimate}
		s.add(t.claim)
	}
	var settle func(t *task) // what reads it has one less to wait for
	settle = func(t *task) {
		t.state = finished
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
		if t.settled() {
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
		if t.state == waiting && t.waits == 0 && t.claim == nil {
			if m.unfit(t.Node) != "" {
				settle(t)
			} else {
				release(t)
			}
		}
	}
	for {
		for c := s.next(now); c != nil; c = s.next(now) {
			t := c.task
			t.state = ready
			t.gpus, free = slices.Clone(free[:c.need.gpus]), free[c.need.gpus:]
			f.Placements[t.Planned] = Placement{Executor: cmp.Or(t.Executor, p.Experiment.Site.Executor, "local"), CPUs: c.need.cpus, GPUs: t.gpus, Start: now.Sub(begin),
				Memory: m.memoryOf(t.Node)}
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
		s.release(first.claim)
		free = append(free, first.gpus...)
		slices.Sort(free)
		settle(first)
	}
	f.Wall = now.Sub(begin)
	return f
}
