package runs

import "rcgrpo/engine/artifact"

// Pins returns the keys of the results that gc leaves alone: those in the pins of live runs, those of open work, and
// those in the pins of runs whose stages still run or wait in a queue, although their engines have ended.
func Pins(store *artifact.Store) (map[string]bool, error) {
	open, err := store.OpenWork()
	if err != nil {
		return nil, err
	}
	pinned, working := map[string]bool{}, map[string]bool{}
	for key, run := range open {
		pinned[key] = true
		working[Folder(run).Name()] = true // another host may have another path to the store
	}
	folders, err := allRuns(store)
	for _, f := range folders {
		if working[f.Name()] || f.Live() {
			for _, key := range artifact.ReadPins(f.Path("pins")) {
				pinned[key] = true
			}
		}
	}
	return pinned, err
}

// Pin adds keys to the pins of the run.
func (f Folder) Pin(store *artifact.Store, keys ...string) error {
	return store.Pin(f.Path("pins"), keys...)
}
