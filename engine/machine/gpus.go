package machine

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"rcgrpo/engine/proc"
)

// device is a GPU as the driver describes it.
type device struct {
	index, uuid string
	total, used int64 // bytes; -1: unknown
	apps        []gpuProcess
}

// gpuProcess is a process that uses a GPU.
type gpuProcess struct {
	pid  int
	used int64 // bytes of the GPU's memory; -1: unknown
}

// driverTimeout limits one call of nvidia-smi. Tests shorten it.
var driverTimeout = 10 * time.Second

// ErrNoDriver reports that this machine has no GPU driver.
var ErrNoDriver = errors.New("there is no nvidia-smi")

// nvidiaSMI runs a query and returns the rows of its table.
func nvidiaSMI(ctx context.Context, query string) ([][]string, error) {
	path, err := exec.LookPath("nvidia-smi")
	if err != nil {
		return nil, ErrNoDriver
	}
	ctx, cancel := context.WithTimeoutCause(ctx, driverTimeout, fmt.Errorf("no answer in %v", driverTimeout))
	defer cancel()
	cmd := exec.CommandContext(ctx, path, query, "--format=csv,noheader,nounits")
	cmd.Env = append(os.Environ(), "LC_ALL=C") // the locale changes the format of numbers
	cmd.WaitDelay = time.Second                // a child process may keep the output open
	out, err := cmd.Output()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("nvidia-smi %s: %w", query, err)
	}
	table := csv.NewReader(strings.NewReader(string(out)))
	table.TrimLeadingSpace, table.FieldsPerRecord, table.LazyQuotes = true, -1, true
	rows, err := table.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("nvidia-smi %s: %w", query, err)
	}
	return rows, nil
}

// inspect queries the driver for the GPUs and the processes on them.
func inspect(ctx context.Context) ([]device, error) {
	rows, err := nvidiaSMI(ctx, "--query-gpu=index,uuid,memory.total,memory.used")
	if err != nil {
		return nil, err
	}
	var all []device
	for _, row := range rows {
		if _, err := strconv.Atoi(row[0]); err != nil || len(row) != 4 {
			return nil, fmt.Errorf("nvidia-smi: got the row %q, want index, uuid and two sizes", strings.Join(row, ", "))
		}
		all = append(all, device{index: row[0], uuid: row[1], total: mebibytes(row[2]), used: mebibytes(row[3])})
	}
	if rows, err = nvidiaSMI(ctx, "--query-compute-apps=gpu_uuid,pid,used_memory"); err != nil {
		return nil, err
	}
	for _, row := range rows {
		if len(row) != 3 { // some versions print "No running processes found"
			continue
		}
		pid, err := strconv.Atoi(row[1])
		i := slices.IndexFunc(all, func(d device) bool { return d.uuid == row[0] })
		if err != nil || i < 0 { // a MIG slice has its own uuid, which the first query does not list
			continue
		}
		all[i].apps = append(all[i].apps, gpuProcess{pid, mebibytes(row[2])})
	}
	return all, nil
}

// mebibytes parses a size; "[N/A]" and other text is -1.
func mebibytes(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return -1
	}
	return n << 20
}

// GPUs is the last answer of the driver. A GPU that the answer does not contain counts as unused.
type GPUs struct {
	At      time.Time // zero: the driver was never queried
	devices []device
	Free    []string // ids of the GPUs that no run had reserved at that time
	Err     error
}

// QueryGPUs queries the driver.
func QueryGPUs(ctx context.Context) GPUs {
	devices, err := inspect(ctx)
	return GPUs{At: time.Now(), devices: devices, Err: err}
}

// Fresh reports whether the answer is recent enough to start a stage.
func (g GPUs) Fresh(now time.Time) bool { return !g.At.IsZero() && now.Sub(g.At) < 2*time.Second }

func (g GPUs) find(id string) *device {
	for i, d := range g.devices {
		if id == d.index || id == d.uuid {
			return &g.devices[i]
		}
	}
	return nil
}

// Same reports whether two ids (index or uuid) name one GPU.
func (g GPUs) Same(a, b string) bool {
	if a == b {
		return true
	}
	d := g.find(a)
	return d != nil && d == g.find(b)
}

// idleMemory is the most memory that an unused GPU may show: the driver and a screen need some.
const idleMemory = 1 << 30

// ForeignUse describes the process that uses a GPU that no run has reserved; "" if none does.
func (g GPUs) ForeignUse(id string) string {
	d := g.find(id)
	switch {
	case d == nil || len(d.apps) == 0 && d.used <= idleMemory:
		return ""
	case len(d.apps) == 0:
		return fmt.Sprintf("a process that this machine does not show uses %d MiB of it", d.used>>20)
	}
	app, memory := d.apps[0], ""
	if app.used > 0 {
		memory = fmt.Sprintf("%d MiB of ", app.used>>20)
	}
	return fmt.Sprintf("process %d (%s) uses %sit", app.pid, proc.Name(app.pid), memory)
}

// WithMemory returns the ids of the GPUs that have that many bytes; a GPU of unknown size counts as large enough.
func (g GPUs) WithMemory(memory int64, ids []string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
		d := g.find(id)
		return memory > 0 && d != nil && d.total >= 0 && d.total < memory
	})
}
