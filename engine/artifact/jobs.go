package artifact

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"rcgrpo/engine/internal/disk"
)

// Jobs is the folder of a key's jobs in the queue of a cluster (package slurm). It has a file N for each attempt, whose
// JSON lists the keys that the job needs as Pins, and N.exit once the attempt has ended. It may not exist.
func (s *Store) Jobs(key string) string { return s.path("jobs", key) }

// openJob reports whether a job of the key may be in the queue or running, and which results it needs.
func (s *Store) openJob(key string) (pins []string, open bool) {
	entries, _ := os.ReadDir(s.Jobs(key))
	for _, e := range entries {
		path := filepath.Join(s.Jobs(key), e.Name())
		if _, err := strconv.Atoi(e.Name()); err != nil || disk.Exists(path+".exit") {
			continue
		}
		var job struct{ Pins []string }
		readJSON(path, &job) // one that is damaged pins nothing
		pins, open = append(pins, job.Pins...), true
	}
	return pins, open
}

// HasJob reports whether a job of the key may be in the queue or running.
func (s *Store) HasJob(key string) bool {
	_, open := s.openJob(key)
	return open
}

// anyOpenJob reports whether HasJob is true for any key.
func (s *Store) anyOpenJob() bool {
	keys, _ := os.ReadDir(s.path("jobs"))
	return slices.ContainsFunc(keys, func(e os.DirEntry) bool { return s.HasJob(e.Name()) })
}

// Binaries is the folder of the programs that jobs start. It may not exist.
func (s *Store) Binaries() string { return s.path("bin") }
