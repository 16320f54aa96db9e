package metrics

import "syscall"

// PeakMemory is the largest resident memory that this process has had, in bytes; 0 where the system does not say.
func PeakMemory() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return float64(u.Maxrss << 10) // Linux counts KiB
}
