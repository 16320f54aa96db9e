package machine

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rcgrpo/internal/must"
)

// fakeDriver puts a shell script named nvidia-smi into PATH; $0.gpus and $0.apps contain the given texts.
func fakeDriver(t *testing.T, script, gpus, apps string) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "nvidia-smi")
	for name, text := range map[string]string{path: "#!/bin/sh\n" + script, path + ".gpus": gpus, path + ".apps": apps} {
		must.OK(t, os.WriteFile(name, []byte(text), 0o755))
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}

const (
	answer    = "case $1 in --query-gpu*) cat $0.gpus ;; *) cat $0.apps ;; esac\n"
	threeGPUs = "0, GPU-aaa, 81920, 4\n1, GPU-bbb, 81920, 20000\n2, GPU-ccc, 40960, [N/A]\n"
)

func TestDriverAnswersAreParsed(t *testing.T) {
	for name, tc := range map[string]struct {
		gpus, apps string
		want       []string // parts of the uses of GPUs 0, 1 and 2; "": unused
		err        string
	}{
		"no use": {strings.ReplaceAll(threeGPUs, "20000", "0"), "", []string{"", "", ""}, ""},
		"a process": {threeGPUs, "GPU-aaa, 999999999, 1200\n", []string{"process 999999999 (?) uses 1200 MiB",
			"a process that this machine does not show uses 20000 MiB", ""}, ""},
		"unknown memory": {threeGPUs, "GPU-ccc, 999999999, [N/A]\nGPU-ccc, 1, 5\n",
			[]string{"", "20000", "process 999999999 (?) uses it"}, ""},
		"a slice of a device":  {threeGPUs, "MIG-1-2-3, 77, 1200\n", []string{"", "20000", ""}, ""},
		"words instead":        {threeGPUs, "No running processes found\n", []string{"", "20000", ""}, ""},
		"an error message":     {"NVIDIA-SMI has failed because it couldn't communicate\n", "", nil, "want index"},
		"text with commas":     {"a, b, c, d\n", "", nil, "want index"},
		"an unclosed quote":    {"\"0, GPU-aaa, 1, 2\n", "", nil, "nvidia-smi"},
		"no devices":           {"", "", []string{"", "", ""}, ""},
		"a row without memory": {"0, GPU-aaa\n", "", nil, "want index"},
	} {
		t.Run(name, func(t *testing.T) {
			fakeDriver(t, answer, tc.gpus, tc.apps)
			g := QueryGPUs(t.Context())
			must.Match(t, g.Err, tc.err)
			for i, want := range tc.want {
				id := []string{"0", "GPU-bbb", "2"}[i]
				if got := g.ForeignUse(id); !strings.Contains(got, want) || want == "" && got != "" {
					t.Errorf("GPU %s: got %q, want %q", id, got, want)
				}
			}
		})
	}
}

func TestMissingAndHangingDriverAreErrors(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if g := QueryGPUs(t.Context()); !errors.Is(g.Err, ErrNoDriver) {
		t.Errorf("without nvidia-smi: got %v, want ErrNoDriver", g.Err)
	}
	fakeDriver(t, "exec /bin/sleep 600\n", "", "")
	defer func(d time.Duration) { driverTimeout = d }(driverTimeout)
	driverTimeout = 50 * time.Millisecond
	must.Match(t, QueryGPUs(t.Context()).Err, "no answer in 50ms", "nvidia-smi hangs")
}

func TestDriverIsQueriedInTheCLocale(t *testing.T) {
	fakeDriver(t, "[ \"$LC_ALL\" = C ] || { echo '۰, GPU-aaa, ۸۱٬۹۲۰, ۴'; exit; }\n"+answer, threeGPUs, "")
	t.Setenv("LC_ALL", "fa_IR.UTF-8")
	if g := QueryGPUs(t.Context()); g.Err != nil || len(g.devices) != 3 || g.devices[0].total != 80<<30 {
		t.Errorf("got %+v, want three devices, the first of 80 GiB", g)
	}
}
