package engine

import (
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/internal/disk"
)

// Idle is the verdict that a run of an experiment would change nothing.
type Verdict struct {
	Experiment string
	Counts     map[Verb]int // of all nodes
	Disabled   []string     // as in Experiment
}

// Ended is all that such a run would tell.
func (i *Verdict) Ended() Event {
	counts := map[string]int{}
	for verb, n := range i.Counts {
		counts[string(verb)] = n
	}
	return Event{Time: time.Now(), Kind: EventEnded, Counts: counts}
}

// Unchanged answers from the compiled form that Compile left, where nothing has changed since: one look at each file that
// the verdict was concluded from, without parsing the experiment. It returns nil when something may have changed or
// nothing was compiled; then Load and Plan tell. A Source without a path means the only experiment of this folder, as
// FindExperiment does. RCGRPO_COMPILED=off in the environment turns it off, so that everything is read again.
func Unchanged(src Source) *Verdict {
	if src.Path == "" {
		src.Path = "."
		if paths, _, _, err := experimentFiles(".", nil); err == nil && len(paths) == 1 {
			src.Path = paths[0]
		}
	}
	site, _, diags := LoadSite(src)
	if len(diags) > 0 || site.StorePath == "" {
		return nil
	}
	path, identity, ok := compiledPlace(src, site)
	if !ok {
		return nil
	}
	c, err := readCompiled(path, buildID(), identity)
	if err != nil {
		return nil
	}
	again, holds := c.stillHolds(src)
	if !holds {
		return nil
	}
	if again >= refreshFrom {
		writeCompiled(path, c.encode()) // where that is impossible, the next one reads them again too
	}
	return &Verdict{Experiment: c.experiment, Counts: c.counts, Disabled: c.disabled}
}

// refreshFrom is how many files that were touched, but hold what they held, are worth a new record: below it a run that
// has nothing to do writes nothing.
const refreshFrom = 100

// compiledPlace says where the compiled form of an experiment lies, and what it must say of itself. ok is false where
// there can be none.
func compiledPlace(src Source, site *Site) (path, identity string, ok bool) {
	if envValue(src.Env, "RCGRPO_COMPILED") == "off" || src.Base != "" || src.Name != "" || src.Digests != nil || buildID() == "" {
		return "", "", false
	}
	h := sha256.New()
	say := func(what ...string) {
		for _, s := range what {
			h.Write([]byte(s))
			h.Write([]byte{0})
		}
	}
	for _, p := range append([]string{src.Path, site.Path}, src.VarFiles...) {
		if p != "" {
			p = absolute(p)
		}
		say("path", p)
	}
	names := make([]string, 0, len(src.Vars))
	for name := range src.Vars {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		say("var", name, src.Vars[name])
	}
	for _, v := range src.Env {
		if strings.HasPrefix(v, "RCGRPO_VAR_") || strings.HasPrefix(v, "HOME=") {
			say("env", v)
		}
	}
	identity = hex.EncodeToString(h.Sum(nil))
	return filepath.Join(site.StorePath, "compiled", identity), identity, true
}

// buildID is the id that the Go linker gave this binary, from its content; "" when it has none.
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
	b, err := note.Data()
	if err != nil {
		return ""
	}
	return string(b)
})

// holds compares every file that the verdict rests on with its fileState: files of the experiment and of data, published
// files, manifests and files of objects. again counts the files whose content was read because their stamps prove
// nothing any more; their fileStates are current then.
func (c *verdictFile) stillHolds(src Source) (again int, holds bool) {
	if !c.sameFiles(src) {
		return 0, false
	}
	base, err := unix.Open(c.base, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, false
	}
	defer unix.Close(base)
	var reread atomic.Int64
	look := func(w *fileState, flags int) bool {
		same, read := w.unchanged(base, c.base, flags)
		if read {
			reread.Add(1)
		}
		return same
	}
	inputs, copies := len(c.read), len(c.published)
	holds = every(inputs+copies+len(c.results), manyStats, func(i int) bool {
		switch {
		case i < inputs:
			return look(&c.read[i], 0)
		case i < inputs+copies:
			w := &c.published[i-inputs]
			before := w.stamp
			return look(w, unix.AT_SYMLINK_NOFOLLOW) && w.stamp == before // only a run copies it again
		}
		w := &c.results[i-inputs-copies]
		now, err := stampAt(base, w.path, unix.AT_SYMLINK_NOFOLLOW)
		return err == nil && now == w.stamp && !w.tooRecent
	})
	return int(reread.Load()), holds
}

// sameFiles says whether the experiment has the files it had.
func (c *verdictFile) sameFiles(src Source) bool {
	paths, _, _, err := experimentFiles(src.Path, src.besides())
	if err != nil || len(paths) != len(c.paths) {
		return false
	}
	for i := range paths {
		if absolute(paths[i]) != c.paths[i] {
			return false
		}
	}
	return true
}

// unchanged compares a file with its fileState, by content where the stamps differ or are too young: then the witness is
// renewed and read is true. The file's name may be relative to the folder base, which is open as dir.
func (w *fileState) unchanged(dir int, base string, flags int) (same, read bool) {
	if !w.tooRecent && !w.folder {
		now, err := stampAt(dir, w.path, flags)
		if err != nil {
			return false, false
		}
		if now == w.stamp {
			return true, false
		}
	}
	path := w.path
	if !filepath.IsAbs(path) {
		path = base + "/" + path
	}
	if !w.tooRecent && w.folder {
		now, _, err := folderStamp(path)
		if err != nil {
			return false, false
		}
		if now == w.stamp {
			return true, false
		}
	}
	var d digests
	digest, err := d.of(path, path, w.folder)
	if err != nil || digest != w.digest {
		return false, true
	}
	*w = d.seen[path].fileState
	return true, true
}

// Compile keeps a verdict for Unchanged, if everything is up to date now. It looks at all results and published files
// once more, and writes nothing else; a store that cannot be written only costs the next reader the time.
func (p *Plan) Compile() {
	if keep := p.verdict(); keep != nil {
		keep()
	}
}

// verdict is Compile up to the writing, which the function that it returns does; nil where there is nothing to keep.
func (p *Plan) verdict() (keep func()) {
	x := p.Experiment
	if len(p.Nodes) != len(x.Nodes) || x.warned || x.Site == nil || x.Site.StorePath != p.Store.Dir() {
		return nil
	}
	path, identity, ok := compiledPlace(x.Source, x.Site)
	if !ok {
		return nil
	}
	c := &verdictFile{build: buildID(), identity: identity, experiment: x.Name, base: x.Dir, disabled: x.Disabled, counts: map[Verb]int{}}
	for _, path := range x.Paths {
		c.paths = append(c.paths, absolute(path))
	}
	c.read = x.read()
	awaitTick() // or the results that were committed last have stamps that prove nothing
	if !p.gatherResults(c) {
		return nil
	}
	record := c.encode()
	return func() { writeCompiled(path, record) }
}

// maxSource is the size in bytes of the largest file of HCL.
const maxSource = 64 << 20

// ReadSource reads a file of HCL: a plain file of at most 64 MiB.
func ReadSource(path string) ([]byte, error) {
	text, _, err := readWitnessed(path)
	return text, err
}

// readWitnessed reads a file of HCL; the fileState is of its state before that.
func readWitnessed(path string) ([]byte, fileState, error) {
	now := clock()
	f, err := disk.OpenPlain(path, maxSource)
	if err != nil {
		return nil, fileState{}, err
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	if err != nil {
		return nil, fileState{}, err
	}
	sum := sha256.Sum256(text)
	w := fileState{path: absolute(path), stamp: stampOfStat(f.Stat()), digest: hex.EncodeToString(sum[:])}
	w.tooRecent = w.stamp.tooRecent(now)
	return text, w, nil
}

// read lists what Load has read.
func (x *Experiment) read() []fileState {
	all := append(slices.Clone(x.loader.parsed), x.loader.digests.witnesses()...)
	slices.SortFunc(all, func(a, b fileState) int { return strings.Compare(a.path, b.path) })
	return all
}

// gatherResults adds all results and published files to c, and says whether they are what the plan is up to date with.
func (p *Plan) gatherResults(c *verdictFile) bool {
	index := make(map[*Node]int, len(p.Nodes))
	for i, n := range p.Nodes {
		index[n.Node] = i
	}
	manifests := make([]*artifact.Manifest, len(p.Nodes))
	results := make([][]fileState, len(p.Nodes))
	published := make([][]fileState, len(p.Nodes))
	intact := every(len(p.Nodes), manyReads, func(i int) (ok bool) {
		manifests[i], results[i], ok = p.result(p.Nodes[i].Key)
		if ok && manifests[i].Collected.IsZero() {
			published[i], ok = p.publishedFiles(manifests[i])
		}
		return ok
	}) && every(len(p.Nodes), manyReads, func(i int) bool { // with these inputs, is that its key?
		n := p.Nodes[i]
		if len(n.Inputs) == 0 {
			return true
		}
		key, _, ok := n.Node.Key(func(from *Node, port string) (string, bool) {
			o, ok := manifests[index[from]].Outputs[port]
			return o.Digest, ok
		})
		return ok && key == n.Key
	})
	if !intact {
		return false
	}
	for i, m := range manifests {
		if m.Collected.IsZero() {
			c.counts[UpToDate]++
		} else {
			c.counts[Collected]++
		}
		c.results = append(c.results, results[i]...)
		c.published = append(c.published, published[i]...)
	}
	return true
}

// result looks up what is recorded under a key, with the fileStates of its files.
func (p *Plan) result(key string) (m *artifact.Manifest, files []fileState, ok bool) {
	now := clock()
	m, err := p.Store.Witness(key, p.recorded[key], func(path string, info fs.FileInfo) {
		w := fileState{path: path, stamp: stampOf(info)}
		w.tooRecent = w.stamp.tooRecent(now)
		files = append(files, w)
	})
	return m, files, err == nil || errors.Is(err, artifact.ErrCollected)
}
