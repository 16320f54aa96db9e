package sched

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// simJob is a request in a simulation with its real run time and the jobs that wait for it.
type simJob struct {
	Request
	took    time.Duration
	waits   int
	readers []*simJob
	starts  time.Time
	running bool
}

// simEnds is a heap of running jobs, ordered by end.
type simEnds []*simJob

func (h simEnds) Len() int { return len(h) }
func (h simEnds) Less(i, j int) bool {
	return h[i].starts.Add(h[i].took).Before(h[j].starts.Add(h[j].took))
}
func (h simEnds) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *simEnds) Push(x any)   { *h = append(*h, x.(*simJob)) }
func (h *simEnds) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// simulate runs jobs in virtual time and returns when the last one ended. It reports devices given twice and
// starvation: a job that waits while a later one (released later, or together with it and behind it in the
// queue) that asks for as many devices or more starts.
func simulate(t *testing.T, jobs []*simJob, gpus int) time.Duration {
	t.Helper()
	s := &Queue{Free: Share{CPUs: 1 << 20, GPUs: gpus, Memory: 1 << 60}}
	begin := time.Unix(0, 0)
	now, moment := begin, 0
	of := map[*Request]*simJob{}
	var ends simEnds
	free := gpus
	release := func(j *simJob) {
		j.ReadyAt = moment
		of[&j.Request] = j
		s.Add(&j.Request)
	}
	for _, j := range jobs {
		if j.waits == 0 {
			release(j)
		}
	}
	done, started := 0, 0
	for {
		for c := s.Next(now); c != nil; c = s.Next(now) {
			j := of[c]
			j.starts, j.running = now, true
			heap.Push(&ends, j)
			if free -= c.Need.GPUs; free < 0 {
				t.Fatalf("%d GPUs are reserved twice", -free)
			}
			// Checks all requests now and then, and always the first of each size.
			if started++; started%50 == 0 || len(s.Waiting) < 100 {
				overtaken(t, s.Waiting, c)
			} else {
				overtaken(t, s.Waiting[:min(len(s.Waiting), 20)], c)
			}
		}
		if len(ends) == 0 {
			break
		}
		moment++
		j := heap.Pop(&ends).(*simJob)
		now = j.starts.Add(j.took)
		s.Release(&j.Request)
		free += j.Need.GPUs
		done++
		for _, r := range j.readers {
			if r.waits--; r.waits == 0 {
				release(r)
			}
		}
	}
	if done != len(jobs) || free != gpus {
		t.Fatalf("%d of %d jobs ran, %d of %d devices are free at the end", done, len(jobs), free, gpus)
	}
	return now.Sub(begin)
}

// overtaken reports those who wait although one that was released later, or together with them and stands behind
// them, starts and asks for as many devices or more.
func overtaken(t *testing.T, waiting []*Request, starts *Request) {
	t.Helper()
	for _, c := range waiting {
		if c.Need.GPUs <= starts.Need.GPUs && (c.ReadyAt < starts.ReadyAt || c.ReadyAt == starts.ReadyAt &&
			c.compare(starts) < 0) {
			t.Fatalf("one of %d devices, released at %d, waits while one of %d starts, released at %d", c.Need.GPUs,
				c.ReadyAt, starts.Need.GPUs, starts.ReadyAt)
		}
	}
}

// simJobs draws gangs of 1, 2, 4 and 8 devices that take log-normal times (a median of one minute, σ = 1), in layers:
// each job but those of the first waits for two of the layer before.
func simJobs(rng *rand.Rand, n, layers int) []*simJob {
	jobs := make([]*simJob, n)
	per := n / layers
	for i := range jobs {
		gang := 8
		switch p := rng.Float64(); {
		case p < 0.5:
			gang = 1
		case p < 0.75:
			gang = 2
		case p < 0.9:
			gang = 4
		}
		took := time.Duration(math.Exp(rng.NormFloat64()) * float64(time.Minute))
		jobs[i] = &simJob{Request: Request{Need: Share{CPUs: 1, GPUs: gang}, Estimate: took}, took: took}
		if layer := min(i/per, layers-1); layer > 0 {
			for range 2 {
				up := jobs[(layer-1)*per+rng.IntN(per)]
				up.readers = append(up.readers, jobs[i])
				jobs[i].waits++
			}
		}
	}
	for i := n - 1; i >= 0; i-- {
		j := jobs[i]
		for _, r := range j.readers {
			j.Rank = max(j.Rank, r.Rank)
		}
		j.Rank += j.took
	}
	return jobs
}

// lowerBound is the least possible makespan: the total GPU time divided by the GPUs, or the longest path.
func lowerBound(jobs []*simJob, gpus int) time.Duration {
	var area, path time.Duration
	for _, j := range jobs {
		area += j.took * time.Duration(j.Need.GPUs)
		path = max(path, j.Rank)
	}
	return max(area/time.Duration(gpus), path)
}

func TestSimulatedSchedulesAreTightAndStarveNobody(t *testing.T) {
	const n, gpus = 10000, 8
	for _, shape := range []struct {
		name   string
		layers int
	}{{"all released at once", 1}, {"layers", 20}} {
		t.Run(shape.name, func(t *testing.T) {
			t.Parallel()
			worst := 0.0
			for seed := range 20 {
				jobs := simJobs(rand.New(rand.NewPCG(uint64(seed), 8)), n, shape.layers)
				bound := lowerBound(jobs, gpus)
				ratio := float64(simulate(t, jobs, gpus)) / float64(bound)
				worst = max(worst, ratio)
				if ratio > 1.10 {
					t.Errorf("seed %d: the makespan is %.3f × the lower bound, want at most 1.10", seed, ratio)
				}
			}
			t.Logf("worst of 20 seeds: %.4f × the lower bound", worst)
		})
	}
}

// gang returns a request: CPUs, GPUs, estimated minutes (0: unknown), logical time.
func gang(cpus, gpus, minutes, released int) *Request {
	d := time.Duration(minutes) * time.Minute
	return &Request{Need: Share{CPUs: cpus, GPUs: gpus}, ReadyAt: released, Estimate: d, Rank: d}
}

func TestLargeRequestHasAReservation(t *testing.T) {
	at := time.Unix(0, 0)
	for name, tc := range map[string]struct {
		running, large, later *Request
		starts                bool // later does, while large waits
	}{
		"ends before the gang's turn":      {gang(1, 1, 60, 0), gang(1, 8, 10, 1), gang(1, 1, 50, 2), true},
		"would delay the gang":             {gang(1, 1, 60, 0), gang(1, 8, 10, 1), gang(1, 1, 70, 2), false},
		"leaves enough beside the gang":    {gang(1, 4, 60, 0), gang(1, 6, 10, 1), gang(1, 2, 70, 2), true},
		"its run time is unknown":          {gang(1, 1, 60, 0), gang(1, 8, 10, 1), gang(1, 1, 0, 2), false},
		"the start of the gang is unknown": {gang(1, 1, 0, 0), gang(1, 8, 10, 1), gang(1, 1, 1, 2), false},
		"without devices, beside it":       {gang(1, 1, 60, 0), gang(1, 8, 10, 1), gang(4, 0, 70, 2), true},
		"without devices, in its way":      {gang(1, 1, 60, 0), gang(8, 8, 10, 1), gang(4, 0, 70, 2), false},
		"asks for as many":                 {gang(1, 4, 60, 0), gang(6, 4, 10, 1), gang(1, 4, 5, 2), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Queue{Free: Share{CPUs: 8, GPUs: 8}}
			if name == "asks for as many" { // the first lacks CPUs, not devices
				s.Free.CPUs = 6
			}
			s.Add(tc.running)
			if s.Next(at) != tc.running {
				t.Fatal("the first does not start on an empty machine")
			}
			s.Add(tc.large)
			s.Add(tc.later)
			switch got := s.Next(at); {
			case tc.starts && got != tc.later:
				t.Errorf("got %+v, want the later one to start", got)
			case !tc.starts && got != nil:
				t.Errorf("got %+v, want no start", got)
			}
			s.Release(tc.running)
			if tc.starts {
				s.Release(tc.later)
			}
			if got := s.Next(at.Add(time.Hour)); got != tc.large {
				t.Errorf("got %+v, want the gang to start once it has room", got)
			}
		})
	}
}

// A request for all GPUs starts although small requests arrive all the time.
func TestLargeRequestStartsInAStreamOfSmallOnes(t *testing.T) {
	s := &Queue{Free: Share{CPUs: 64, GPUs: 8}}
	now := time.Unix(0, 0)
	large := gang(1, 8, 10, 1)
	var running []*Request
	for moment := range 200 {
		now = now.Add(time.Minute)
		for range 8 {
			s.Add(gang(1, 1, 5, moment))
		}
		if moment == 1 {
			s.Add(large)
		}
		for c := s.Next(now); c != nil; c = s.Next(now) {
			if c == large {
				return
			}
			running = append(running, c)
		}
		for len(running) > 0 && !running[0].ends.After(now.Add(time.Minute)) {
			s.Release(running[0])
			running = running[1:]
		}
	}
	t.Error("the gang never started")
}

func TestRemovedRequestReservesNothing(t *testing.T) {
	s := &Queue{Free: Share{CPUs: 8, GPUs: 2}}
	running, large, small := gang(1, 1, 60, 0), gang(1, 2, 10, 0), gang(1, 1, 90, 0)
	for _, c := range []*Request{small, large} {
		s.Add(c)
	}
	s.Add(running)
	if got := s.Next(time.Unix(0, 0)); got != small { // the longest path
		t.Fatalf("got %+v, want the longest path first", got)
	}
	s.Remove(large)
	if got := s.Next(time.Unix(0, 0)); got != running || len(s.Waiting) != 0 {
		t.Errorf("got %+v with %d in the queue, want the last one", got, len(s.Waiting))
	}
	s.Remove(large) // it is not waiting
}
