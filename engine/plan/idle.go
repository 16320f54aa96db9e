package plan

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/internal/disk"
	"rcgrpo/engine/internal/stat"
	"rcgrpo/engine/lang"
)

// Idle is the answer that a run of an experiment would change nothing.
type Idle struct {
	Experiment string
	Counts     map[string]int // of all nodes, by verb
	Disabled   []string       // as in Experiment
}

// idleRecord is the stored form of an Idle, with the stamp of every file that it depends on. It is text: a CRC-32 of
// the remaining text, the exported fields as JSON, and a line "STAMP PATH" per file.
type idleRecord struct {
	Idle
	Build    string   // stamp of the binary that made the record
	Identity string   // of the experiment and its variables (idlePath)
	Base     string   // the experiment's folder
	Paths    []string // the experiment's own files, absolute
	Sources  int      // number of files that Load read; symbolic links among them are followed

	files []string // lines; the path of a file below Base is relative to it, that of a folder ends with a slash
}

func (c *idleRecord) add(path string, s stat.Stamp) {
	if !strings.HasSuffix(path, "/") {
		path = strings.TrimPrefix(path, c.Base+"/")
	}
	c.files = append(c.files, string(s.Append(nil))+" "+path)
}

// unchanged reports whether the file of a line has its stamp. Base is open as dir; flags are those of fstatat.
func unchanged(line string, dir, flags int) bool {
	stamp, path, _ := strings.Cut(line, " ")
	var now stat.Stamp
	var err error
	if strings.HasSuffix(path, "/") {
		now, _, err = stat.FolderStamp(path)
	} else {
		now, err = stat.StampAt(dir, path, flags)
	}
	var text [80]byte // on the stack, since a record may have 100,000 lines
	return err == nil && string(now.Append(text[:0])) == stamp
}

// Unchanged returns the answer that SaveIdle stored, if no file that it depends on has another stamp. It does not parse
// the experiment. It returns nil if something may have changed or no answer is stored; then Load and New decide. A
// Source without a path means the only experiment of the current folder, as in FindExperiment. RCGRPO_COMPILED=off in
// the environment disables stored answers.
func Unchanged(src lang.Source) *Idle {
	if src.Path == "" {
		src.Path = "."
		if paths, _, _, err := lang.ExperimentFiles(".", nil); err == nil && len(paths) == 1 {
			src.Path = paths[0]
		}
	}
	site, _, diags := lang.LoadSite(src)
	if len(diags) > 0 || site.StorePath == "" {
		return nil
	}
	path, identity, ok := idlePath(src, site)
	if !ok {
		return nil
	}
	c, err := readIdle(path)
	if err != nil || c.Build != buildID() || c.Identity != identity || !c.holds(src) {
		return nil
	}
	return &c.Idle
}

// idlePath returns where the record of an experiment is stored, and the identity that it must contain. ok is false
// where none can be stored.
func idlePath(src lang.Source, site *lang.Site) (path, identity string, ok bool) {
	if lang.EnvValue(src.Env, "RCGRPO_COMPILED") == "off" || src.Base != "" || src.Name != "" || src.Digests != nil ||
		len(src.Targets) > 0 || buildID() == "" {
		return "", "", false
	}
	paths := append([]string{src.Path, site.Path}, src.VarFiles...)
	for i, p := range paths {
		if p != "" {
			paths[i] = stat.Absolute(p)
		}
	}
	env := slices.DeleteFunc(slices.Clone(src.Env), func(v string) bool {
		return !strings.HasPrefix(v, "RCGRPO_VAR_") && !strings.HasPrefix(v, "HOME=")
	})
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q", paths, src.Vars, src.Sets, env))
	identity = hex.EncodeToString(sum[:])
	return filepath.Join(site.StorePath, "compiled", identity), identity, true
}

// buildID returns the stamp of this binary; "" if it is unknown.
var buildID = sync.OnceValue(func() string {
	info, err := os.Stat("/proc/self/exe")
	if err != nil {
		return ""
	}
	return string(stat.StampOf(info).Append(nil))
})

// readIdle reads a record. A power cut may have torn it.
func readIdle(path string) (*idleRecord, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	in := bufio.NewReader(file)
	first, err := in.ReadString('\n')
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	if info, err := file.Stat(); err == nil {
		text.Grow(int(info.Size()))
	}
	sum := crc32.NewIEEE()
	if _, err := io.Copy(io.MultiWriter(&text, sum), in); err != nil {
		return nil, err
	}
	if first != fmt.Sprintf("%08x\n", sum.Sum32()) {
		return nil, errors.New("torn record")
	}
	lines := strings.Split(text.String(), "\n")
	c := &idleRecord{files: lines[1:]}
	return c, json.Unmarshal([]byte(lines[0]), c)
}

// write stores the record in path.
func (c *idleRecord) write(path string) error {
	header, err := json.Marshal(c)
	if err != nil {
		return err
	}
	text := strings.Join(append([]string{string(header)}, c.files...), "\n")
	record := fmt.Appendf(nil, "%08x\n%s", crc32.ChecksumIEEE([]byte(text)), text)
	dir := filepath.Dir(path)
	return errors.Join(os.MkdirAll(dir, 0o700), disk.Overwrite(dir, path, record))
}

// filesPerGoroutine is the number of files that justify a goroutine of holds.
const filesPerGoroutine = 1024

// holds reports whether the experiment consists of the recorded files, and every file has the recorded stamp.
func (c *idleRecord) holds(src lang.Source) bool {
	paths, _, _, err := lang.ExperimentFiles(src.Path, src.Besides())
	same := func(path, had string) bool { return stat.Absolute(path) == had }
	if err != nil || !slices.EqualFunc(paths, c.Paths, same) {
		return false
	}
	base, err := unix.Open(c.Base, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(base)
	var checks sync.WaitGroup
	var changed atomic.Bool
	check := func(files []string, flags int) {
		for part := range slices.Chunk(files, filesPerGoroutine) {
			checks.Go(func() {
				if slices.ContainsFunc(part, func(line string) bool { return !unchanged(line, base, flags) }) {
					changed.Store(true)
				}
			})
		}
	}
	check(c.files[:c.Sources], 0)
	check(c.files[c.Sources:], unix.AT_SYMLINK_NOFOLLOW)
	checks.Wait()
	return !changed.Load()
}

// SaveIdle stores the answer of Unchanged, if everything is up to date. It stats all results and published files. A
// store that cannot be written is no error: it only costs the next run time.
func (p *Plan) SaveIdle() {
	x := p.Experiment
	if len(p.Nodes) != len(x.Nodes) || x.Warned || slices.ContainsFunc(x.Modules, isFolder) || x.Site == nil ||
		x.Site.StorePath != p.Store.Dir() {
		return
	}
	path, identity, ok := idlePath(x.Source, x.Site)
	if !ok {
		return
	}
	c := &idleRecord{Idle: Idle{x.Name, map[string]int{}, x.Disabled}, Build: buildID(), Identity: identity,
		Base: x.Dir, Sources: len(x.Sources)}
	for _, path := range x.Paths {
		c.Paths = append(c.Paths, stat.Absolute(path))
	}
	for _, f := range x.Sources {
		if f.TooRecent {
			return
		}
		path := f.Path
		if f.Folder {
			path += "/"
		}
		c.add(path, f.Stamp)
	}
	stat.AwaitTick() // otherwise the stamps of the results that were committed last are too recent
	if p.addResults(c) {
		_ = c.write(path)
	}
}

// isFolder reports whether a module is a folder. A new file in it would change the experiment, but no recorded file.
func isFolder(m lang.ModuleSource) bool { return m.Folder }

// addResults adds all results and published files to c. It reports whether they are those that the plan is based on,
// with stamps that prove it.
func (p *Plan) addResults(c *idleRecord) bool {
	now, tooRecent := stat.Clock(), false
	add := func(path string, info fs.FileInfo) {
		stamp := stat.StampOf(info)
		tooRecent = tooRecent || stamp.TooRecent(now)
		c.add(path, stamp)
	}
	manifests := make(map[*lang.Node]*artifact.Manifest, len(p.Nodes))
	for _, n := range p.Nodes {
		m, err := p.Store.Witness(n.Key, add)
		verb := UpToDate
		switch {
		case errors.Is(err, artifact.ErrCollected):
			verb = Collected
		case err != nil:
			return false
		}
		key, _, _ := keyFrom(n.Node, func(from *lang.Node) *artifact.Manifest { return manifests[from] })
		if key != n.Key || tooRecent {
			return false
		}
		manifests[n.Node] = m
		c.Counts[string(verb)]++
		if verb == Collected {
			continue
		}
		for _, pub := range n.Published(m) {
			path, info, intact := p.published(m, pub)
			if !intact {
				return false
			}
			add(path, info)
		}
	}
	return !tooRecent
}
