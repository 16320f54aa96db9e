package artifact

import (
	"bufio"
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"rcgrpo/engine/internal/alive"
	"rcgrpo/engine/internal/disk"
)

// A store that several hosts write has claims instead of locks, because flock may hold on one host only. The claim of a
// key is a file of claims/. Its holders, the engine and the process of the stage, touch it (package alive). A claim
// that has not changed for some time counts as released, and its successor is the file KEY.ID, where ID is in the
// claim: link creates it only once. So there is one holder at a time, and one that was stopped for so long finds its
// successor.

// claimAt is the offset of a claim's identity: its id, the boot of the host, and its path, each in a line.
const claimAt = 6144

// The length of an id, and the limit of the successors of a claim: those of a stranger's store may form a ring.
const idLength, mostSuccessors = 12, 1000

// sharedText is the content of the file that marks a shared store. It has the name of the folder of locks, so that
// versions without claims fail.
const sharedText = "This store has claims instead of locks, because several hosts write it.\n"

// Share marks the store as one that several hosts write. It fails while an older mark, the folder of locks, is in use.
func (s *Store) Share() error {
	if s.shared {
		return nil
	}
	if err := s.MakeDir(s.dir); err != nil {
		return err
	}
	locks := s.path("locks")
	if err := os.Remove(locks); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the store %s cannot be shared (store.shared) while a run uses it; run again when no run does: %w",
			s.dir, err)
	}
	s.shared = true
	temporary := s.path(".shared-" + rand.Text())
	if err := disk.WriteFile(temporary, []byte(sharedText), 0o600); err != nil {
		return err
	}
	defer os.Remove(temporary)
	if err := os.Link(temporary, locks); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// Shared reports whether several hosts write the store.
func (s *Store) Shared() bool { return s.shared }

// lockFolder is the folder of the locks or claims of keys.
func (s *Store) lockFolder() string {
	if s.shared {
		return "claims"
	}
	return "locks"
}

// identity reads the id and the boot of a claim. Another id than newClaim makes is an error, because it becomes part of
// the path of the successor.
func identity(f *os.File) (id, onBoot, path string, err error) {
	lines := bufio.NewReader(io.NewSectionReader(f, claimAt, 4096))
	for _, v := range []*string{&id, &onBoot, &path} {
		line, lineErr := lines.ReadString('\n')
		*v, err = strings.TrimSuffix(line, "\n"), errors.Join(err, lineErr)
	}
	if err != nil || len(id) != idLength || strings.Trim(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") != "" {
		return "", "", "", fmt.Errorf("%s is no claim", f.Name())
	}
	return id, onBoot, path, nil
}

// released reports whether the holders of a claim have ended: at once for those of this host, by the lock that they
// also hold, for others after lostAfter.
func released(f *os.File) (id string, free bool) {
	id, onBoot, _, _ := identity(f)
	return id, alive.Ended(f, cmp.Or(id, f.Name()), onBoot)
}

// claim claims path, or its last successor. It returns nil if another process holds it. It looks at all successors,
// whose silence is measured at the same time: a copied store may have many.
func claim(path string) (*Lock, error) {
	var before []string
	held := false
	for at := path; len(before) < mostSuccessors; {
		f, err := disk.OpenFile(at, os.O_RDWR, 0)
		if errors.Is(err, fs.ErrNotExist) {
			if held {
				return nil, nil
			}
			l, err := newClaim(at)
			if l == nil || err != nil {
				return nil, err
			}
			if l.before = before; lastOf(path) != at { // the chain was released in the meantime
				return nil, l.Unlock()
			}
			return l, nil
		}
		if err != nil {
			return nil, fmt.Errorf("claim: %w", err)
		}
		id, free := released(f)
		f.Close()
		held = held || !free
		before, at = append(before, at), path+"."+id
	}
	return nil, fmt.Errorf("claim: %s has more than %d successors: remove them", path, mostSuccessors)
}

// lastOf returns the last successor of a claim; "" if there is none.
func lastOf(path string) string {
	last, at := "", path
	for range mostSuccessors {
		f, err := openHolder(at)
		if err != nil {
			return last
		}
		id, _, _, err := identity(f)
		f.Close()
		if err != nil {
			return last
		}
		last, at = at, path+"."+id
	}
	return last
}

// newClaim creates the file of a claim; nil if another process was first.
func newClaim(path string) (*Lock, error) {
	id := rand.Text()[:idLength]
	temporary := filepath.Join(filepath.Dir(path), "."+id)
	f, err := disk.OpenFile(temporary, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	defer os.Remove(temporary)
	if _, err = disk.WriteAt(f, []byte(id+"\n"+alive.Boot()+"\n"+path+"\n"), claimAt); err == nil {
		// Nobody else knows the random name yet, so the lock is free.
		if _, err = alive.Hold(f); alive.Without(err) {
			err = nil // only the beat shows that the claim is held
		}
	}
	if err == nil {
		err = disk.LinkOnce(temporary, path)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil, f.Close()
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &Lock{file: f, path: path, id: id, stop: alive.Beat(f)}, nil
}

// CheckClaim returns an error if a claim, of which this process has the file, has a successor. A stage calls it before
// it commits. Files of other stores have no claim and pass.
func CheckClaim(f *os.File) error {
	id, _, path, err := identity(f)
	if err != nil {
		return nil
	}
	root := strings.SplitN(filepath.Base(path), ".", 2)[0]
	os.ReadDir(filepath.Dir(path)) // refreshes the names of a network file system
	if disk.Exists(filepath.Join(filepath.Dir(path), root+"."+id)) || !disk.Exists(path) {
		return fmt.Errorf("this process was stopped for more than %v, so another host has taken its stage over", alive.Lost())
	}
	return nil
}

// release ends a claim. The first of the chain goes first: from then on a new chain may start.
func (l *Lock) release() error {
	l.stop()
	if CheckClaim(l.file) != nil {
		return l.file.Close()
	}
	var errs []error
	for _, path := range append(l.before, l.path) {
		errs = append(errs, os.Remove(path))
	}
	return errors.Join(append(errs, l.file.Close())...)
}
