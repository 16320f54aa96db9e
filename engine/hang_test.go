package engine

import (
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"rcgrpo/engine/runs"
	"rcgrpo/internal/must"
)

func TestRanksWithoutProgressAreFound(t *testing.T) {
	limits := rankLimits{arrival: 4 * time.Second, waiting: 3 * time.Second, silence: 5 * time.Second}
	works := func(steps int64) runs.RankState { return runs.RankState{Rank: 1, Phase: "update 3", Steps: steps} }
	waits := func(steps int64) runs.RankState { return runs.RankState{Phase: "rollout", Waits: true, Steps: steps} }
	for name, tc := range map[string]struct {
		reports func(second int64) []runs.RankState
		every   time.Duration
		want    string // error; "": none within 20 looks
		looks   int    // until the error
	}{
		"one works and the other waits": {func(s int64) []runs.RankState { return []runs.RankState{waits(1), works(s)} },
			time.Second, "", 0},
		"one makes no step": {func(int64) []runs.RankState { return []runs.RankState{waits(1), works(1)} },
			time.Second, `rank 1 of 2 works after "update 3" and has made no step for 5s (RCGRPO_RANK_SILENCE)`, 5},
		"one does not start": {func(s int64) []runs.RankState { return []runs.RankState{works(s), {}} },
			time.Second, "rank 1 of 2 starts and has made no step for 8s", 8},
		"all wait": {func(int64) []runs.RankState { return []runs.RankState{waits(1), waits(2)} },
			time.Second, `all 2 ranks wait for each other for 3s (RCGRPO_RANK_WAITING), rank 0 at "rollout"`, 3},
		"all wait in one exchange after the other": {func(s int64) []runs.RankState {
			return []runs.RankState{waits(1), waits(s)}
		}, time.Second, "", 0},
		"the supervisor was stopped for a minute": {func(int64) []runs.RankState {
			return []runs.RankState{waits(1), works(1)}
		}, time.Minute, "has made no step for 6s", 3},
	} {
		h, got, looks := hangWatch{limits: limits}, error(nil), 0
		for ; looks < 20 && got == nil; looks++ {
			got = h.observe(tc.reports(int64(looks)), tc.every)
		}
		switch {
		case tc.want == "" && got != nil:
			t.Errorf("%s: got %v", name, got)
		case tc.want != "" && (got == nil || !strings.Contains(got.Error(), tc.want) || looks-1 != tc.looks):
			t.Errorf("%s: got %v after %d looks, want %q after %d", name, got, looks-1, tc.want, tc.looks)
		}
		var table strings.Builder
		h.writeTable(&table, func(rank int) bool { return rank == 1 })
		lines := strings.Split(table.String(), "\n")
		if len(lines) != 4 || !strings.Contains(lines[2], "stopped by a signal") {
			t.Errorf("%s: got the table %q", name, table.String())
		}
	}
}

func TestLimitsOfRanksAreDurations(t *testing.T) {
	t.Setenv(silenceVariable, "30m")
	want := rankLimits{2 * time.Minute, 2 * time.Minute, 30 * time.Minute}
	wantEqual(t, "limits", must.Get(limitsOfRanks())(t), want)
	t.Setenv(waitingVariable, "2")
	_, err := limitsOfRanks()
	must.Match(t, err, `RCGRPO_RANK_WAITING = "2" is no duration above 0`)
}

// The last line may lack its end.
func TestLinesOfRanksHaveTheirPrefix(t *testing.T) {
	var log strings.Builder
	copyLines(&log, iotest.OneByteReader(strings.NewReader("a\nbc\n\npanic")), "[1] ")
	wantEqual(t, "log", log.String(), "[1] a\n[1] bc\n[1] \n[1] panic\n")
}
