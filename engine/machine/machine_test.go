package machine

import (
	"strings"
	"testing"
	"testing/fstest"

	"rcgrpo/engine/lang"
)

func TestMachineMemoryIsThatOfTheTightestControlGroup(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	info := file("MemTotal:       24000000 kB\nMemFree:  1 kB\n")
	for name, tc := range map[string]struct {
		files fstest.MapFS
		want  int64
	}{
		"the machine alone": {fstest.MapFS{"proc/meminfo": info}, 24000000 << 10},
		"nothing is known":  {fstest.MapFS{}, 0},
		"no bound": {fstest.MapFS{"proc/meminfo": info, "proc/self/cgroup": file("0::/\n"),
			"sys/fs/cgroup/memory.max": file("max\n")}, 24000000 << 10},
		"a group above": {fstest.MapFS{"proc/meminfo": info, "proc/self/cgroup": file("0::/a/b\n"),
			"sys/fs/cgroup/a/b/memory.max": file("max\n"),
			"sys/fs/cgroup/a/memory.max":   file("1073741824\n")}, 1 << 30},
		"the older form": {fstest.MapFS{"proc/meminfo": info, "proc/self/cgroup": file("5:cpu:/x\n4:memory:/x\n"),
			"sys/fs/cgroup/memory/x/memory.limit_in_bytes": file("4096\n")}, 4096},
	} {
		if got := machineMemory(tc.files); got != tc.want {
			t.Errorf("%s: got %d, want %d", name, got, tc.want)
		}
	}
}

func TestMachineCPUsAreThoseOfTheTightestControlGroup(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	for name, tc := range map[string]struct {
		files fstest.MapFS
		want  int
	}{
		"the machine alone": {fstest.MapFS{}, 64},
		"no bound": {fstest.MapFS{"proc/self/cgroup": file("0::/\n"),
			"sys/fs/cgroup/cpu.max": file("max 100000\n")}, 64},
		"two and a half": {fstest.MapFS{"proc/self/cgroup": file("0::/\n"),
			"sys/fs/cgroup/cpu.max": file("250000 100000\n")}, 3},
		"more than there are": {fstest.MapFS{"proc/self/cgroup": file("0::/\n"),
			"sys/fs/cgroup/cpu.max": file("9900000 100000\n")},
			64},
		"a group above": {fstest.MapFS{"proc/self/cgroup": file("0::/a/b\n"),
			"sys/fs/cgroup/a/b/cpu.max": file("max 100000\n"),
			"sys/fs/cgroup/a/cpu.max":   file("20000 100000\n")}, 1},
		"the older form": {fstest.MapFS{"proc/self/cgroup": file("5:cpuset:/x\n4:cpu,cpuacct:/x\n"),
			"sys/fs/cgroup/cpu/x/cpu.cfs_quota_us":  file("400000\n"),
			"sys/fs/cgroup/cpu/x/cpu.cfs_period_us": file("100000\n"),
			"sys/fs/cgroup/cpu/cpu.cfs_quota_us":    file("-1\n"), "sys/fs/cgroup/cpu/cpu.cfs_period_us": file("100000\n")}, 4},
	} {
		if got := machineCPUs(tc.files, 64); got != tc.want {
			t.Errorf("%s: got %d, want %d", name, got, tc.want)
		}
	}
}

func TestStageMemoryIsStatedOrThatOfItsDevice(t *testing.T) {
	m := Machine{Memory: 7, GPUs: []string{"0", "1"}, Driver: GPUs{devices: []device{{index: "0", total: 80},
		{index: "1", total: 40}}}}
	for name, tc := range map[string]struct {
		r    lang.Resources
		want int64
	}{
		"stated":           {lang.Resources{Memory: 5}, 5},
		"of the site file": {lang.Resources{}, 7},
		"stated of a GPU":  {lang.Resources{GPUs: 1, GPUMemory: 30}, 30},
		"of the smaller":   {lang.Resources{GPUs: 1}, 40},
	} {
		if got := m.MemoryOf(tc.r); got != tc.want {
			t.Errorf("%s: got %d, want %d", name, got, tc.want)
		}
	}
}

func TestSeveralGPUsAreRefusedForAKindThatUsesOne(t *testing.T) {
	m := Machine{CPUs: 8, GPUs: []string{"3", "5"}}
	for _, tc := range []struct {
		multi bool
		gpus  int
		want  string
	}{{false, 1, ""}, {true, 2, ""}, {false, 2, "requests 2 GPUs, but a sft stage uses only one"}} {
		n := &lang.Node{Kind: &lang.Kind{Name: "sft", MultiGPU: tc.multi}, Resources: lang.Resources{GPUs: tc.gpus}}
		if got := m.Unfit(n); !strings.HasPrefix(got, tc.want) || (tc.want == "") != (got == "") {
			t.Errorf("%+v: got %q", tc, got)
		}
	}
}
