package sched

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// simJob is a request in a simulation with its real run time and the jobs that wait for it.
type simJob struct {
	Request
	took    time.Duration
	waits   int
	readers []*simJob
	ended   time.Time
}

// simulate runs jobs in virtual time and returns when the last one ended. It reports GPUs that are reserved twice,
// and starvation (overtaken).
func simulate(t *testing.T, jobs []*simJob, gpus int) time.Duration {
	t.Helper()
	s := &Queue{Free: Share{CPUs: 1 << 20, GPUs: gpus, Memory: 1 << 60}}
	begin := time.Unix(0, 0)
	now, moment, free := begin, 0, gpus
	of := map[*Request]*simJob{}
	var running []*simJob
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
			j.ended = now.Add(j.took)
			running = append(running, j)
			if free -= c.Need.GPUs; free < 0 {
				t.Fatalf("%d GPUs are reserved twice", -free)
			}
			first := min(len(s.Waiting), 20)
			if started++; started%50 == 0 || len(s.Waiting) < 100 { // all of a long queue only now and then
				first = len(s.Waiting)
			}
			overtaken(t, s.Waiting[:first], c)
		}
		if len(running) == 0 {
			break
		}
		moment++
		j := slices.MinFunc(running, func(a, b *simJob) int { return a.ended.Compare(b.ended) })
		running = slices.DeleteFunc(running, func(r *simJob) bool { return r == j })
		now = j.ended
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
		t.Fatalf("%d of %d jobs ran, %d of %d GPUs are free at the end", done, len(jobs), free, gpus)
	}
	return now.Sub(begin)
}

// overtaken reports requests that wait while a request starts that needs as many GPUs or more and was released
// later, or together with them and is behind them in the queue.
func overtaken(t *testing.T, waiting []*Request, starts *Request) {
	t.Helper()
	for _, c := range waiting {
		earlier := c.ReadyAt < starts.ReadyAt || c.ReadyAt == starts.ReadyAt && c.compare(starts) < 0
		if c.Need.GPUs <= starts.Need.GPUs && earlier {
			t.Fatalf("a request for %d GPUs, released at %d, waits while one for %d starts, released at %d",
				c.Need.GPUs, c.ReadyAt, starts.Need.GPUs, starts.ReadyAt)
		}
	}
}

// simJobs draws jobs with 1, 2, 4 or 8 GPUs and log-normal run times (a median of one minute, σ = 1) in layers:
// except in the first layer, each job waits for two jobs of the layer before.
func simJobs(rng *rand.Rand, n, layers int) []*simJob {
	jobs := make([]*simJob, n)
	per := n / layers
	for i := range jobs {
		gpus := 8
		switch p := rng.Float64(); {
		case p < 0.5:
			gpus = 1
		case p < 0.75:
			gpus = 2
		case p < 0.9:
			gpus = 4
		}
		took := time.Duration(math.Exp(rng.NormFloat64()) * float64(time.Minute))
		jobs[i] = &simJob{Request: Request{Need: Share{CPUs: 1, GPUs: gpus}, Estimate: took}, took: took}
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
			j.Path = max(j.Path, r.Path)
		}
		j.Path += j.took
	}
	return jobs
}

// lowerBound is the least possible makespan: the total GPU time divided by the GPUs, or the longest path.
func lowerBound(jobs []*simJob, gpus int) time.Duration {
	var area, path time.Duration
	for _, j := range jobs {
		area += j.took * time.Duration(j.Need.GPUs)
		path = max(path, j.Path)
	}
	return max(area/time.Duration(gpus), path)
}

func TestSimulatedSchedulesAreTightAndStarveNobody(t *testing.T) {
	const n, gpus = 10000, 8
	for name, layers := range map[string]int{"all released at once": 1, "layers": 20} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range 20 {
				jobs := simJobs(rand.New(rand.NewPCG(uint64(seed), 8)), n, layers)
				bound := lowerBound(jobs, gpus)
				if ratio := float64(simulate(t, jobs, gpus)) / float64(bound); ratio > 1.10 {
					t.Errorf("seed %d: the makespan is %.3f × the lower bound, want at most 1.10", seed, ratio)
				}
			}
		})
	}
}

// need returns a request. minutes is its estimate (0: unknown), released its logical time.
func need(cpus, gpus, minutes, released int) *Request {
	d := time.Duration(minutes) * time.Minute
	return &Request{Need: Share{CPUs: cpus, GPUs: gpus}, ReadyAt: released, Estimate: d, Path: d}
}

func TestLargeRequestHasAReservation(t *testing.T) {
	at := time.Unix(0, 0)
	for name, tc := range map[string]struct {
		running, large, later *Request
		starts                bool // later starts while large waits
	}{
		"ends before the large one can start":   {need(1, 1, 60, 0), need(1, 8, 10, 1), need(1, 1, 50, 2), true},
		"would delay the large one":             {need(1, 1, 60, 0), need(1, 8, 10, 1), need(1, 1, 70, 2), false},
		"leaves enough beside the large one":    {need(1, 4, 60, 0), need(1, 6, 10, 1), need(1, 2, 70, 2), true},
		"its run time is unknown":               {need(1, 1, 60, 0), need(1, 8, 10, 1), need(1, 1, 0, 2), false},
		"the start of the large one is unknown": {need(1, 1, 0, 0), need(1, 8, 10, 1), need(1, 1, 1, 2), false},
		"without GPUs, enough CPUs":             {need(1, 1, 60, 0), need(1, 8, 10, 1), need(4, 0, 70, 2), true},
		"without GPUs, too few CPUs":            {need(1, 1, 60, 0), need(8, 8, 10, 1), need(4, 0, 70, 2), false},
		"needs as many":                         {need(1, 4, 60, 0), need(6, 4, 10, 1), need(1, 4, 5, 2), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Queue{Free: Share{CPUs: 8, GPUs: 8}}
			if name == "needs as many" { // the first lacks CPUs, not devices
				s.Free.CPUs = 6
			}
			s.Add(tc.running)
			if s.Next(at) != tc.running {
				t.Fatal("the first does not start on an empty machine")
			}
			s.Add(tc.large)
			s.Add(tc.later)
			var want *Request
			if tc.starts {
				want = tc.later
			}
			if got := s.Next(at); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
			s.Release(tc.running)
			if tc.starts {
				s.Release(tc.later)
			}
			if got := s.Next(at.Add(time.Hour)); got != tc.large {
				t.Errorf("got %+v, want the large one to start once it has room", got)
			}
		})
	}
}

// A request for all GPUs starts although small requests arrive all the time.
func TestLargeRequestStartsInAStreamOfSmallOnes(t *testing.T) {
	s := &Queue{Free: Share{CPUs: 64, GPUs: 8}}
	now := time.Unix(0, 0)
	large := need(1, 8, 10, 1)
	var running []*Request
	for moment := range 200 {
		now = now.Add(time.Minute)
		for range 8 {
			s.Add(need(1, 1, 5, moment))
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
	t.Error("the large one never started")
}

func TestRemovedRequestReservesNothing(t *testing.T) {
	s := &Queue{Free: Share{CPUs: 8, GPUs: 2}}
	running, large, small := need(1, 1, 60, 0), need(1, 2, 10, 0), need(1, 1, 90, 0)
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
