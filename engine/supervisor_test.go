package engine

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"rcgrpo/internal/must"
)

// The first node removes the folder of the ranks although a rank of another node writes reports until it ends.
func TestAFolderOfRanksIsRemovedAfterTheLastReport(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ranks")
	must.OK(t, os.Mkdir(dir, 0o700))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for since := time.Now(); time.Since(since) < 300*time.Millisecond; {
			_ = os.WriteFile(filepath.Join(dir, "state.2"), nil, 0o600) // fails once the folder is removed
		}
	}()
	must.OK(t, GangNode{Count: 2}.remove(dir))
	<-ended
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("got %v, want no folder", err)
	}
}
