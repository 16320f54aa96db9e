package disk_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rcgrpo/engine/internal/disk"
	"rcgrpo/internal/must"
)

// The records of a copied store are a stranger's: a plan of 16 MiB had five million empty stages.
func TestARecordOfManyValuesIsNotDecoded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record.json")
	for n, want := range map[int]string{disk.MaxValues: "", disk.MaxValues + 1: "more than 2000000 values"} {
		must.OK(t, os.WriteFile(path, []byte("["+strings.Repeat("0,", n)+"0]"), 0o600))
		var got []int8
		must.Match(t, disk.ReadJSON(path, disk.MaxRecord, &got), want)
	}
}
