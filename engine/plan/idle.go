package plan

import (
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/internal/stat"
	"rcgrpo/engine/lang"
)

// Verdict is the answer that a run of an experiment would change nothing.
type Verdict struct {
	Experiment string
	Counts     map[Verb]int // of all nodes
	Disabled   []string     // as in Experiment
}

// Unchanged returns the verdict that SaveVerdict stored, if every file it was derived from is unchanged. It does not
// parse the experiment. It returns nil if something may have changed or no verdict is stored; then Load and New
// decide. A Source without a path means the only experiment of the current folder, as in FindExperiment.
// RCGRPO_COMPILED=off in the environment disables stored verdicts.
func Unchanged(src lang.Source) *Verdict {
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
	path, identity, ok := verdictPath(src, site)
	if !ok {
		return nil
	}
	c, err := readVerdict(path, buildID(), identity)
	if err != nil {
		return nil
	}
	reread, holds := c.stillHolds(src)
	if !holds {
		return nil
	}
	if reread >= refreshFrom {
		if record, ok := c.encode(); ok {
			_ = writeVerdict(path, record) // without it the next run reads the files again
		}
	}
	return &Verdict{Experiment: c.Experiment, Counts: c.Counts, Disabled: c.Disabled}
}

// refreshFrom is the number of touched but equal files that justify a new record. Below it a run with nothing to do
// writes nothing.
const refreshFrom = 100

// verdictPath returns where the verdict of an experiment is stored, and the identity that it must contain. ok is false
// where none can be stored.
func verdictPath(src lang.Source, site *lang.Site) (path, identity string, ok bool) {
	if lang.EnvValue(src.Env, "RCGRPO_COMPILED") == "off" || src.Base != "" || src.Name != "" || src.Digests != nil ||
		len(src.Targets) > 0 || buildID() == "" {
		return "", "", false
	}
	h := sha256.New()
	add := func(texts ...string) {
		for _, s := range texts {
			h.Write([]byte(s))
			h.Write([]byte{0})
		}
	}
	for _, p := range append([]string{src.Path, site.Path}, src.VarFiles...) {
		if p != "" {
			p = stat.Absolute(p)
		}
		add("path", p)
	}
	for _, name := range slices.Sorted(maps.Keys(src.Vars)) {
		add("var", name, src.Vars[name])
	}
	add("set", strings.Join(src.Sets, "\n"))
	for _, v := range src.Env {
		if strings.HasPrefix(v, "RCGRPO_VAR_") || strings.HasPrefix(v, "HOME=") {
			add("env", v)
		}
	}
	identity = hex.EncodeToString(h.Sum(nil))
	return filepath.Join(site.StorePath, "compiled", identity), identity, true
}

// buildID returns the ID that the Go linker derived from the content of this binary; "" if it has none.
var buildID = sync.OnceValue(func() string {
	f, err := elf.Open("/proc/self/exe")
	if err != nil {
		return ""
	}
	defer f.Close()
	note := f.Section(".note.go.buildid")
	if note == nil {
		return ""
	}
	const header = 16 // sizes, type and name of the note
	b, err := note.Data()
	if err != nil || len(b) <= header {
		return ""
	}
	return strings.TrimRight(string(b[header:]), "\x00")
})

// stillHolds compares every file of the verdict with its recorded state. reread counts the files whose content had to
// be read because their stamps prove nothing; their states are current afterwards.
func (c *verdictFile) stillHolds(src lang.Source) (reread int, holds bool) {
	if !c.sameFiles(src) {
		return 0, false
	}
	base, err := unix.Open(c.Base, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, false
	}
	defer unix.Close(base)
	var read atomic.Int64
	check := func(f *stat.File, flags int) bool {
		same, wasRead := unchanged(f, base, c.Base, flags)
		if wasRead {
			read.Add(1)
		}
		return same
	}
	sources, copies := len(c.sources), len(c.published)
	holds = stat.Every(sources+copies+len(c.results), stat.ManyStats, func(i int) bool {
		switch {
		case i < sources:
			return check(&c.sources[i], 0)
		case i < sources+copies:
			f := &c.published[i-sources]
			before := f.Stamp
			return check(f, unix.AT_SYMLINK_NOFOLLOW) && f.Stamp == before // a touched copy is published again
		}
		f := &c.results[i-sources-copies]
		now, err := stat.StampAt(base, f.Path, unix.AT_SYMLINK_NOFOLLOW)
		return err == nil && now == f.Stamp && !f.TooRecent
	})
	return int(read.Load()), holds
}

// sameFiles reports whether the experiment consists of the recorded files.
func (c *verdictFile) sameFiles(src lang.Source) bool {
	paths, _, _, err := lang.ExperimentFiles(src.Path, src.Besides())
	same := func(path, had string) bool { return stat.Absolute(path) == had }
	return err == nil && slices.EqualFunc(paths, c.Paths, same)
}

// unchanged compares a file with its recorded state. It reads the content only if the stamps differ or are too recent;
// read is then true and the state is updated. A relative path is below base, which is open as dir.
func unchanged(f *stat.File, dir int, base string, flags int) (same, read bool) {
	path := f.Path
	if !filepath.IsAbs(path) {
		path = base + "/" + path
	}
	if !f.TooRecent {
		var now stat.Stamp
		var err error
		if f.Folder {
			now, _, err = stat.FolderStamp(path)
		} else {
			now, err = stat.StampAt(dir, f.Path, flags)
		}
		if err != nil || now == f.Stamp {
			return err == nil, false
		}
	}
	var d stat.Digests
	digest, err := d.Of(path, path, f.Folder)
	if err != nil || digest != f.Digest {
		return false, true
	}
	*f = d.Seen[path]
	return true, true
}

// SaveVerdict stores a verdict for Unchanged, if everything is up to date. It stats all results and published files.
// A store that cannot be written is no error: it only costs the next run time.
func (p *Plan) SaveVerdict() {
	x := p.Experiment
	if len(p.Nodes) != len(x.Nodes) || x.Warned || slices.ContainsFunc(x.Modules, isFolder) || x.Site == nil || x.Site.StorePath != p.Store.Dir() {
		return
	}
	path, identity, ok := verdictPath(x.Source, x.Site)
	if !ok {
		return
	}
	c := &verdictFile{Build: buildID(), Identity: identity, Experiment: x.Name, Base: x.Dir, Disabled: x.Disabled,
		Counts: map[Verb]int{}, sources: x.Sources}
	for _, path := range x.Paths {
		c.Paths = append(c.Paths, stat.Absolute(path))
	}
	stat.AwaitTick() // otherwise the stamps of the results that were committed last are too recent
	if !p.addResults(c) {
		return
	}
	if record, ok := c.encode(); ok {
		_ = writeVerdict(path, record)
	}
}

// isFolder reports whether a module is a folder. A new file in it would change the experiment, and no file of a verdict.
func isFolder(m lang.ModuleSource) bool { return m.Folder }

// addResults adds all results and published files to c. It reports whether they are those that the plan is based on.
func (p *Plan) addResults(c *verdictFile) bool {
	index := make(map[*lang.Node]int, len(p.Nodes))
	for i, n := range p.Nodes {
		index[n.Node] = i
	}
	manifests := make([]*artifact.Manifest, len(p.Nodes))
	results := make([][]stat.File, len(p.Nodes))
	published := make([][]stat.File, len(p.Nodes))
	intact := stat.Every(len(p.Nodes), stat.ManyReads, func(i int) (ok bool) {
		manifests[i], results[i], ok = p.result(p.Nodes[i].Key)
		if ok && manifests[i].Collected.IsZero() {
			published[i], ok = p.publishedFiles(p.Nodes[i], manifests[i])
		}
		return ok
	}) && stat.Every(len(p.Nodes), stat.ManyReads, func(i int) bool { // the key must follow from these inputs
		n := p.Nodes[i]
		if len(n.Inputs) == 0 {
			return true
		}
		key, _, _ := keyFrom(n.Node, func(from *lang.Node) *artifact.Manifest { return manifests[index[from]] })
		return key == n.Key
	})
	if !intact {
		return false
	}
	for i, m := range manifests {
		if m.Collected.IsZero() {
			c.Counts[UpToDate]++
		} else {
			c.Counts[Collected]++
		}
		c.results = append(c.results, results[i]...)
		c.published = append(c.published, published[i]...)
	}
	return true
}

// result returns the manifest of a key with the states of its files.
func (p *Plan) result(key string) (m *artifact.Manifest, files []stat.File, ok bool) {
	now := stat.Clock()
	m, err := p.Store.Witness(key, func(path string, info fs.FileInfo) {
		f := stat.File{Path: path, Stamp: stat.StampOf(info)}
		f.TooRecent = f.Stamp.TooRecent(now)
		files = append(files, f)
	})
	return m, files, err == nil || errors.Is(err, artifact.ErrCollected)
}
