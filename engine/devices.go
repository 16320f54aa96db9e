package engine

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// device is a GPU as the driver describes it.
type device struct {
	index, uuid string
	total, used int64 // bytes; -1: the driver does not say
	apps        []app
}

// app is a process that computes on a device.
type app struct {
	pid  int
	used int64 // bytes of the device; -1: the driver does not say
}

// driverPatience is how long the driver's tool may take to answer. Tests shorten it.
var driverPatience = 10 * time.Second

// errNoDriver says that this machine has no driver to ask.
var errNoDriver = errors.New("there is no nvidia-smi")

// ask runs nvidia-smi and returns the rows of its table.
func ask(ctx context.Context, query string) ([][]string, error) {
	path, err := exec.LookPath("nvidia-smi")
	if err != nil {
		return nil, errNoDriver
	}
	ctx, cancel := context.WithTimeoutCause(ctx, driverPatience, fmt.Errorf("no answer in %v", driverPatience))
	defer cancel()
	cmd := exec.CommandContext(ctx, path, query, "--format=csv,noheader,nounits")
	cmd.Env = append(os.Environ(), "LC_ALL=C") // numbers as we read them
	cmd.WaitDelay = time.Second                // a child of it may hold its output
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("nvidia-smi %s: %w", query, context.Cause(ctx))
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

// inspect asks the driver which devices there are and who computes on them.
func inspect(ctx context.Context) ([]device, error) {
	rows, err := ask(ctx, "--query-gpu=index,uuid,memory.total,memory.used")
	if err != nil {
		return nil, err
	}
	var all []device
	for _, row := range rows {
		if len(row) != 4 {
			return nil, fmt.Errorf("nvidia-smi: got the row %q, want index, uuid and two sizes", strings.Join(row, ", "))
		}
		if _, err := strconv.Atoi(row[0]); err != nil {
			return nil, fmt.Errorf("nvidia-smi: got %q, want the index of a device", row[0])
		}
		all = append(all, device{index: row[0], uuid: row[1], total: mebibytes(row[2]), used: mebibytes(row[3])})
	}
	if rows, err = ask(ctx, "--query-compute-apps=gpu_uuid,pid,used_memory"); err != nil {
		return nil, err
	}
	for _, row := range rows {
		if len(row) != 3 { // "No running processes found" in some versions
			continue
		}
		pid, err := strconv.Atoi(row[1])
		i := slices.IndexFunc(all, func(d device) bool { return d.uuid == row[0] })
		if err != nil || i < 0 { // a slice of a device has an id of its own and no row above
			continue
		}
		all[i].apps = append(all[i].apps, app{pid, mebibytes(row[2])})
	}
	return all, nil
}

// mebibytes reads a size; "[N/A]" and the like are -1.
func mebibytes(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return -1
	}
	return n << 20
}

// view is what the driver said last. Devices it does not know by the id of the site file count as free.
type view struct {
	at      time.Time // zero: it was never asked
	devices []device
	about   []string // ids of the devices that no run held then
	err     error
}

// fresh says whether a stage may start by this view.
func (v view) fresh(now time.Time) bool { return !v.at.IsZero() && now.Sub(v.at) < 2*time.Second }

// find returns the device with that id, or nil.
func (v view) find(id string) *device {
	for i, d := range v.devices {
		if id == d.index || id == d.uuid {
			return &v.devices[i]
		}
	}
	return nil
}

// same says whether two ids mean one device.
func (v view) same(a, b string) bool {
	if a == b {
		return true
	}
	d := v.find(a)
	return d != nil && d == v.find(b)
}

// quietMemory is what a device without any process may have in use: the driver's own, and a screen's.
const quietMemory = 1 << 30

// stranger says who uses a device that no run holds; "" when nobody does.
func (v view) stranger(id string) string {
	d := v.find(id)
	if d == nil {
		return ""
	}
	if len(d.apps) > 0 {
		a := d.apps[0]
		text := fmt.Sprintf("process %d", a.pid)
		if name, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(a.pid), "comm")); err == nil {
			text += " (" + plain(strings.TrimSpace(string(name))) + ")"
		}
		if a.used > 0 {
			text += fmt.Sprintf(" uses %d MiB of it", a.used>>20)
		} else {
			text += " uses it"
		}
		if n := len(d.apps) - 1; n > 0 {
			text += fmt.Sprintf(", and %d more", n)
		}
		return text
	}
	if d.used > quietMemory {
		return fmt.Sprintf("a process that this machine does not show uses %d MiB of it", d.used>>20)
	}
	return ""
}

// able lists those of the devices that have that much memory; one whose memory is not known has.
func (v view) able(memory int64, ids []string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
		d := v.find(id)
		return memory > 0 && d != nil && d.total >= 0 && d.total < memory
	})
}
