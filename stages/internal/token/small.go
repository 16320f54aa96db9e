package token

import (
	"fmt"
	"os"
)

// ReadSmall reads a regular file of a model folder of at most 1 MiB. Model folders are untrusted: a FIFO would block.
func ReadSmall(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > 1<<20 {
		return nil, fmt.Errorf("%s must be a plain file of at most 1 MiB, got %v of %d bytes", path, info.Mode(),
			info.Size())
	}
	return os.ReadFile(path)
}
