package engine

import (
	"context"
	"io/fs"
	"os"
	"path"
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
	read := func(file string) {
		text, _ := fs.ReadFile(root, file)
		n, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64) // "max" is no bound
		bound(n)
	}
	groups, _ := fs.ReadFile(root, "proc/self/cgroup")
	for line := range strings.Lines(string(groups)) {
		id, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, _ := strings.Cut(rest, ":")
		folder, file := "", ""
		switch {
		case id == "0":
			folder, file = "sys/fs/cgroup", "memory.max"
		case controllers == "memory":
			folder, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		for g := path.Clean("/" + group); ; g = path.Dir(g) { // a group is bound by those it lies in
			read(path.Join(folder, g, file))
			if g == "/" {
				break
			}
		}
	}
	return least
}
