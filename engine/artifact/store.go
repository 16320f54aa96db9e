package artifact

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"rcgrpo/engine/internal/disk"
)

// ErrNotFound and ErrNotHere are the answers of Lookup without a usable result. ErrNotHere comes with the manifest.
var (
	ErrNotFound = errors.New("not in the store")
	ErrNotHere  = errors.New("its bytes are not in this store")
)

// Sealed is the modification time of every file in objects/. An edit changes it, so one stat per file shows whether a
// result is intact; a file with another time is hashed.
var Sealed = time.Unix(946684800, 0) // 2000-01-01

// Store is a folder of results. Any number of goroutines and processes may use it at once; reading takes no lock.
type Store struct {
	dir    string
	shared bool // several hosts write it: see claim.go

	flushes flushes   // of the results that this process commits
	settled sync.Once // its folder is its own: see copy.go
}

// Open returns the store in dir. Nothing is created before the first write; a missing folder is an empty store.
func Open(dir string) (*Store, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open store %q: %w", dir, err)
	}
	if info, err := os.Stat(abs); err == nil && !info.IsDir() {
		return nil, fmt.Errorf("open store: %s is a file, not a folder", abs)
	}
	if disk.Exists(filepath.Join(abs, "nodes")) {
		return nil, fmt.Errorf("open store: %s was made by an older rcgrpo; name another folder (store { path } in the site "+
			"file) or remove it", abs)
	}
	mark, err := os.Lstat(filepath.Join(abs, "locks"))
	s := &Store{dir: abs, shared: err == nil && mark.Mode().IsRegular()}
	if err := s.readable(); err != nil {
		return nil, err
	}
	if err := s.settle(); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	return s, nil
}

// Dir is the store's folder, absolute. It may not exist yet.
func (s *Store) Dir() string { return s.dir }

// Runs is the folder of an experiment's run folders. It may not exist.
func (s *Store) Runs(experiment string) string { return s.path("runs", experiment) }

// Work is the scratch folder of a node without a result, for its next attempt to resume from. It may not exist.
func (s *Store) Work(key string) string { return s.path("work", key) }

// MakeWork creates the scratch folder of a key, whose lock the caller holds. fresh reports that it did not exist.
func (s *Store) MakeWork(key string) (fresh bool, err error) {
	fresh = !disk.Exists(s.Work(key))
	return fresh, s.MakeDir(s.Work(key))
}

// RemoveWork removes the scratch folder of a key.
func (s *Store) RemoveWork(key string) error { return os.RemoveAll(s.Work(key)) }

func (s *Store) path(parts ...string) string {
	return filepath.Join(append([]string{s.dir}, parts...)...)
}

func (s *Store) manifestPath(key string) string { return s.path("results", key+".json") }

func (s *Store) objectDir(digest string) string { return s.path("objects", digest) }

// Lookup returns the result of a key, after one stat per file. Without a manifest the error is ErrNotFound; if no
// port is here, because gc removed them or they were never fetched, it is ErrNotHere; if an object is here with a
// missing or edited file, it is a Problem. The last two come with the manifest. Has tells which ports are here.
func (s *Store) Lookup(key string) (*Manifest, error) {
	m, err := s.Manifest(key)
	switch {
	case errors.Is(err, disk.ErrDamaged): // the node runs again; Check reports the file
		return nil, ErrNotFound
	case err != nil:
		return nil, err
	}
	absent := map[string]bool{} // by digest
	for _, o := range m.objects() {
		sealed, err := s.verify(m.Address, o, Sealed)
		switch {
		case errors.Is(err, ErrNotHere):
			absent[o.Digest] = true
		case err != nil:
			return m, err
		case !sealed:
			s.heal(o) // fails in a read-only store
		}
	}
	for _, output := range m.Outputs {
		if !slices.ContainsFunc(output.Objects(), func(o Output) bool { return absent[o.Digest] }) {
			return m, nil
		}
	}
	return m, ErrNotHere
}

// Has reports whether the objects of a port of a result are here. It does not look at their files.
func (s *Store) Has(m *Manifest, port string) bool {
	o, ok := m.Outputs[port]
	return ok && !slices.ContainsFunc(o.Objects(), func(o Output) bool { return !s.has(o) })
}

// Absent returns the ports of a result that are not here.
func (s *Store) Absent(m *Manifest) []string {
	return slices.DeleteFunc(m.Ports(), func(port string) bool { return s.Has(m, port) })
}

func (s *Store) has(o Output) bool { return disk.Exists(s.objectDir(o.Digest)) }

// Manifest returns the manifest of a key without a look at its files, or ErrNotFound.
func (s *Store) Manifest(key string) (*Manifest, error) {
	if err := validKey(key); err != nil {
		return nil, err
	}
	m := new(Manifest)
	err := disk.ReadJSON(s.manifestPath(key), MaxManifest, m)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, ErrNotFound
	case err != nil:
		return nil, err
	case m.Key != key:
		return nil, fmt.Errorf("manifest %s.json has key %q: it %w", key, m.Key, disk.ErrDamaged)
	}
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("manifest %s.json %w: %w", key, disk.ErrDamaged, err)
	}
	m.Sum = "" // of a remote folder, which is a store too
	return m, nil
}

// verify compares an object with its entry in a manifest. It hashes the files whose time is not trusted and reports
// whether there are none. A difference is a Problem, and the file loses its seal, so that every later Lookup finds it.
// Without the folder of the object the error is ErrNotHere.
func (s *Store) verify(address string, o Output, trusted time.Time) (sealed bool, err error) {
	return verifyFiles(s.objectDir(o.Digest), address, o.Files, trusted)
}

// verifyFiles is verify of the files of a folder.
func verifyFiles(dir, address string, files []FileInfo, trusted time.Time) (sealed bool, err error) {
	sealed = true
	for _, f := range files {
		path := filepath.Join(dir, filepath.FromSlash(f.Name))
		info, err := os.Lstat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist) && !disk.Exists(dir):
			return false, ErrNotHere
		case errors.Is(err, fs.ErrNotExist):
			return false, Problem{Address: address, Path: path, What: missing}
		case err != nil:
			return false, err
		}
		edited := Problem{Address: address, Path: path, What: "edited"}
		switch {
		case info.Size() != f.Bytes || !info.Mode().IsRegular():
			return false, edited
		case info.ModTime().Equal(trusted):
			continue
		}
		sealed = false
		sum, _, err := hashFile(path)
		if err != nil {
			return false, err
		}
		if sum != f.SHA256 {
			unseal(path)
			return false, edited
		}
	}
	return sealed, nil
}

// Verify is Lookup's comparison of a result with its manifest, whatever the times of the files.
func (s *Store) Verify(m *Manifest) error {
	for _, o := range m.objects() {
		if _, err := s.verify(m.Address, o, time.Time{}); err != nil && !errors.Is(err, ErrNotHere) {
			return err
		}
	}
	return nil
}

// seal makes a file of a result read-only and gives it the time Sealed.
func seal(path string) error {
	return errors.Join(disk.Chmod(path, 0o444), disk.Chtimes(path, Sealed))
}

// unseal changes the time of a damaged file. It ignores errors, such as those of a read-only store.
func unseal(path string) {
	now := time.Now()
	os.Chtimes(path, now, now)
}

// heal seals the files of an object that have the right content: those of a copy of a store have other times. They are
// flushed before, because a file with the time Sealed is not hashed after a power cut.
func (s *Store) heal(o Output) error {
	if err := syncTree(s.objectDir(o.Digest)); err != nil {
		return err
	}
	for _, f := range o.Files {
		if err := seal(s.ObjectPath(o, f)); err != nil {
			return err
		}
	}
	return nil
}

// ObjectPath returns the path of a file of an object. It may not exist.
func (s *Store) ObjectPath(o Output, f FileInfo) string {
	return filepath.Join(s.objectDir(o.Digest), filepath.FromSlash(f.Name))
}

// pointer is the content of last/HASH.json. Earlier releases made that file a link to the manifest, which has the same
// fields.
type pointer struct {
	Experiment string `json:"experiment"`
	Address    string `json:"address"`
	Key        string `json:"key"`
}

func (s *Store) pointerPath(experiment, address string) string {
	sum := sha256.Sum256([]byte(experiment + "\x00" + address))
	return s.path("last", hex.EncodeToString(sum[:])+".json")
}

// Last returns the manifest that was last committed or reused for an address of an experiment, or
// ErrNotFound. Its files are not checked: it explains why a node has another key now.
func (s *Store) Last(experiment, address string) (*Manifest, error) {
	var p pointer
	if err := disk.ReadJSON(s.pointerPath(experiment, address), MaxManifest, &p); err != nil || validKey(p.Key) != nil {
		return nil, ErrNotFound
	}
	m, err := s.Manifest(p.Key)
	if errors.Is(err, disk.ErrDamaged) {
		return nil, ErrNotFound
	}
	return m, err
}

// Remember makes the result of a key the last one of an address. It writes nothing if that is so already.
func (s *Store) Remember(experiment, address, key string) error {
	var have pointer
	if err := disk.ReadJSON(s.pointerPath(experiment, address), MaxManifest, &have); err == nil && have.Key == key {
		return nil
	}
	path := s.pointerPath(experiment, address)
	return s.writeJSON(filepath.Dir(path), path, pointer{experiment, address, key})
}

// Artifact is one port of a result, opened for reading.
type Artifact struct {
	Dir      string // the port's files, read-only, without times.*: see Path
	Type     string
	Digest   string
	Manifest *Manifest // nil outside a store
	Ref      Ref       // of the reader's settings; zero without one
	times    string    // folder of the times.* files; "" without any
	files    []FileInfo
}

// mostAdded is the number of bytes that an edited file may have more than the recorded one. `verify` reports what
// differs.
const mostAdded = 1 << 20

// Open opens one port of a result. Another file in the place of one of its files, such as a pipe or an endless one, is
// a Problem. A missing file is an error of its reader.
func (s *Store) Open(m *Manifest, port string) (*Artifact, error) {
	o, err := m.output(port)
	if err != nil {
		return nil, err
	}
	for _, o := range o.Objects() {
		for _, f := range o.Files {
			path := s.ObjectPath(o, f)
			if info, err := os.Lstat(path); err == nil && (info.Size()-f.Bytes > mostAdded || !info.Mode().IsRegular()) {
				return nil, Problem{Address: m.Address, Path: path, What: "edited"}
			}
		}
	}
	a := &Artifact{Dir: s.objectDir(o.Digest), Type: o.Type, Digest: o.Digest, Manifest: m, files: o.Files}
	if o.Times != nil {
		a.times = s.objectDir(o.Times.Digest)
	}
	return a, nil
}

// Path returns the path of a file of the artifact by the name under which it was written, times.* files
// included. The file may not exist.
func (a *Artifact) Path(name string) string {
	if isTimes(name) && a.times != "" {
		return filepath.Join(a.times, filepath.FromSlash(name))
	}
	return filepath.Join(a.Dir, filepath.FromSlash(name))
}

// Read reads a file of the artifact into memory. A store may be someone else's, so a file of more than disk.MaxRecord
// bytes is an error.
func (a *Artifact) Read(name string) ([]byte, error) {
	return disk.ReadPlain(a.Path(name), disk.MaxRecord)
}

// maxDescription limits a JSON file beside the rows or weights of an artifact, in bytes.
const maxDescription = 64 << 10

// ReadJSON reads a JSON file of the artifact that describes its other files.
func (a *Artifact) ReadJSON(name string, v any) error {
	return disk.ReadJSON(a.Path(name), maxDescription, v)
}

// Only returns the path of the one file or folder that contains the whole artifact. ok is false if there are
// several, or none.
func (a *Artifact) Only() (path string, ok bool) {
	names := map[string]bool{}
	for _, f := range a.files {
		first, _, _ := strings.Cut(f.Name, "/")
		names[first] = true
	}
	if a.Manifest == nil {
		entries, _ := os.ReadDir(a.Dir)
		for _, e := range entries {
			names[e.Name()] = true
		}
	}
	for only := range names {
		return filepath.Join(a.Dir, only), len(names) == 1
	}
	return "", false
}

// validKey rejects everything but a hash, since keys become parts of paths.
func validKey(key string) error {
	if len(key) < 8 || len(key) > 128 || strings.Trim(key, "0123456789abcdef") != "" {
		return fmt.Errorf("%q is not a key: want hexadecimal digits", key)
	}
	return nil
}

// Part returns the files that a store needs for some ports of one result: slash-separated name below the
// store's folder to path. It compares them with the manifest as Lookup does. For a port that is not here the error is
// ErrNotHere.
func (s *Store) Part(key string, ports ...string) (map[string]string, error) {
	m, err := s.Manifest(key)
	if err != nil {
		return nil, err
	}
	files := map[string]string{"results/" + key + ".json": s.manifestPath(key)}
	for _, port := range ports {
		o, err := m.output(port)
		if err != nil {
			return nil, err
		}
		for _, object := range o.Objects() {
			if _, err := s.verify(m.Address, object, Sealed); err != nil {
				return nil, err
			}
			for _, f := range object.Files {
				files["objects/"+object.Digest+"/"+f.Name] = s.ObjectPath(object, f)
			}
		}
	}
	return files, nil
}

// A store belongs to one user: its folders have mode 0700, its files 0600.

// readable returns an error that names the owner if the store exists and this user may not read it.
func (s *Store) readable() error {
	for _, dir := range []string{s.dir, s.path("results")} {
		if err := unix.Access(dir, unix.R_OK|unix.X_OK); !errors.Is(err, fs.ErrPermission) {
			continue
		}
		owner := "another user"
		if info, err := os.Stat(dir); err == nil {
			owner = ownerOf(info)
		}
		return fmt.Errorf("open store: %s is private to %s. Name a folder of your own (store { path } in the site file)",
			s.dir, owner)
	}
	return nil
}

// Owned returns an error if a new file in the store has another owner than the folder of runs, which the first run has
// made, as when root writes to the store of a user: the owner could not read the files.
func (s *Store) Owned(made *os.File) error {
	file, err := made.Stat()
	if err != nil {
		return err
	}
	folder, err := os.Stat(s.Runs(""))
	if err != nil || ownerOf(file) == ownerOf(folder) {
		return err
	}
	return fmt.Errorf("the store %s belongs to %s, who could not read the files of %s. "+
		"Run as that user, or name a folder of your own (store { path } in the site file)",
		s.dir, ownerOf(folder), ownerOf(file))
}

// ownerOf names the owner of a file.
func ownerOf(info fs.FileInfo) string {
	uid := strconv.Itoa(int(info.Sys().(*syscall.Stat_t).Uid))
	if u, err := user.LookupId(uid); err == nil {
		return "user " + u.Username
	}
	return "user " + uid
}
