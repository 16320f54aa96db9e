package engine

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rcgrpo/engine/lang"
	"rcgrpo/engine/machine"
	"rcgrpo/engine/runs"
)

// fakeDriver puts an nvidia-smi into PATH that prints the files gpus and apps of the returned folder.
func fakeDriver(t *testing.T, gpus, apps string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	put := func(name, text string, mode os.FileMode) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	put("gpus", gpus, 0o644)
	put("apps", apps, 0o644)
	put("nvidia-smi", "#!/bin/sh\ncase $1 in --query-gpu*) cat "+dir+"/gpus ;; *) cat "+dir+"/apps ;; esac\n", 0o755)
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	return dir
}

const threeGPUs = "0, GPU-aaa, 81920, 4\n1, GPU-bbb, 81920, 20000\n2, GPU-ccc, 40960, [N/A]\n"

func TestDriverAnswersAreParsed(t *testing.T) {
	for name, tc := range map[string]struct {
		gpus, apps string
		want       []string // who uses 0, 1 and 2
		err        string
	}{
		"nobody": {strings.ReplaceAll(threeGPUs, "20000", "0"), "", []string{"", "", ""}, ""},
		"a process": {threeGPUs, "GPU-aaa, 999999999, 1200\n", []string{"process 999999999 uses 1200 MiB",
			"a process that this machine does not show uses 20000 MiB", ""}, ""},
		"memory not told": {threeGPUs, "GPU-ccc, 999999999, [N/A]\nGPU-ccc, 1, 5\n", []string{"", "20000",
			"process 999999999 uses it, and 1 more"}, ""},
		"a slice of a device":  {threeGPUs, "MIG-1-2-3, 77, 1200\n", []string{"", "20000", ""}, ""},
		"words instead":        {threeGPUs, "No running processes found\n", []string{"", "20000", ""}, ""},
		"rubbish":              {"NVIDIA-SMI has failed because it couldn't communicate\n", "", nil, "want index"},
		"rubbish with commas":  {"a, b, c, d\n", "", nil, "want the index"},
		"a quote without end":  {"\"0, GPU-aaa, 1, 2\n", "", nil, "nvidia-smi"},
		"no devices whatever":  {"", "", []string{"", "", ""}, ""},
		"a row without memory": {"0, GPU-aaa\n", "", nil, "want index"},
	} {
		t.Run(name, func(t *testing.T) {
			fakeDriver(t, tc.gpus, tc.apps)
			v := machine.QueryGPUs(t.Context())
			if tc.err != "" {
				if v.Err == nil || !strings.Contains(v.Err.Error(), tc.err) {
					t.Errorf("got %v, want an error with %q", v.Err, tc.err)
				}
				return
			}
			if v.Err != nil {
				t.Fatal(v.Err)
			}
			for i, want := range tc.want {
				id := []string{"0", "GPU-bbb", "2"}[i]
				if got := v.ForeignUse(id); !strings.Contains(got, want) || want == "" && got != "" {
					t.Errorf("GPU %s: got %q, want %q", id, got, want)
				}
			}
		})
	}
}

func TestMissingAndHangingDriverAreErrors(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if v := machine.QueryGPUs(t.Context()); !errors.Is(v.Err, machine.ErrNoDriver) {
		t.Errorf("without nvidia-smi: got %v, want errNoDriver", v.Err)
	}
	dir := fakeDriver(t, "", "")
	if err := os.WriteFile(filepath.Join(dir, "nvidia-smi"), []byte("#!/bin/sh\nexec /bin/sleep 600\n"),
		0o755); err != nil {
		t.Fatal(err)
	}
	defer func(d time.Duration) { machine.driverTimeout = d }(machine.driverTimeout)
	machine.driverTimeout = 50 * time.Millisecond
	if v := machine.QueryGPUs(t.Context()); v.Err == nil || !strings.Contains(v.Err.Error(), "no answer in 50ms") {
		t.Errorf("one that hangs: got %v, want an error that says so", v.Err)
	}
}

const onDevice = `
stage "toy" "a" {
  count = "$dir/count"
  resources {
    gpus = 1
  }
}
`

func TestGPUWithAForeignProcessIsNotUsed(t *testing.T) {
	ownLedger(t)
	fakeDriver(t, threeGPUs, "GPU-aaa, 999999999, 1200\n")
	l := newLab(t)
	l.write(onDevice)
	l.mustRun()
	if b, _ := os.ReadFile(filepath.Join(l.dir, "count")); !strings.Contains(string(b), "gpus=2\n") {
		t.Errorf("got %q, want the only device that nobody uses, 2", b)
	}
}

func TestStageWaitsForTheEndOfAForeignProcess(t *testing.T) {
	ownLedger(t)
	dir := fakeDriver(t, "0, GPU-aaa, 81920, 4\n", "GPU-aaa, 999999999, 1200\n")
	l := newLab(t)
	l.put("site.hcl", "executor \"local\" {\n gpus = \"auto\"\n}\n")
	l.write(onDevice + "stage \"toy\" \"beside\" {\n text = \"beside\"\n}\n")
	said, started, done := make(chan string, 8), make(chan string, 8), make(chan error)
	go func() {
		done <- Run(l.plan(), t.Context(), Options{}, func(e runs.Event) {
			switch e.Kind {
			case runs.EventNote:
				said <- e.Text
			case runs.EventStarted:
				started <- lang.ShortAddress(e.Address)
			}
		})
	}()
	if text := <-said; !strings.Contains(text, "GPU 0") || !strings.Contains(text, "process 999999999") {
		t.Errorf("got %q, want the device and the process", text)
	}
	if got := <-started; got != "toy.beside" || len(started) > 0 {
		t.Errorf("started: got %s and %d more, want toy.beside alone", got, len(started))
	}
	if err := os.WriteFile(filepath.Join(dir, "apps"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := <-started; got != "toy.a" {
		t.Errorf("then: got %s, want toy.a", got)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestFailingDriverIsReportedAndGPUsCountAsUnused(t *testing.T) {
	ownLedger(t)
	fakeDriver(t, "nothing of use\n", "")
	l := newLab(t)
	l.write(onDevice)
	r := l.mustRun()
	if e, ok := r.find(runs.EventNote, ""); !ok || !strings.Contains(e.Text, "cannot check") {
		t.Errorf("got %s, want a note that strangers are not known", r.text())
	}
	l.want(r, runs.EventDone, "toy.a")
}

func TestGPUsWithTooLittleMemoryAreNotUsed(t *testing.T) {
	ownLedger(t)
	fakeDriver(t, strings.ReplaceAll(threeGPUs, "81920", "20480"), "")
	l := newLab(t)
	large := strings.Replace(onDevice, "gpus = 1", "gpus = 1\n gpu_memory = \"30 GiB\"", 1)
	l.write(large)
	l.mustRun()
	if b, _ := os.ReadFile(filepath.Join(l.dir, "count")); !strings.Contains(string(b), "gpus=2\n") {
		t.Errorf("got %q, want the only device with 30 GiB, 2", b)
	}
	l.write(strings.Replace(strings.Replace(large, "30 GiB", "60 GiB", 1), "count", "text = \"new\"\n count", 1))
	if r := l.run(Options{}); r.err == nil || !strings.Contains(r.err.Error(), "with 61440 MiB each") {
		t.Errorf("more than any device has: got %v, want an error", r.err)
	}
}

// nvidia-smi formats numbers by the locale.
func TestDriverIsQueriedInTheCLocale(t *testing.T) {
	dir := fakeDriver(t, threeGPUs, "")
	tool := filepath.Join(dir, "nvidia-smi")
	text, err := os.ReadFile(tool)
	if err != nil {
		t.Fatal(err)
	}
	other := strings.Replace(string(text), "\n", "\n[ \"$LC_ALL\" = C ] || "+
		"{ echo '۰, GPU-aaa, ۸۱٬۹۲۰, ۴'; exit; }\n", 1)
	if err := os.WriteFile(tool, []byte(other), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("LC_ALL", "fa_IR.UTF-8")
	if v := machine.QueryGPUs(t.Context()); v.Err != nil || len(v.devices) != 3 || v.devices[0].total != 80<<30 {
		t.Errorf("got %+v, want three devices, the first of 80 GiB", v)
	}
}

// By default CUDA numbers GPUs by speed; nvidia-smi numbers them by PCI bus.
func TestStagesCountDevicesAsTheDriverDoes(t *testing.T) {
	got := strings.Join(childEnv([]string{"CUDA_DEVICE_ORDER=FASTEST_FIRST"}, 1, []string{"1"}), " ")
	if got != "OMP_NUM_THREADS=1 CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=1 "+childVariable+"=1" {
		t.Errorf("got %s", got)
	}
}
