package artifact

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"rcgrpo/engine/internal/disk"
)

// What Lookup and Last answer when there is no usable result. ErrCollected comes with the manifest.
var (
	ErrNotFound  = errors.New("not in the store")
	ErrCollected = errors.New("its bytes were removed by gc")
)

// errDamaged says of a record that a power cut or a hand has left it unreadable.
var errDamaged = errors.New("is damaged")

// DamageError says that a result is recorded, but a file of it is missing or not what was recorded.
type DamageError struct {
	Address string
	File    string // path of the file
	What    string // "missing", "edited"
}

func (e *DamageError) Error() string { return fmt.Sprintf("%s of %s is %s", e.File, e.Address, e.What) }

// Sealed is the modification time of every file in objects/ whose bytes are on the disk. An edit by hand moves it, so one
// stat per file tells whether a result is as it was recorded; a file without it is hashed.
var Sealed = time.Unix(946684800, 0) // 2000-01-01

// Store is a folder of results. Its methods may be called from any number of goroutines and processes at once;
// reading takes no lock.
type Store struct {
	dir     string
	spare   spares
	room    room
	holding holding
	budget  *Budget // of Rows; nil without limit
}

// Open names the store in dir. Nothing is created before the first write; a missing folder is an empty store.
func Open(dir string) (*Store, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open store %q: %w", dir, err)
	}
	if info, err := os.Stat(abs); err == nil && !info.IsDir() {
		return nil, fmt.Errorf("open store: %s is a file, not a folder", abs)
	}
	s := &Store{dir: abs}
	return s, s.readable()
}

// Dir is the store's folder, absolute. It may not exist yet.
func (s *Store) Dir() string { return s.dir }

// Work is the scratch folder of a node that has not finished, for its next attempt to resume from. It may not exist.
func (s *Store) Work(key string) string { return s.path("work", key) }

// Runs is the folder of an experiment's run folders. It may not exist.
func (s *Store) Runs(experiment string) string { return s.path("runs", experiment) }

func (s *Store) path(parts ...string) string {
	return filepath.Join(append([]string{s.dir}, parts...)...)
}

func (s *Store) objectDir(digest string) string { return s.path("objects", digest) }

// Looker is shown each file that an answer rests on, as it is found before it is read.
type Looker func(path string, info fs.FileInfo)

// nobody looks.
func nobody(string, fs.FileInfo) {}

// Lookup returns the result recorded under key, after one stat per file. Without a manifest the error is ErrNotFound;
// when gc removed the bytes it is ErrCollected; when a file is missing or edited it is a *DamageError. In these two
// cases the manifest comes too.
func (s *Store) Lookup(key string) (*Manifest, error) { return s.lookup(key, nobody) }

// lookup is Lookup that shows seen the files of the objects.
func (s *Store) lookup(key string, seen Looker) (*Manifest, error) {
	m, err := s.Manifest(key)
	if errors.Is(err, errDamaged) { // as if it were not there, so that a run makes it again; Check tells of it
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	if !m.Collected.IsZero() {
		return m, ErrCollected
	}
	return m, s.intactAll(m, seen)
}

// Witness is Lookup that shows seen what its answer rests on: the manifest and the files of the objects. The manifest of a
// result that this process has recorded, as made, is read only when it is another file now; made may be nil.
func (s *Store) Witness(key string, made *Finished, seen Looker) (*Manifest, error) {
	path := s.path("nodes", key+".json")
	now, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	seen(path, now)
	if made != nil && made.file != nil && os.SameFile(now, made.file) && now.ModTime().Equal(made.file.ModTime()) {
		return made.Manifest, s.intactAll(made.Manifest, seen)
	}
	return s.lookup(key, seen)
}

// intactAll compares a result's files with its record, by one stat each; of the first that differs it returns a *DamageError.
func (s *Store) intactAll(m *Manifest, seen Looker) error {
	for _, o := range m.objects() {
		if err := s.intact(m.Address, o, seen); err != nil {
			return err
		}
	}
	return nil
}

// Manifest returns what is recorded under key without looking at the files, or ErrNotFound.
func (s *Store) Manifest(key string) (*Manifest, error) {
	if err := validKey(key); err != nil {
		return nil, err
	}
	m := new(Manifest)
	if err := readJSON(s.path("nodes", key+".json"), m); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, ErrNotFound
		}
		return nil, err
	}
	if m.Key != key {
		return nil, fmt.Errorf("manifest %s.json says that its key is %q: it %w", key, m.Key, errDamaged)
	}
	return m, nil
}

// intact compares an object with its record: one stat per file, and the hash only where the time stamp moved. A file
// that was touched but holds the same bytes is sealed again, so it is hashed once.
func (s *Store) intact(address string, o Output, seen Looker) error {
	sealed, err := s.verify(address, o, seen)
	if err == nil && !sealed {
		s.seal(o) // only saves the next reader the hash; a read-only store stays as it is
	}
	return err
}

// verify is intact that changes nothing. It says whether all files are sealed.
func (s *Store) verify(address string, o Output, seen Looker) (sealed bool, err error) {
	dir := s.objectDir(o.Digest)
	sealed = true
	for _, f := range o.Files {
		path := filepath.Join(dir, filepath.FromSlash(f.Name))
		info, err := os.Lstat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return false, &DamageError{address, path, "missing"}
		case err != nil:
			return false, err
		}
		seen(path, info)
		switch {
		case info.Size() == f.Bytes && info.ModTime().Equal(Sealed) && info.Mode().IsRegular():
			continue
		case info.Size() != f.Bytes || !info.Mode().IsRegular():
			return false, &DamageError{address, path, "edited"}
		}
		sealed = false
		sum, _, err := hashFile(path)
		if err != nil {
			return false, err
		}
		if sum != f.SHA256 {
			return false, &DamageError{address, path, "edited"}
		}
	}
	return sealed, nil
}

// seal makes the files of an object read-only and gives them the time stamp Sealed.
func (s *Store) seal(o Output) error {
	for _, f := range o.Files {
		if err := disk.Chmod(filepath.Join(s.objectDir(o.Digest), filepath.FromSlash(f.Name)), 0o444); err != nil {
			return err
		}
	}
	return s.stamp(o)
}

// stamp is seal of files that are read-only already.
func (s *Store) stamp(o Output) error {
	for _, f := range o.Files {
		if err := disk.Chtimes(filepath.Join(s.objectDir(o.Digest), filepath.FromSlash(f.Name)), Sealed); err != nil {
			return err
		}
	}
	return nil
}

// pointer is the content of last/HASH.json, or part of it: where the file system has hard links, a manifest is.
type pointer struct {
	Experiment string `json:"experiment"`
	Address    string `json:"address"`
	Key        string `json:"key"`
}

func (s *Store) pointerPath(experiment, address string) string {
	sum := sha256.Sum256([]byte(experiment + "\x00" + address))
	return s.path("last", hex.EncodeToString(sum[:])+".json")
}

// Last returns what was last committed or reused for an address of an experiment, or ErrNotFound. The files are not
// looked at: its Parts explain why a node has another key now.
func (s *Store) Last(experiment, address string) (*Manifest, error) {
	var p pointer
	if err := readJSON(s.pointerPath(experiment, address), &p); err != nil || validKey(p.Key) != nil { // a torn one only explained
		return nil, ErrNotFound
	}
	m, err := s.Manifest(p.Key)
	if errors.Is(err, errDamaged) {
		return nil, ErrNotFound
	}
	return m, err
}

// Remember makes key, which is recorded, what Last answers for an address. It writes nothing when that is so already.
func (s *Store) Remember(experiment, address, key string) error {
	path := s.pointerPath(experiment, address)
	var have pointer
	if err := readJSON(path, &have); err == nil && have.Key == key {
		return nil
	}
	if err := s.hold(); err != nil { // what gc finds aside it removes
		return err
	}
	defer s.free()
	manifest := s.path("nodes", key+".json")
	if s.point(path, func(to string) error { return disk.Link(manifest, to) }) == nil {
		return nil
	}
	return s.writeJSON(path, pointer{experiment, address, key}, false)
}

// point makes path another name of a manifest, which says of itself what a pointer says. link gives it one.
func (s *Store) point(path string, link func(to string) error) error {
	return s.into(path, func(to string) error { return disk.LinkOver(link, to) })
}

// Artifact is one port of a result, opened for reading.
type Artifact struct {
	Dir      string // the port's files, read-only; times.* files lie elsewhere: see Path
	Type     string
	Digest   string
	Manifest *Manifest // of the node that made it
	Ref      Ref       // how the reader named it; zero when it did not
	aside    string    // folder of the times.* files, "" without any
	files    []FileInfo
	budget   *Budget
}

// Open opens one port of a result.
func (s *Store) Open(m *Manifest, port string) (*Artifact, error) {
	o, ok := m.Outputs[port]
	if !ok {
		return nil, fmt.Errorf("%s has no port %q; it has %v", m.Address, port, m.Ports())
	}
	a := &Artifact{Dir: s.objectDir(o.Digest), Type: o.Type, Digest: o.Digest, Manifest: m, files: o.Files, budget: s.budget}
	if o.Aside != nil {
		a.aside = s.objectDir(o.Aside.Digest)
	}
	return a, nil
}

// Path is where a file of the artifact lies, by its name as it was written, times.* files included. Whether the file
// exists is for the caller to find out.
func (a *Artifact) Path(name string) string {
	if aside(name) && a.aside != "" {
		return filepath.Join(a.aside, filepath.FromSlash(name))
	}
	return filepath.Join(a.Dir, filepath.FromSlash(name))
}

// Only is the path of the one file or folder that holds all of the artifact. ok is false when there are several, or none.
func (a *Artifact) Only() (path string, ok bool) {
	var names []string
	for _, f := range a.files {
		names = append(names, f.Name)
	}
	if a.Manifest == nil { // of no store
		entries, _ := os.ReadDir(a.Dir)
		for _, e := range entries {
			names = append(names, e.Name())
		}
	}
	var only string
	for i, name := range names {
		first, _, _ := strings.Cut(name, "/")
		if i > 0 && first != only {
			return "", false
		}
		only = first
	}
	return filepath.Join(a.Dir, only), only != ""
}

// validKey keeps anything that is not a hash out of paths.
func validKey(key string) error {
	if len(key) < 8 || len(key) > 128 {
		return fmt.Errorf("%q is no key: want hexadecimal digits", key)
	}
	for _, c := range key {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return fmt.Errorf("%q is no key: want hexadecimal digits", key)
		}
	}
	return nil
}

func readJSON(path string, v any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s %w: %w", path, errDamaged, err)
	}
	return nil
}

// Part returns the files of a store that holds nothing but some ports of one result, with what stands aside of them:
// name below the store's folder, slash-separated, to path. Whether an object's files are intact is not looked at; one
// that gc removed is ErrCollected.
func (s *Store) Part(key string, ports ...string) (map[string]string, error) {
	m, err := s.Manifest(key)
	if err != nil {
		return nil, err
	}
	files := map[string]string{"nodes/" + key + ".json": s.path("nodes", key+".json")}
	for _, port := range ports {
		o, ok := m.Outputs[port]
		if !ok {
			return nil, fmt.Errorf("%s has no port %q; it has %v", m.Address, port, m.Ports())
		}
		if !m.Collected.IsZero() {
			return nil, fmt.Errorf("%s: %w", m.Address, ErrCollected)
		}
		for _, part := range []*Output{&o, o.Aside} {
			if part == nil {
				continue
			}
			for _, f := range part.Files {
				files["objects/"+part.Digest+"/"+f.Name] = filepath.Join(s.objectDir(part.Digest), filepath.FromSlash(f.Name))
			}
		}
	}
	return files, nil
}
