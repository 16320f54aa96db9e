package runs

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"rcgrpo/engine/internal/disk"
	"rcgrpo/engine/proc"
)

// RankState is the progress of a rank, one of several processes of a stage. A rank replaces it every second in
// Folder.Ranks.
type RankState struct {
	Rank int `json:"rank"`
	// Phase is the last sync point: Waits reports whether the rank waits there for others, or in an exchange of data
	// behind it; otherwise it works behind it. "" is the start of the process.
	Phase  string  `json:"phase"`
	Waits  bool    `json:"waits"`
	Waited float64 `json:"waited_seconds"` // for other ranks, in all
	Steps  int64   `json:"steps"`          // operations so far; a rank that makes progress makes steps
	proc.Usage
}

// Text describes what the rank does.
func (s RankState) Text() string {
	switch {
	case s.Phase == "":
		return "starts"
	case s.Waits:
		return fmt.Sprintf("waits at %q", s.Phase)
	}
	return fmt.Sprintf("works after %q", s.Phase)
}

// Same reports whether the rank has done nothing between two reports.
func (s RankState) Same(before RankState) bool {
	return s.Phase == before.Phase && s.Waits == before.Waits && s.Steps == before.Steps
}

// Ranks returns the folder of the ranks of a stage while it runs.
func (f Folder) Ranks(address string) string { return f.Path("nodes", FileName(address)+".ranks") }

func rankFile(dir string, rank int) string { return filepath.Join(dir, "state."+strconv.Itoa(rank)) }

// WriteRank replaces the report of a rank in the folder of the ranks.
func WriteRank(dir string, s RankState) error { return WriteJSON(rankFile(dir, s.Rank), s) }

// ReadRanks returns the newest reports of count ranks. A rank without one has just started.
func ReadRanks(dir string, count int) []RankState {
	all := make([]RankState, count)
	for rank := range all {
		if err := disk.ReadJSON(rankFile(dir, rank), disk.MaxRecord, &all[rank]); err != nil {
			all[rank] = RankState{Rank: rank}
		}
	}
	return all
}

// reportedRanks returns the reports in a folder, by rank; nil without one.
func reportedRanks(dir string) []RankState {
	files, _ := filepath.Glob(filepath.Join(dir, "state.*"))
	if len(files) == 0 {
		return nil
	}
	return ReadRanks(dir, len(files))
}

// Slowest returns the index of the rank that the others wait for: the first of those that have waited least.
func Slowest(ranks []RankState) (slowest int) {
	for i, r := range ranks {
		if r.Waited < ranks[slowest].Waited {
			slowest = i
		}
	}
	return slowest
}

// RanksText describes the ranks of a stage on one line, the slowest marked.
func RanksText(ranks []RankState) string {
	slowest, parts := Slowest(ranks), []string{}
	for i, r := range ranks {
		text := fmt.Sprintf("rank %d %s, has waited %.1f s", r.Rank, r.Text(), r.Waited)
		if i == slowest {
			text += " (the slowest)"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

// MakeRanks makes the folder of the ranks of a stage, without the files of an earlier attempt.
func (f Folder) MakeRanks(address string) (dir string, err error) {
	dir = f.Ranks(address)
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	return dir, os.Mkdir(dir, 0o700)
}
