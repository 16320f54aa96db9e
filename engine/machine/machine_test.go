package machine

import (
	"errors"
	"strings"
	"testing"
	"testing/fstest"

	"rcgrpo/engine/lang"
	"rcgrpo/internal/must"
)

func TestMemoryAndCPUsAreThoseOfTheTightestControlGroup(t *testing.T) {
	const total, processors = 24_000_000 << 10, 64
	for name, tc := range map[string]struct {
		files  map[string]string // below /sys/fs/cgroup, except proc/self/cgroup
		memory int64
		cpus   int
	}{
		"no control groups": {nil, total, processors},
		"no limits": {map[string]string{"proc/self/cgroup": "0::/\n", "memory.max": "max\n", "cpu.max": "max 100000\n"},
			total, processors},
		"limits of the group": {map[string]string{"proc/self/cgroup": "0::/\n", "memory.max": "4096\n",
			"cpu.max": "250000 100000\n"}, 4096, 3},
		"more CPUs than the machine": {map[string]string{"proc/self/cgroup": "0::/\n", "cpu.max": "9900000 100000\n"},
			total, processors},
		"a group above": {map[string]string{"proc/self/cgroup": "0::/a/b\n", "a/b/memory.max": "max\n",
			"a/memory.max": "1073741824\n", "a/b/cpu.max": "max 100000\n", "a/cpu.max": "20000 100000\n"}, 1 << 30, 1},
		"version 1": {map[string]string{"proc/self/cgroup": "6:cpuset:/x\n5:cpu,cpuacct:/x\n4:memory:/x\n",
			"memory/x/memory.limit_in_bytes": "4096\n", "cpu/x/cpu.cfs_quota_us": "400000\n",
			"cpu/x/cpu.cfs_period_us": "100000\n", "cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"},
			4096, 4},
	} {
		root := fstest.MapFS{"proc/meminfo": {Data: []byte("MemTotal:       24000000 kB\nMemFree:  1 kB\n")}}
		for path, text := range tc.files {
			if path != "proc/self/cgroup" {
				path = "sys/fs/cgroup/" + path
			}
			root[path] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := machineMemory(root); got != tc.memory {
			t.Errorf("%s: got %d bytes, want %d", name, got, tc.memory)
		}
		if got := machineCPUs(root, processors); got != tc.cpus {
			t.Errorf("%s: got %d CPUs, want %d", name, got, tc.cpus)
		}
	}
	if got := machineMemory(fstest.MapFS{}); got != 0 {
		t.Errorf("without /proc: got %d bytes, want 0 for unknown", got)
	}
}

func TestMemoryOfAStageIsItsSettingOrThatOfItsDevice(t *testing.T) {
	driver := GPUs{devices: []device{{index: "0", total: 80}, {index: "1", total: 40}, {index: "2", total: 3}}}
	m := Machine{Memory: 7, GPUs: []string{"0", "1", "2"}, Driver: driver, GPUReserve: 4}
	for name, tc := range map[string]struct {
		r            lang.Resources
		device, host int64
	}{
		"stated":                           {lang.Resources{Memory: 5}, 5, 5},
		"of the site file":                 {lang.Resources{}, 7, 7},
		"stated of a GPU, without reserve": {lang.Resources{GPUs: 1, GPUMemory: 30}, 30, 7},
		"of the smaller, less the reserve": {lang.Resources{GPUs: 1, Memory: 6}, 36, 6},
	} {
		if device, host := m.MemoryOf(tc.r); device != tc.device || host != tc.host {
			t.Errorf("%s: got %d and %d of the host, want %d and %d", name, device, host, tc.device, tc.host)
		}
	}
	m.GPUMemory = 141
	if device, _ := m.MemoryOf(lang.Resources{GPUs: 2}); device != 137 {
		t.Errorf("of a site that states 141: got %d, want 137", device)
	}
	if m := Detect(t.Context(), nil, false); m.GPUReserve != 4<<30 {
		t.Errorf("without a site file the reserve is %d bytes, want 4 GiB", m.GPUReserve)
	}
}

func TestStagesWithTensorsNeedKernelsForTheProcessor(t *testing.T) {
	m := Machine{CPUs: 2, Kernels: errors.New("no AVX2")}
	ranks := func(n int) func(lang.Stage) int { return func(lang.Stage) int { return n } }
	for _, tc := range []struct {
		kind lang.Kind
		want string
	}{{lang.Kind{Name: "sft", Ranks: ranks(8)}, "uses tensors: no AVX2"}, {lang.Kind{Name: "eval", Ranks: ranks(0)}, ""},
		{lang.Kind{Name: "exec"}, ""}} {
		if got := m.Unfit(&lang.Node{Kind: &tc.kind}); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.kind.Name, got, tc.want)
		}
	}
	t.Setenv("RCGRPO_CPU", "sse")
	must.Match(t, Detect(t.Context(), nil, false).Kernels, "the values are avx2 and avx512")
}

func TestSeveralGPUsAreRefusedForAKindThatUsesOne(t *testing.T) {
	m := Machine{CPUs: 8, GPUs: []string{"3", "5"}}
	ranks := func(lang.Stage) int { return 2 }
	for _, tc := range []struct {
		kind lang.Kind
		gpus int
		want string
	}{{lang.Kind{Name: "model"}, 1, ""}, {lang.Kind{Name: "exec", MultiGPU: true}, 2, ""},
		{lang.Kind{Name: "sft", Ranks: ranks}, 2, ""},
		{lang.Kind{Name: "model"}, 2, "requests 2 GPUs, but a model stage uses only one"}} {
		n := &lang.Node{Kind: &tc.kind, Resources: lang.Resources{GPUs: tc.gpus}}
		if got := m.Unfit(n); !strings.HasPrefix(got, tc.want) || (tc.want == "") != (got == "") {
			t.Errorf("%+v: got %q", tc, got)
		}
	}
}
