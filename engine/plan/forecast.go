package plan

import (
	"cmp"
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
	Bytes      int64         // size of the results in the store
	Unknown    int           // stages without an estimate
	Placements map[*Planned]Placement
}

// Placement is where and when a node would run.
type Placement struct {
	Executor string
	CPUs     int
	GPUs     []string      // IDs of its devices
	Start    time.Duration // after the start of the run
	Memory   int64         // bytes that it may use on its device; 0: unknown
	Unfit    string        // why it can never run here; the other fields are then empty
}

// estimate gives nodes that have never run the median of the recorded runs of their stage (other seeds, other
// instances), or else of their kind in this experiment.
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
			d.Estimate, d.EstimateBytes = times[like][n/2], bytes[like][n/2]
		}
	}
}

// simulation schedules the open nodes of a plan, those that a run executes or may execute, in simulated time.
type simulation struct {
	nodes   []*Planned
	readers [][]int         // of each node, the nodes that wait for it
	waits   []int           // of each node, the number of open nodes that it waits for
	rank    []time.Duration // of each node, the estimated time of the longest path from its start to the end

	machine  machine.Machine
	executor string // of nodes that name none
	queue    sched.Queue
	requests map[*sched.Request]int // node of each request
	now      time.Time
	moment   int // number of stages that have ended
}

func newSimulation(nodes []*Planned) *simulation {
	s := &simulation{requests: map[*sched.Request]int{}}
	index := map[*lang.Node]int{}
	for _, d := range nodes {
		if d.Verb != UpToDate && !d.Collected() {
			index[d.Node] = len(s.nodes)
			s.nodes = append(s.nodes, d)
		}
	}
	n := len(s.nodes)
	s.readers, s.waits, s.rank = make([][]int, n), make([]int, n), make([]time.Duration, n)
	for i, d := range s.nodes {
		before := slices.Clone(d.DependsOn)
		if d.DuplicateOf != nil {
			before = append(before, d.DuplicateOf.Node)
		}
		for _, in := range d.Inputs {
			before = append(before, in.From)
		}
		seen := map[int]bool{}
		for _, from := range before {
			if up, open := index[from]; open && !seen[up] {
				seen[up] = true
				s.readers[up] = append(s.readers[up], i)
				s.waits[i]++
			}
		}
	}
	for i := n - 1; i >= 0; i-- {
		for _, reader := range s.readers[i] {
			s.rank[i] = max(s.rank[i], s.rank[reader])
		}
		s.rank[i] += max(s.nodes[i].Estimate, time.Second) // without a record every stage counts the same
	}
	return s
}

// Forecast runs the scheduler over estimated times instead of stages.
func (p *Plan) Forecast(ctx context.Context) Forecast {
	s := newSimulation(p.Nodes)
	needsGPU := slices.ContainsFunc(s.nodes, func(d *Planned) bool { return d.Resources.GPUs > 0 })
	s.machine = machine.Detect(ctx, p.Experiment.Site, needsGPU)
	s.executor = cmp.Or(p.Experiment.Site.Executor, "local")
	f := Forecast{Placements: map[*Planned]Placement{}}
	for _, d := range s.nodes {
		if d.Estimate == 0 {
			f.Unknown++
		}
		f.Work += d.Estimate
		f.GPUHours += d.Estimate.Hours() * float64(d.Resources.GPUs)
		f.Bytes += d.EstimateBytes
		if why := s.machine.Unfit(d.Node); why != "" {
			f.Placements[d] = Placement{Unfit: why}
		}
	}
	f.Wall = s.run(f.Placements)
	return f
}

// run fills placements and returns the time from the first start to the last end.
func (s *simulation) run(placements map[*Planned]Placement) time.Duration {
	type execution struct {
		request *sched.Request
		gpus    []string
		end     time.Time
	}
	begin := time.Now()
	s.now = begin
	s.queue.Free = sched.Share{CPUs: s.machine.CPUs, GPUs: len(s.machine.GPUs), Memory: s.machine.Memory}
	free := s.machine.GPUs
	for i, n := range slices.Clone(s.waits) {
		if n == 0 {
			s.ready(i)
		}
	}
	var running []execution
	for {
		for q := s.queue.Next(s.now); q != nil; q = s.queue.Next(s.now) {
			d := s.nodes[s.requests[q]]
			e := execution{q, slices.Clone(free[:q.Need.GPUs]), s.now.Add(d.Estimate)}
			free = free[q.Need.GPUs:]
			placements[d] = Placement{Executor: cmp.Or(d.Executor, s.executor), CPUs: q.Need.CPUs, GPUs: e.gpus,
				Start: s.now.Sub(begin), Memory: s.machine.MemoryOf(d.Resources)}
			running = append(running, e)
		}
		if len(running) == 0 {
			return s.now.Sub(begin)
		}
		slices.SortStableFunc(running, func(a, b execution) int { return a.end.Compare(b.end) })
		e := running[0]
		running = running[1:]
		s.moment++
		s.now = e.end
		s.queue.Release(e.request)
		free = append(free, e.gpus...)
		slices.Sort(free)
		s.ended(s.requests[e.request])
	}
}

// ready queues a node. A node that can never run here is skipped, so that its readers are placed all the same.
func (s *simulation) ready(i int) {
	d := s.nodes[i]
	if s.machine.Unfit(d.Node) != "" {
		s.ended(i)
		return
	}
	q := &sched.Request{ID: d.Address, Need: s.machine.Share(d.Resources), ReadyAt: s.moment, Rank: s.rank[i],
		Estimate: d.Estimate}
	s.requests[q] = i
	s.queue.Add(q)
}

func (s *simulation) ended(i int) {
	for _, reader := range s.readers[i] {
		if s.waits[reader]--; s.waits[reader] == 0 {
			s.ready(reader)
		}
	}
}
