package machine

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/dustin/go-humanize/english"

	"rcgrpo/engine/lang"
	"rcgrpo/engine/proc"
	"rcgrpo/engine/sched"
	"rcgrpo/internal/cpu"
)

// Machine is the hardware that stages may use.
type Machine struct {
	CPUs   int
	GPUs   []string // ids
	Memory int64    // bytes; 0: unlimited
	Driver GPUs     // zero if no stage needs a GPU

	Kernels    error // why this processor cannot compute with tensors, or nil
	GPUReserve int64 // bytes of each GPU that no stage plans with
	GPUMemory  int64 // bytes of each GPU as the site file states them; 0: what the driver reports
}

// Detect combines the site file with this machine. It queries the driver only if a stage needs a GPU.
func Detect(ctx context.Context, site *lang.Site, needsGPU bool) Machine {
	site = cmp.Or(site, &lang.Site{AutoGPUs: true, GPUReserve: lang.DefaultGPUReserve})
	m := Machine{CPUs: cmp.Or(site.CPUs, ownCPUs()), GPUs: slices.Clone(site.GPUs), Memory: site.Memory,
		GPUReserve: site.GPUReserve}
	_, m.Kernels = cpu.Kernels()
	if needsGPU {
		m.Driver = QueryGPUs(ctx)
		m.GPUMemory = site.GPUMemory
	}
	if needsGPU && site.AutoGPUs {
		for _, d := range m.Driver.devices {
			m.GPUs = append(m.GPUs, d.index)
		}
	}
	return m
}

// Unfit explains why a node can never run on the machine; "" if it can.
func (m Machine) Unfit(n *lang.Node) string {
	r := n.Resources
	gpus := english.Plural(r.GPUs, "GPU", "")
	large := len(m.Driver.WithMemory(r.GPUMemory, m.GPUs))
	switch {
	case r.GPUs > 1 && !n.Kind.MultiGPU && n.Kind.Ranks == nil:
		return fmt.Sprintf("requests %s, but a %s stage uses only one; the others would be idle. "+
			"Write gpus = 1: instances and seeds run in parallel, each on its own GPU", gpus, n.Kind.Name)
	case r.GPUs > len(m.GPUs):
		return fmt.Sprintf("requests %s, but this machine offers %d (executor \"local\" of the site file, `gpus`)",
			gpus, len(m.GPUs))
	case r.GPUs > large:
		return fmt.Sprintf("requests %s with %d MiB each, but only %d of this machine have that much",
			gpus, r.GPUMemory>>20, large)
	case m.Memory > 0 && r.Memory > m.Memory:
		return fmt.Sprintf("requests %d bytes of memory, but the site file grants %d", r.Memory, m.Memory)
	case m.Kernels != nil && n.Kind.Ranks != nil && n.Kind.Ranks(n.Stage) > 0: // all kinds with ranks use tensors
		return fmt.Sprintf("uses tensors: %v", m.Kernels)
	}
	return ""
}

// Share returns the part of the machine that a node occupies: at most all CPUs.
func (m Machine) Share(r lang.Resources) sched.Share {
	s := sched.Share{CPUs: min(max(1, r.CPUs), m.CPUs), GPUs: r.GPUs}
	if m.Memory > 0 {
		s.Memory = r.Memory
	}
	return s
}

// MemoryOf returns the bytes that a stage may use on each of its devices, and in the host's memory beside GPUs; 0:
// unknown. On a GPU this is the memory that its resources state, or else that of the site file or of the smallest it
// may get, without the reserve; on the host it is that of its resources, of the site file, or of this machine.
// Processes that share a stage on the CPU have equal shares.
func (m Machine) MemoryOf(r lang.Resources) (device, host int64) {
	host = cmp.Or(r.Memory, m.Memory, ownMemory())
	if r.GPUs == 0 {
		return host / int64(max(1, r.Processes)), host
	}
	if r.GPUMemory > 0 {
		return r.GPUMemory, host
	}
	if m.GPUMemory > m.GPUReserve {
		return m.GPUMemory - m.GPUReserve, host
	}
	for _, id := range m.GPUs {
		if d := m.Driver.find(id); d != nil && d.total > m.GPUReserve && (device == 0 || d.total-m.GPUReserve < device) {
			device = d.total - m.GPUReserve
		}
	}
	return device, host
}

var (
	ownMemory = sync.OnceValue(func() int64 { return machineMemory(os.DirFS("/")) })
	ownCPUs   = sync.OnceValue(func() int { return machineCPUs(os.DirFS("/"), runtime.NumCPU()) })
)

// machineMemory returns the memory of the machine, or the limit of this process's control groups if that is lower;
// 0: unknown. root is the file system of the machine.
func machineMemory(root fs.FS) int64 {
	least := int64(0)
	limit := func(n int64) {
		if n > 0 && (least == 0 || n < least) {
			least = n
		}
	}
	text, _ := fs.ReadFile(root, "proc/meminfo")
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			var kib int64
			fmt.Sscan(rest, &kib)
			limit(kib << 10)
		}
	}
	proc.ControlGroups(root, "memory", func(folder string, v2 bool) {
		file := "memory.limit_in_bytes"
		if v2 {
			file = "memory.max"
		}
		text, _ := fs.ReadFile(root, path.Join(folder, file))
		n, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64) // "max" is no limit
		limit(n)
	})
	return least
}

// machineCPUs returns the number of processors, or the quota of this process's control groups, rounded up, if that is
// lower. root is the file system of the machine.
func machineCPUs(root fs.FS, processors int) int {
	least := processors
	read := func(folder, file string) string {
		text, _ := fs.ReadFile(root, path.Join(folder, file))
		return string(text)
	}
	proc.ControlGroups(root, "cpu", func(folder string, v2 bool) {
		text := read(folder, "cpu.cfs_quota_us") + " " + read(folder, "cpu.cfs_period_us")
		if v2 {
			text = read(folder, "cpu.max")
		}
		var quota, period int // CPU time per period; "max" or -1 is no limit
		if _, err := fmt.Sscan(text, &quota, &period); err == nil && quota > 0 && period > 0 {
			least = min(least, (quota+period-1)/period)
		}
	})
	return least
}
