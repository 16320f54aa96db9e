package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
)

// machine is the capacity of the local executor.
type machine struct {
	cpus   int
	gpus   []string // IDs
	memory int64    // bytes; 0: unlimited
	view   view     // the driver's answer, if a stage needs a GPU
}

// machineFor combines the site file and, if a stage needs a GPU, the driver's answer.
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

// unfit returns why a node can never run on the machine, or "".
func (m machine) unfit(n *Node) string {
	switch {
	case n.Resources.GPUs > 1 && !n.Kind.MultiGPU:
		return fmt.Sprintf("needs %s, but a %s stage uses only one: the others would be idle. Set gpus = 1; "+
			"instances and seeds run in parallel, each on its own device",
			Plural(n.Resources.GPUs, "GPU"), n.Kind.Name)
	case n.Resources.GPUs > len(m.gpus):
		return fmt.Sprintf("needs %s, and this machine offers %d (executor \"local\" of the site file, `gpus`)",
			Plural(n.Resources.GPUs, "GPU"), len(m.gpus))
	case n.Resources.GPUs > len(m.view.able(n.Resources.GPUMemory, m.gpus)):
		return fmt.Sprintf("needs %s with %d MiB each, and %d of this machine have enough memory",
			Plural(n.Resources.GPUs, "GPU"),
			n.Resources.GPUMemory>>20, len(m.view.able(n.Resources.GPUMemory, m.gpus)))
	case m.memory > 0 && n.Resources.Memory > m.memory:
		return fmt.Sprintf("needs %d bytes of memory, and the site file allows %d", n.Resources.Memory, m.memory)
	}
	return ""
}

// share returns what a node reserves on the machine, at most all CPUs.
func (m machine) share(n *Node) share {
	s := share{cpus: min(max(1, n.Resources.CPUs), m.cpus), gpus: n.Resources.GPUs}
	if m.memory > 0 {
		s.memory = n.Resources.Memory
	}
	return s
}
