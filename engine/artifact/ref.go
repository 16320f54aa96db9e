package artifact

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Ref names one port of one node. Settings contain a Ref where the file refers to another stage
// (`policy = stage.sft.warm.checkpoint`); the Refs in a decoded value are the edges of the graph.
type Ref struct {
	Kind string // kind of the stage, "sft"
	Name string // name of the stage, "warm"
	Key  string // for_each key; "" without for_each
	Port string // "checkpoint"
	Type string // artifact type of the port, "checkpoint"
	Seed *int64 // nil for a node of all seeds

	Module string `json:",omitempty"` // address of the stage's module, "module.base"; "" for none
}

// File is a file or folder that a setting names with file() or dir(). Keys contain the digest only, so data
// and experiments can move.
type File struct {
	Path   string // absolute
	Digest string // of the content
	Dir    bool   // named with dir()

	Left []string // names of files and folders in it that do not belong to it

	Since time.Time // the content was read later
}

// Changed returns an error if the content is no longer that of the digest. A file whose status has not changed since a
// minute before it was read is not read again; the minute is for the clocks of other machines.
func (f File) Changed() error {
	settled, err := f.unchanged(f.Since.Add(-time.Minute))
	if err == nil && !settled {
		var digest string
		if digest, err = Digest(f.Path, f.Left...); err == nil && digest != f.Digest {
			err = errors.New("its content changed after the run was planned, and the result would have the key of the old " +
				"content: run again when it no longer changes")
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", f.Path, err)
	}
	return nil
}

// unchanged reports whether the file, or everything in the folder, has had its status since the given time. A write
// changes the ctime, which no program can set.
func (f File) unchanged(since time.Time) (bool, error) {
	settled := true
	err := filepath.WalkDir(f.Path, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		link, err := d.Info()
		if err != nil {
			return err
		}
		target, err := os.Stat(path)
		if err != nil {
			return err
		}
		for _, info := range []fs.FileInfo{link, target} {
			sys, ok := info.Sys().(*syscall.Stat_t)
			settled = settled && ok && time.Unix(sys.Ctim.Unix()).Before(since)
		}
		if !settled {
			return fs.SkipAll
		}
		return nil
	})
	return settled, err
}

// Data is a setting that names either a file or folder, or a port of another stage.
type Data struct {
	File File // zero when Ref is set
	Ref  Ref  // zero when File is set
}
