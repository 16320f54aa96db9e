//go:build libtorch

package stages

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
	"rcgrpo/engine/runs"
	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/torch"
)

// With this variable (ROWS or ROWS:FILE) a stage's process runs out of memory in any matrix product of more rows,
// unless FILE exists; it creates FILE.
const memoryVariable = "RCGRPO_TEST_ROWS"

func plantMemory(setting string) {
	limit, marker, once := strings.Cut(setting, ":")
	rows, err := strconv.ParseInt(limit, 10, 64)
	if _, missing := os.Stat(marker); err != nil || once && missing == nil {
		return
	}
	torch.PlantFailure(func(operation string, shapes [][]int64) error {
		if operation != "mm" || shapes[0][0] <= rows {
			return nil
		}
		if once {
			if err := os.WriteFile(marker, nil, 0o600); err != nil {
				return err
			}
		}
		return fmt.Errorf("torch mm of %v: %w: DefaultCPUAllocator: can't allocate memory", shapes, torch.ErrOutOfMemory)
	})
}

var short = drillStart(10, 2) + `
stage "sft" "warm" {
  policy = stage.model.random.checkpoint
  data   = [stage.curate.data.expert]
  epochs = 1
  batch  = 5
  MORE
}
`

// Memory runs out in processes of the engine; the test reads the engine's events.
func TestATrainingThatRunsOutOfMemory(t *testing.T) {
	leases := filepath.Join(t.TempDir(), "leases") // which the engine makes for its user alone
	t.Setenv("RCGRPO_LEASES", leases)
	store := must.Get(artifact.Open(filepath.Join(t.TempDir(), "store")))(t)
	root := t.TempDir()
	run := func(t *testing.T, memory, more string) (text string, failure *runs.Failure) {
		t.Helper()
		t.Setenv(memoryVariable, memory)
		x := loaded(t, root, strings.Replace(short, "MORE", more, 1))
		p := must.Get(plan.New(x, store, plan.Options{}))(t)
		log := ""
		err := engine.Run(t.Context(), p, engine.Options{}, func(e runs.Event) {
			text += e.Text + "\n"
			if e.Address == "stage.sft.warm@1" && e.Kind == runs.EventStarted {
				log = e.Path
			}
			if e.Failure != nil {
				failure = e.Failure
			}
		})
		if (err != nil) != (failure != nil) {
			t.Fatalf("got the error %v and the failure %v", err, failure)
		}
		if failure == nil {
			must.Contain(t, string(must.Get(os.ReadFile(log))(t)), "memory on cpu of ", "two moments")
		}
		return text, failure
	}
	t.Run("it fails for want of memory and names the micro-batch to set", func(t *testing.T) {
		_, failure := run(t, "400", "")
		if failure == nil || failure.Cause != lang.CauseOOM ||
			!strings.Contains(failure.Text, "set micro_batch = ") {
			t.Errorf("got %+v", failure)
		}
	})
	t.Run("retried on oom, with memory the second time", func(t *testing.T) {
		text, failure := run(t, "400:"+filepath.Join(root, "once"), `retry {
			attempts = 2
			on       = ["oom"]
			backoff  = "1ms"
		}`)
		if failure != nil || !strings.Contains(text, "attempt 1 of 2 failed (oom); it starts again") {
			t.Errorf("got %+v and the events\n%s", failure, text)
		}
	})
	t.Run("what does not fit is refused before it starts, and a retry on oom does not try again", func(t *testing.T) {
		text, failure := run(t, "", `lr = 2e-5 # another key than above
		resources { memory = "2 MiB" }
		retry {
			attempts = 2
			on       = ["oom"]
		}`)
		if failure == nil || failure.Cause != "" || !strings.Contains(failure.Text,
			"the stage does not fit: it has 2.0 MiB and needs ") || strings.Contains(text, "attempt 1 of 2") {
			t.Errorf("got %+v", failure)
		}
	})
}
