package ranks_test

import (
	"errors"
	"sync"

	"rcgrpo/stages/internal/ranks"
)

// inMemory returns the wires of n ranks in one process, each used by one goroutine. After end is called, waiting and
// later calls fail, as they do after the end of another process.
func inMemory(n int) (wires []ranks.Wire, end func()) {
	m := &memory{n: n, changed: sync.NewCond(new(sync.Mutex))}
	for i := range n {
		wires = append(wires, &memoryWire{m, i})
	}
	return wires, func() {
		m.changed.L.Lock()
		defer m.changed.L.Unlock()
		m.ended = true
		m.changed.Broadcast()
	}
}

type memory struct {
	n       int
	changed *sync.Cond
	ended   bool
	arrived [][]byte // messages of the current call, by rank
	waiting int      // ranks that have called
	done    [][]byte // messages of the last complete call
	calls   int      // complete calls
}

type memoryWire struct {
	*memory
	rank int
}

func (w *memoryWire) Gather(own []byte) ([][]byte, error) {
	w.changed.L.Lock()
	defer w.changed.L.Unlock()
	if w.arrived == nil {
		w.arrived = make([][]byte, w.n)
	}
	w.arrived[w.rank] = append([]byte{}, own...)
	call := w.calls
	if w.waiting++; w.waiting == w.n {
		w.done, w.arrived, w.waiting = w.arrived, nil, 0
		w.calls++
		w.changed.Broadcast()
	}
	for call == w.calls && !w.ended {
		w.changed.Wait()
	}
	if call == w.calls {
		return nil, errors.New("another rank has ended")
	}
	for _, message := range w.done {
		if len(message) != len(own) {
			return nil, errors.New("messages of different lengths")
		}
	}
	return append([][]byte{}, w.done...), nil
}
