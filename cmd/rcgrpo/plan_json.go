package main

import (
	"io"
	"slices"

	"rcgrpo/engine/plan"
)

// planNodeJSON is one node of `plan --json`.
type planNodeJSON struct {
	Address   string            `json:"address"`
	Kind      string            `json:"kind"`
	Seed      *int64            `json:"seed,omitempty"`
	Verb      plan.Verb         `json:"verb"`
	Cause     *plan.Cause       `json:"cause,omitempty"`
	Key       string            `json:"key,omitempty"`
	Inputs    []planInputJSON   `json:"inputs,omitempty"`
	After     []string          `json:"after,omitempty"`
	Outputs   map[string]string `json:"outputs,omitempty"` // port -> artifact type
	Digests   map[string]string `json:"digests,omitempty"` // port -> SHA-256, if recorded
	Expect    float64           `json:"expect_seconds,omitempty"`
	Bytes     int64             `json:"expect_bytes,omitempty"`
	Placement *placementJSON    `json:"placement,omitempty"` // of nodes that run or may run
	Begins    string            `json:"begins,omitempty"`
	Needs     *memoryJSON       `json:"memory_plan,omitempty"` // of nodes that run a model of known shape
	Executor  string            `json:"executor,omitempty"`
	GPUs      int               `json:"gpus,omitempty"`
	CPUs      int               `json:"cpus,omitempty"`
	Memory    int64             `json:"memory_bytes,omitempty"`
	GPUMemory int64             `json:"gpu_memory_bytes,omitempty"`
	File      string            `json:"file"`
	Line      int               `json:"line"`
}

// memoryJSON is the memory that a node needs on its device.
type memoryJSON struct {
	Bytes int64  `json:"bytes"`
	Has   int64  `json:"has_bytes,omitempty"` // absent if unknown
	Text  string `json:"text"`
	Unfit string `json:"unfit,omitempty"`
}

// placementJSON is the place and time of a node, or the reason why it cannot run.
type placementJSON struct {
	Executor string   `json:"executor,omitempty"`
	CPUs     int      `json:"cpus,omitempty"`
	GPUs     []string `json:"gpus,omitempty"`
	Start    float64  `json:"start_seconds"`
	Unfit    string   `json:"unfit,omitempty"`
}

type forecastJSON struct {
	Wall     float64 `json:"wall_seconds"`
	Work     float64 `json:"stage_seconds"`
	GPUHours float64 `json:"gpu_hours"`
	Bytes    int64   `json:"disk_bytes"`
	Unknown  int     `json:"unknown"` // nodes without a record; not part of the sums
}

type planInputJSON struct {
	Setting string `json:"setting"`
	Address string `json:"address"`
	Port    string `json:"port"`
}

// writePlanJSON prints a plan for programs. Fields may be added; their meaning does not change while format is 1.
func writePlanJSON(w io.Writer, p *plan.Plan, f plan.Forecast) error {
	out := struct {
		Format     int            `json:"format"`
		Experiment string         `json:"experiment"`
		Store      string         `json:"store"`
		Seeds      []int64        `json:"seeds"`
		Changes    bool           `json:"changes"`
		Counts     map[string]int `json:"counts"`
		Nodes      []planNodeJSON `json:"nodes"`
		Disabled   []string       `json:"disabled,omitempty"`
		Unlike     []string       `json:"unlike,omitempty"` // published copies that are missing, edited or outdated
		Forecast   forecastJSON   `json:"forecast"`
	}{
		1, p.Experiment.Name, p.Store.Dir(), p.Experiment.Seeds, p.Changes(), map[string]int{}, []planNodeJSON{},
		p.Experiment.Disabled, p.Unlike(),
		forecastJSON{f.Wall.Seconds(), f.Work.Seconds(), f.GPUHours, f.Bytes, f.Unknown},
	}
	for _, n := range p.Nodes {
		out.Counts[string(n.Verb)]++
		j := planNodeJSON{
			Address: n.Address, Kind: n.Kind.Name, Seed: n.Seed, Verb: n.Verb, Key: n.Key, Outputs: n.Outputs,
			Expect: n.Estimate.Seconds(), Bytes: n.EstimateBytes, Begins: n.ContinuesFrom, Executor: n.Executor,
			GPUs: n.Resources.GPUs, CPUs: n.Resources.CPUs, Memory: n.Resources.Memory, GPUMemory: n.Resources.GPUMemory,
			File: n.Range.Filename, Line: n.Range.Start.Line,
		}
		if n.Cause.Reason != plan.ReasonNone {
			j.Cause = &n.Cause
		}
		if at, ok := f.Placements[n]; ok {
			j.Placement = &placementJSON{at.Executor, at.CPUs, at.GPUs, at.Start.Seconds(), at.Unfit}
		}
		if plan, ok := memoryOf(n, f); ok {
			j.Needs = &memoryJSON{Bytes: plan.Bytes, Has: f.Placements[n].Memory, Text: plan.Text}
			if plan.Unfit != nil {
				j.Needs.Unfit = plan.Unfit.Error()
			}
		}
		for _, in := range n.Inputs {
			j.Inputs = append(j.Inputs, planInputJSON{in.Setting, in.From.Address, in.Ref.Port})
		}
		for _, a := range n.DependsOn {
			j.After = append(j.After, a.Address)
		}
		if n.Manifest != nil {
			j.Digests = map[string]string{}
			for port, o := range n.Manifest.Outputs {
				j.Digests[port] = o.Digest
			}
		}
		slices.Sort(j.After)
		out.Nodes = append(out.Nodes, j)
	}
	return printJSON(w, out)
}
