package reports

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// resources are what a machine is busy with, as far as it tells.
type resources struct {
	CPU         float64 `json:"cpu"`          // share of all cores since the last look
	Memory      int64   `json:"memory"`       // bytes in use
	MemoryTotal int64   `json:"memory_total"` // 0: unknown
	GPUs        string  `json:"gpus,omitempty"`
}

// cpuTimes are jiffies since the machine started.
type cpuTimes struct{ busy, all float64 }

// machine looks at /proc and, where there is one, the NVIDIA driver's command.
func machine(before cpuTimes) (now cpuTimes, r resources) {
	if stat, err := os.ReadFile("/proc/stat"); err == nil {
		now = readCPU(stat)
		if all := now.all - before.all; before.all > 0 && all > 0 {
			r.CPU = (now.busy - before.busy) / all
		}
	}
	if info, err := os.ReadFile("/proc/meminfo"); err == nil {
		total, available := readMemory(info)
		r.Memory, r.MemoryTotal = total-available, total
	}
	if _, err := exec.LookPath("nvidia-smi"); err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		out, err := exec.CommandContext(ctx, "nvidia-smi", "--query-gpu=index,utilization.gpu,memory.used,memory.total", "--format=csv,noheader,nounits").Output()
		if err == nil {
			r.GPUs = readGPUs(out)
		}
	}
	return now, r
}

// readCPU reads the first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal.
func readCPU(stat []byte) cpuTimes {
	var t cpuTimes
	line, _, _ := bytes.Cut(stat, []byte("\n"))
	for i, field := range strings.Fields(string(line)) {
		v, err := strconv.ParseFloat(field, 64)
		if i == 0 || i > 8 || err != nil {
			continue
		}
		t.all += v
		if i != 4 && i != 5 {
			t.busy += v
		}
	}
	return t
}

// readMemory reads MemTotal and MemAvailable of /proc/meminfo, in bytes.
func readMemory(info []byte) (total, available int64) {
	for line := range strings.Lines(string(info)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		n, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			continue
		}
		switch fields[0] {
		case "MemTotal:":
			total = n << 10
		case "MemAvailable:":
			available = n << 10
		}
	}
	return total, available
}

// readGPUs makes words of the driver's table: "GPU 0: 87 %, 11 of 141 GB".
func readGPUs(table []byte) string {
	var words []string
	for line := range strings.Lines(string(table)) {
		fields := strings.Split(strings.TrimSpace(line), ", ")
		if len(fields) != 4 {
			continue
		}
		used, err1 := strconv.ParseFloat(fields[2], 64)
		total, err2 := strconv.ParseFloat(fields[3], 64)
		if err1 != nil || err2 != nil {
			continue
		}
		words = append(words, "GPU "+fields[0]+": "+fields[1]+" %, "+strconv.FormatFloat(used*1.048576e-3, 'f', 0, 64)+" of "+strconv.FormatFloat(total*1.048576e-3, 'f', 0, 64)+" GB")
	}
	return strings.Join(words, "; ")
}
