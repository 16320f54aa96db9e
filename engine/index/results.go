package index

import (
	"cmp"
	"database/sql"
	"encoding/json"
	"errors"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"rcgrpo/engine/artifact"
)

// Result is what a manifest says in short.
type Result struct {
	Key        string            `json:"key"`
	Experiment string            `json:"experiment"`
	Address    string            `json:"address"`
	Kind       string            `json:"kind"`
	Seed       *int64            `json:"seed,omitempty"`
	Types      map[string]string `json:"types"` // port -> artifact type
	Bytes      int64             `json:"bytes"`
	Seconds    float64           `json:"seconds"` // that it took, and would take again
	Started    time.Time         `json:"started"`
	Run        string            `json:"run,omitempty"`
	Revision   string            `json:"revision"`
	Device     string            `json:"device,omitempty"`
	PeakBytes  int64             `json:"peak_bytes,omitempty"`
	Collected  time.Time         `json:"collected,omitzero"` // when gc removed the bytes
}

func resultOf(m *artifact.Manifest) Result {
	r := Result{Key: m.Key, Experiment: m.Experiment, Address: m.Address, Kind: m.Kind, Seed: m.Seed, Types: map[string]string{},
		Bytes: m.Bytes(), Seconds: m.Seconds, Started: m.Started, Run: m.Run, Revision: m.Revision, Device: m.Device,
		PeakBytes: m.PeakBytes, Collected: m.Collected}
	for port, o := range m.Outputs {
		r.Types[port] = o.Type
	}
	return r
}

// Results returns every result that the store records, by address, experiment and key. Manifests that cannot be read
// are problems, not errors.
func (x *Index) Results() ([]Result, []artifact.Problem, error) {
	recorded, err := x.store.Recorded()
	if err != nil {
		return nil, nil, err
	}
	all, gone := x.knownResults(recorded)
	known := make(map[string]bool, len(all))
	for _, r := range all {
		known[r.Key] = true
	}
	var missing []string
	for key := range recorded {
		if !known[key] {
			missing = append(missing, key)
		}
	}
	read, problems := x.readResults(missing)
	if len(read)+len(gone) > 0 {
		x.write(func(tx *sql.Tx) error { return writeResults(tx, read, recorded, gone) })
	}
	all = append(all, read...)
	slices.SortFunc(all, func(a, b Result) int {
		return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.Experiment, b.Experiment), cmp.Compare(a.Key, b.Key))
	})
	return all, problems, nil
}

// knownResults returns the rows whose manifests are as they were, and the keys of those that are gone.
func (x *Index) knownResults(recorded map[string]string) (all []Result, gone []string) {
	if x.db == nil {
		return nil, nil
	}
	rows, err := x.db.Query("SELECT key, stamp, sum, data FROM results")
	if err != nil {
		x.fault(err)
		return nil, nil
	}
	defer rows.Close()
	for rows.Next() {
		var key, stamp, data string
		var s int64
		if err = rows.Scan(&key, &stamp, &s, &data); err != nil {
			break
		}
		now, ok := recorded[key]
		if !ok {
			gone = append(gone, key)
			continue
		}
		var r Result
		if now == stamp && s == sum(key, stamp, data) && json.Unmarshal([]byte(data), &r) == nil && r.Key == key {
			all = append(all, r)
		}
	}
	if err = errors.Join(err, rows.Err()); err != nil {
		rows.Close()
		x.fault(err)
		return nil, nil
	}
	return all, gone
}

// readResults reads manifests, on all processors.
func (x *Index) readResults(keys []string) (all []Result, problems []artifact.Problem) {
	slices.Sort(keys)
	var mu sync.Mutex
	var done sync.WaitGroup
	workers := min(runtime.GOMAXPROCS(0), 8)
	for w := range workers {
		done.Go(func() {
			for i := w; i < len(keys); i += workers {
				m, err := x.store.Manifest(keys[i])
				if errors.Is(err, artifact.ErrNotFound) { // removed since
					continue
				}
				mu.Lock()
				if err != nil {
					problems = append(problems, artifact.Problem{Key: keys[i], Path: filepath.Join(x.store.Dir(), "nodes", keys[i]+".json"), What: err.Error()})
				} else {
					all = append(all, resultOf(m))
				}
				mu.Unlock()
			}
		})
	}
	done.Wait()
	slices.SortFunc(problems, func(a, b artifact.Problem) int { return cmp.Compare(a.Key, b.Key) })
	return all, problems
}

func writeResults(tx *sql.Tx, read []Result, stamps map[string]string, gone []string) error {
	put, err := tx.Prepare("INSERT OR REPLACE INTO results (key, stamp, sum, data) VALUES (?, ?, ?, ?)")
	if err != nil {
		return err
	}
	defer put.Close()
	for _, r := range read {
		data, err := json.Marshal(r)
		if err != nil {
			return err
		}
		if _, err := put.Exec(r.Key, stamps[r.Key], sum(r.Key, stamps[r.Key], string(data)), string(data)); err != nil {
			return err
		}
	}
	for _, key := range gone {
		if _, err := tx.Exec("DELETE FROM results WHERE key = ?", key); err != nil {
			return err
		}
	}
	return nil
}
