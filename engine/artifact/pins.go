package artifact

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"rcgrpo/engine/internal/alive"
	"rcgrpo/engine/internal/disk"
	"rcgrpo/engine/journal"
)

// A run pins the keys of its plan in a file of its run folder, and gc leaves their results alone while the run or a
// stage that it has started lives (package runs). Pins and commits are written under the shared lock `use`, and gc
// chooses and renames under the exclusive one: so a result that is looked up after it was pinned stays.

// Use keeps gc from choosing and renaming until release is called. It waits for a gc that does so now.
func (s *Store) Use() (release func() error, err error) { return s.use(unix.LOCK_SH) }

// use acquires the lock `use`; how is that of flock. In a store that several hosts write it is a claim, which has one
// holder in either case.
func (s *Store) use(how int) (release func() error, err error) {
	if !s.shared {
		lock, err := s.lock(s.path("use"), how)
		if err != nil {
			return nil, err
		}
		return lock.file.Close, nil // the file stays: other processes may have it open
	}
	for {
		claim, err := s.lock(s.path("claims", "use"), how)
		if err != nil {
			return nil, err
		}
		if claim != nil {
			return claim.Unlock, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// Pin appends keys to a file of pins.
func (s *Store) Pin(file string, keys ...string) error {
	release, err := s.Use()
	if err != nil {
		return err
	}
	return errors.Join(WritePins(file, keys), release())
}

// WritePins is Pin for a caller that keeps gc out.
func WritePins(file string, keys []string) error {
	j, err := journal.Open(file)
	if err != nil {
		return err
	}
	keys = slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return key == "" })
	return errors.Join(j.Append(keys), j.Close())
}

// ReadPins returns the keys in a file of pins; none if there is no file. A torn record pins nothing.
func ReadPins(file string) (keys []string) {
	journal.Read(file, 0, func(record []byte) error {
		var pinned []string
		err := json.Unmarshal(record, &pinned)
		keys = append(keys, pinned...)
		return err
	})
	return keys
}

// OpenWork returns the keys that a process is making or that a job of a cluster may make, with the path of the run
// folder of each.
func (s *Store) OpenWork() (map[string]string, error) {
	open := map[string]string{}
	err := s.each(s.lockFolder(), func(key, _ string) error {
		if validKey(key) == nil && s.held(key) {
			var holder struct{ Run string }
			s.Holder(key, &holder) // none yet: its run lives
			open[key] = holder.Run
		}
		return nil
	})
	return open, errors.Join(err, s.each("jobs", func(key, _ string) error {
		if run, isOpen := s.openJob(key); isOpen {
			open[key] = run
		}
		return nil
	}))
}

// held reports whether a process holds the lock of a key.
func (s *Store) held(key string) bool {
	f, err := openHolder(s.holderPath(key))
	if err != nil {
		return false
	}
	defer f.Close()
	if s.shared {
		_, free := released(f)
		return !free
	}
	return alive.Held(f)
}

// Jobs is the folder of a key's jobs in the queue of a cluster (package slurm). It has a file N for each attempt, whose
// JSON has the run folder as Run, and N.exit once the attempt has ended. It may not exist.
func (s *Store) Jobs(key string) string { return s.path("jobs", key) }

// RemoveJobs removes the folder of a key's jobs in one step: a kill that left the file of an attempt without its exit
// would leave a job that seems to run for ever.
func (s *Store) RemoveJobs(key string) error { return s.remove(s.Jobs(key)) }

// openJob reports whether a job of the key may be in the queue or running, and the folder of its run.
func (s *Store) openJob(key string) (run string, open bool) {
	entries, _ := os.ReadDir(s.Jobs(key))
	for _, e := range entries {
		path := filepath.Join(s.Jobs(key), e.Name())
		if _, err := strconv.Atoi(e.Name()); err != nil || disk.Exists(path+".exit") {
			continue
		}
		var job struct{ Run string }
		disk.ReadJSON(path, MaxManifest, &job) // one that is damaged pins its key only
		run, open = job.Run, true
	}
	return run, open
}

// HasJob reports whether a job of the key may be in the queue or running.
func (s *Store) HasJob(key string) bool {
	_, open := s.openJob(key)
	return open
}

// Binaries is the folder of the programs that jobs start. It may not exist.
func (s *Store) Binaries() string { return s.path("bin") }
