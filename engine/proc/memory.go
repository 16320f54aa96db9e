package proc

import (
	"context"
	"runtime"
	"runtime/debug"
	"time"
)

// LightMemory is the limit of a process that may read files of strangers and needs little memory for honest ones.
const LightMemory = 7 << 28

// LimitMemory calls exceeded once this process uses more memory than limit, not counting that of libraries in C. It
// returns then, or when ctx ends. Files of a stranger can be made to need any amount of memory, for more reasons than a
// limit for each of them can meet.
func LimitMemory(ctx context.Context, limit uint64, exceeded func()) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(int64(limit / 8 * 7))) // above it, garbage is collected sooner
	var m runtime.MemStats
	for ctx.Err() == nil { // reading the statistics stops all goroutines for a moment
		if runtime.ReadMemStats(&m); m.Sys-m.HeapReleased > limit {
			exceeded()
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}
