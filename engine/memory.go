package engine

import (
	"context"
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// memoryOf is how many bytes a stage may use on its device: what its resources state, or else what the smallest of the
// devices that it may get has, the site file grants, or the machine has. 0 where nobody says.
func (m machine) memoryOf(n *Node) int64 {
	if n.Resources.GPUs == 0 {
		switch {
		case n.Resources.Memory > 0:
			return n.Resources.Memory
		case m.memory > 0:
			return m.memory
		}
		return ownMemory()
	}
	if n.Resources.GPUMemory > 0 {
		return n.Resources.GPUMemory
	}
	least := int64(0)
	for _, id := range m.gpus {
		if d := m.view.find(id); d != nil && d.total > 0 && (least == 0 || d.total < least) {
			least = d.total
		}
	}
	return least
}

// ownMemory is that of the machine this process runs on.
var ownMemory = sync.OnceValue(func() int64 { return machineMemory(os.DirFS("/")) })

// Memory is how many bytes the stage may use on its device; 0 where nobody says. Of a GPU the driver is asked.
func (j *Job) Memory() int64 {
	if j.memory == nil {
		return 0
	}
	return j.memory()
}

// memoryFor is memoryOf for a stage that has been given its devices.
func memoryFor(ctx context.Context, site *Site, n *Node, gpus []string) int64 {
	m := machineFor(ctx, site, len(gpus) > 0 && n.Resources.GPUMemory == 0)
	if len(gpus) > 0 {
		m.gpus = gpus
	}
	return m.memoryOf(n)
}

// machineMemory is the memory of the machine, or of the control group that this process lives in where that is less; 0
// where the system does not say. root is the file system of the machine.
func machineMemory(root fs.FS) int64 {
	least := int64(0)
	bound := func(n int64) {
		if n > 0 && (least == 0 || n < least) {
			least = n
		}
	}
	text, _ := fs.ReadFile(root, "proc/meminfo")
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			kib, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			bound(kib << 10)
		}
	}
	controlGroups(root, "memory", func(folder string, unified bool) {
		file := "memory.limit_in_bytes"
		if unified {
			file = "memory.max"
		}
		text, _ := fs.ReadFile(root, path.Join(folder, file))
		n, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64) // "max" is no bound
		bound(n)
	})
	return least
}

// ownCPUs is how many processors this process may use.
var ownCPUs = sync.OnceValue(func() int { return machineCPUs(os.DirFS("/"), runtime.NumCPU()) })

// machineCPUs is the number of processors, or what the control group that this process lives in gets of them where that is less, rounded
// up. root is the file system of the machine.
func machineCPUs(root fs.FS, processors int) int {
	least := processors
	read := func(folder, file string) string {
		text, _ := fs.ReadFile(root, path.Join(folder, file))
		return string(text)
	}
	controlGroups(root, "cpu", func(folder string, unified bool) {
		said := read(folder, "cpu.cfs_quota_us") + " " + read(folder, "cpu.cfs_period_us")
		if unified {
			said = read(folder, "cpu.max")
		}
		words := strings.Fields(said) // time on processors in each period; "max" or -1 is no bound
		if len(words) != 2 {
			return
		}
		quota, _ := strconv.ParseInt(words[0], 10, 64)
		period, _ := strconv.ParseInt(words[1], 10, 64)
		if quota > 0 && period > 0 {
			least = min(least, int((quota+period-1)/period))
		}
	})
	return least
}

// controlGroups calls f with the folder of the control group that this process lives in, as far as a controller is concerned, and of those
// around it, which bound it too. unified says that the files in it have the names of the newer form.
func controlGroups(root fs.FS, controller string, f func(folder string, unified bool)) {
	groups, _ := fs.ReadFile(root, "proc/self/cgroup")
	for line := range strings.Lines(string(groups)) {
		id, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, _ := strings.Cut(rest, ":")
		folder, unified := "sys/fs/cgroup", id == "0"
		if !unified {
			if !slices.Contains(strings.Split(controllers, ","), controller) {
				continue
			}
			folder = path.Join(folder, controller)
		}
		for g := path.Clean("/" + group); ; g = path.Dir(g) {
			f(path.Join(folder, g), unified)
			if g == "/" {
				break
			}
		}
	}
}
