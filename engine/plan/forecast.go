package plan

import (
	"context"
	"slices"
	"time"

	"rcgrpo/engine/lang"
	"rcgrpo/engine/machine"
	"rcgrpo/engine/sched"
)

// Forecast is the expected cost of running a plan, if every stage takes its estimated time and every stage that may run
// runs. Stages without an estimate count as nothing and are counted in Unknown.
type Forecast struct {
	Wall       time.Duration // from the start of the run to its end, on this machine
	Work       time.Duration // of all stages together
	GPUHours   float64       // devices times hours
	Stated     float64       // GPU hours among them from the throughput that the site file states
	Bytes      int64         // size of the results in the store
	FetchBytes int64         // from the remote store
	Unknown    int           // stages without an estimate
	Placements map[*Planned]Placement
}

// Placement is where and when a node would run.
type Placement struct {
	Executor string
	CPUs     int
	GPUs     []string      // IDs of its devices
	Start    time.Duration // after the start of the run
	Memory   int64         // bytes that it may use on each of its devices; 0: unknown

	HostMemory int64  // bytes that it may use in the host's memory, beside GPUs
	Unfit      string // why it can never run here; the other fields are then empty
}

// estimate gives nodes the time of their last run, and nodes that have never run the median of the recorded runs of
// their stage (other seeds, other instances), or else of their kind in this experiment; times per update, if the kind
// has such a length.
func (p *Plan) estimate() {
	type likeness struct{ kind, name string }
	times, bytes := map[likeness][]time.Duration{}, map[likeness][]int64{}
	for _, d := range p.Nodes {
		if d.Last == nil {
			continue
		}
		each := d.Last.Duration() / time.Duration(p.ran(d.Node, d.Last))
		d.Estimate, d.EstimateBytes = each*time.Duration(d.length), d.Last.Bytes()
		for _, like := range []likeness{{d.Kind.Name, d.Name}, {d.Kind.Name, ""}} {
			times[like] = append(times[like], each)
			bytes[like] = append(bytes[like], d.Last.Bytes())
		}
	}

	for like := range times {
		slices.Sort(times[like])
		slices.Sort(bytes[like])
	}
	for _, d := range p.Nodes {
		like := likeness{d.Kind.Name, d.Name}
		if times[like] == nil {
			like.name = ""
		}
		if n := len(times[like]); n > 0 && d.Last == nil {
			d.Estimate, d.EstimateBytes = times[like][n/2]*time.Duration(d.length), bytes[like][n/2]
		}
		d.estimateTokens(p.Experiment.Site)
	}
}

// Sizer is a stage that knows from its settings how many tokens of episodes it samples and trains on, at most.
type Sizer interface{ EpisodeTokens() float64 }

// estimateTokens estimates a node that has never run from the tokens that a GPU of the site processes per second.
func (d *Planned) estimateTokens(site *lang.Site) {
	if s, ok := d.Stage.(Sizer); ok && d.Estimate == 0 && d.Resources.GPUs > 0 && site != nil && site.GPUTokens > 0 {
		seconds := s.EpisodeTokens() / (site.GPUTokens * float64(d.Resources.GPUs))
		d.Estimate, d.Stated = time.Duration(seconds*float64(time.Second)), true
	}
}

// simulation runs the scheduler over estimated times instead of stages.
type simulation struct {
	open     []*simulated
	machine  machine.Machine
	site     *lang.Site
	queue    sched.Queue
	requests map[*sched.Request]*simulated
	moment   int // number of stages that have ended
}

// simulated is a node that a run executes or may execute.
type simulated struct {
	*Planned
	time    time.Duration // that it takes
	readers []*simulated  // nodes that wait for it
	waits   int           // number of nodes that it waits for
	path    time.Duration // estimated time of the longest path from its start to the end
	gpus    []string
	end     time.Time
}

// newSimulation simulates the nodes for which takes returns a time and true.
func (p *Plan) newSimulation(takes func(*Planned) (time.Duration, bool)) *simulation {
	s := &simulation{requests: map[*sched.Request]*simulated{}, site: p.Experiment.Site}
	byNode := map[*lang.Node]*simulated{}
	for _, d := range p.Nodes {
		time, open := takes(d)
		if !open {
			continue
		}
		n := &simulated{Planned: d, time: time}
		s.open = append(s.open, n)
		byNode[d.Node] = n
		for _, from := range d.Before() {
			up := byNode[from]
			if up != nil && (len(up.readers) == 0 || up.readers[len(up.readers)-1] != n) {
				up.readers = append(up.readers, n)
				n.waits++
			}
		}
	}
	for _, n := range slices.Backward(s.open) {
		for _, reader := range n.readers {
			n.path = max(n.path, reader.path)
		}
		n.path += max(n.time, time.Second) // without an estimate every stage counts the same
	}
	return s
}

// open reports whether a run executes the node, or may execute it.
func (d *Planned) open() bool {
	return d.Verb != UpToDate && d.Verb != Fetch && !d.NotHere()
}

// Forecast simulates a run of the plan.
func (p *Plan) Forecast(ctx context.Context) Forecast {
	s := p.newSimulation(func(d *Planned) (time.Duration, bool) { return d.Estimate, d.open() })
	needsGPU := slices.ContainsFunc(s.open, func(n *simulated) bool {
		return n.Resources.GPUs > 0 && s.site.ExecutorOf(n.Node) == "local"
	})
	s.machine = machine.Detect(ctx, s.site, needsGPU)
	f := Forecast{Placements: map[*Planned]Placement{}}
	for _, d := range p.Nodes {
		f.FetchBytes += d.FetchBytes()
	}
	for _, n := range s.open {
		if n.Estimate == 0 {
			f.Unknown++
		}
		f.Work += n.Estimate
		hours := n.Estimate.Hours() * float64(n.Resources.GPUs)
		f.GPUHours += hours
		if n.Stated {
			f.Stated += hours
		}
		f.Bytes += n.EstimateBytes
		if why := s.unfit(n.Node); why != "" {
			f.Placements[n.Planned] = Placement{Unfit: why}
		}
	}
	f.Wall = s.run(f.Placements)
	return f
}

// run fills placements and returns the time from the first start to the last end.
func (s *simulation) run(placements map[*Planned]Placement) time.Duration {
	begin := time.Now()
	now, free := begin, s.machine.GPUs
	s.queue.Free = sched.Share{CPUs: s.machine.CPUs, GPUs: len(free), Memory: s.machine.Memory}
	ready := slices.DeleteFunc(slices.Clone(s.open), func(n *simulated) bool { return n.waits > 0 })
	for _, n := range ready {
		s.ready(n)
	}
	var running []*sched.Request
	for {
		for q := s.queue.Next(now); q != nil; q = s.queue.Next(now) {
			n := s.requests[q]
			n.gpus, n.end = slices.Clone(free[:q.Need.GPUs]), now.Add(n.time)
			free = free[q.Need.GPUs:]
			placements[n.Planned] = s.place(n, now.Sub(begin))
			running = append(running, q)
		}
		if len(running) == 0 {
			return now.Sub(begin)
		}
		slices.SortStableFunc(running, func(a, b *sched.Request) int {
			return s.requests[a].end.Compare(s.requests[b].end)
		})
		q := running[0]
		running = running[1:]
		n := s.requests[q]
		now = n.end
		s.moment++
		s.queue.Release(q)
		free = append(free, n.gpus...)
		slices.Sort(free)
		s.ended(n)
	}
}

// place returns the placement of a node that starts now. The devices and the memory of a cluster are not known.
func (s *simulation) place(n *simulated, start time.Duration) Placement {
	p := Placement{Executor: s.site.ExecutorOf(n.Node), CPUs: max(1, n.Resources.CPUs), Start: start,
		Memory: n.Resources.GPUMemory, HostMemory: n.Resources.Memory}
	if p.Executor == "local" {
		p.CPUs, p.GPUs = s.machine.Share(n.Resources).CPUs, n.gpus
		p.Memory, p.HostMemory = s.machine.MemoryOf(n.Resources)
	}
	return p
}

// unfit explains why a node can never run here; "" if it can, or if it runs on a cluster.
func (s *simulation) unfit(n *lang.Node) string {
	if s.site.ExecutorOf(n) != "local" {
		return ""
	}
	return s.machine.Unfit(n)
}

// ready queues a node. A node that can never run here is skipped, so that its readers are placed all the same.
func (s *simulation) ready(n *simulated) {
	if s.unfit(n.Node) != "" {
		s.ended(n)
		return
	}
	q := &sched.Request{ID: n.Address, ReadyAt: s.moment, Path: n.path, Estimate: n.time}
	if s.site.ExecutorOf(n.Node) == "local" {
		q.Need = s.machine.Share(n.Resources)
	}
	s.requests[q] = n
	s.queue.Add(q)
}

func (s *simulation) ended(n *simulated) {
	for _, reader := range n.readers {
		if reader.waits--; reader.waits == 0 {
			s.ready(reader)
		}
	}
}
