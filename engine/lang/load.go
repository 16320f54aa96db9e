package lang

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// loader is the state of one call of Load.
type loader struct {
	reporter
	src       Source
	reg       Registry
	x         *Experiment
	digests   digests
	parsed    []string                   // absolute paths of HCL files
	bodies    map[string]*hclsyntax.Body // of the parsed files, by path; nil after an error
	read      int                        // bytes of the files
	made      int                        // instances of stages and modules
	effort    effort                     // of all expressions
	wrong     int                        // diagnostics of expressions
	scopes    map[string]*scope          // by address; "" is the experiment itself
	overrides []*override
	seeded    bool // the experiment block has seeds, so addresses contain them
}

// Load reads the experiment of src, decodes every stage with its kind and resolves the references. It reports the
// errors in the order of the files, at most mostErrors; after an error of syntax in any file it checks nothing else.
// The experiment is never nil, because its Files are needed to print the diagnostics. An experiment with errors cannot
// be planned.
//
// Load starts no process. It writes only the cache of digests of large files in the store.
func Load(src Source, reg Registry) (*Experiment, hcl.Diagnostics) {
	l := newLoader(src)
	l.reg = reg
	root := l.load()
	l.digests.save()
	l.x.VariableNames = root.variableNames()
	l.x.Reads = l.parsed
	for _, data := range l.digests.seen {
		l.x.Reads = append(l.x.Reads, data.path)
	}
	l.x.Invalid = l.diags.HasErrors()
	if len(l.diags) == 0 { // the syntax trees, which only diagnostics show, are as large as the nodes
		for path, file := range l.x.Files {
			l.x.Files[path] = &hcl.File{Bytes: file.Bytes}
		}
	}
	diags := sortDiagnostics(l.diags)
	if l.x.Invalid && len(diags) > mostErrors {
		diags = append(diags[:mostErrors:mostErrors], tooManyErrors())
	}
	return l.x, diags
}

// mostErrors limits the diagnostics of an invalid experiment. To print one takes time in proportion to its line.
const mostErrors = 200

func tooManyErrors() *hcl.Diagnostic {
	return mistake(hcl.Range{}, "Too many errors", "The experiment has more than %d errors; the rest is not checked.",
		mostErrors)
}

func newLoader(src Source) *loader {
	if src.Since.IsZero() {
		src.Since = time.Now()
	}
	return &loader{src: src, scopes: map[string]*scope{}, bodies: map[string]*hclsyntax.Body{},
		digests: digests{seen: map[string]seenData{}},
		x: &Experiment{
			Source: src, Files: map[string]*hcl.File{}, Digests: map[string]string{}, Vars: map[string]string{},
			Seeds: []int64{1}, Site: &Site{}, byAddress: map[string]*Node{},
		}}
}

// load returns the scope of the experiment.
func (l *loader) load() *scope {
	paths, name, dir, err := ExperimentFiles(l.src.Path, l.src.Besides())
	l.x.Paths, l.x.Name, l.x.Dir = paths, cmp.Or(l.src.Name, name), cmp.Or(l.src.Base, dir)
	root := l.newScope("", l.x.Dir, nil)
	if err != nil {
		l.errorf(hcl.Range{}, "No experiment", "%s.", upperFirst(err.Error()))
		return root
	}
	root.paths = paths
	bodies := l.parseFiles(paths)
	if len(paths) > 1 && !l.diags.HasErrors() && !slices.ContainsFunc(bodies, hasExperiment) {
		l.errorf(hcl.Range{}, "No experiment", "No file in %s has an experiment block.", l.src.Path)
	}
	if l.diags.HasErrors() {
		return root
	}
	l.site()
	l.digests.pinned, l.digests.unread = l.src.Digests, l.src.NoData
	if l.x.Site.StorePath != "" && !l.src.Paranoid {
		l.digests.cache = filepath.Join(l.x.Site.StorePath, "digests.json")
	}
	root.collect(bodies)
	root.checkExperiment()
	l.parseOverrides()
	root.evaluateVariables()
	root.evaluateAll()
	for _, step := range []func(){root.warnUnused, l.checkOverrides, l.expandSeeds, l.checkPublished, l.checkInputs} {
		if l.diags.HasErrors() {
			l.x.Nodes = nil
			break
		}
		step()
	}
	if l.effort.spent > maxEffort && !l.diags.HasErrors() { // reported in a value that try or a condition has dropped
		l.errorf(hcl.Range{}, "Too many steps", "%s.", upperFirst(errEffort.Error()))
	}
	return root
}

func (l *loader) checkInputs() {
	for _, n := range l.x.Nodes {
		if linked, ok := n.Stage.(Linked); ok {
			l.diags = append(l.diags, linked.CheckInputs(n)...)
		}
	}
}

// parseFiles returns the bodies of the files that have no error.
func (l *loader) parseFiles(paths []string) (bodies []*hclsyntax.Body) {
	for _, path := range paths {
		if b := l.parseFile(path); b != nil {
			bodies = append(bodies, b)
		}
	}
	return bodies
}

// parseFile reads one file. It returns nil after an error.
func (l *loader) parseFile(path string) *hclsyntax.Body {
	if b, done := l.bodies[path]; done {
		return b
	}
	l.bodies[path] = nil
	text, err := readSource(path, l.src.Unsaved)
	if err != nil {
		l.errorf(hcl.Range{}, "Unreadable file", "%s.", err)
		return nil
	}
	l.parsed = append(l.parsed, absolute(path))
	if l.read += min(len(text), MaxSource); l.read > maxSources { // parseText refuses a longer one
		l.errorf(hcl.Range{}, "Experiment too long", "The files of the experiment and its modules have more than %d bytes.",
			maxSources)
		return nil
	}
	file, diags := parseText(text, path)
	l.x.Files[path] = cmp.Or(file, &hcl.File{Bytes: text})
	l.diags = append(l.diags, diags...)
	if diags.HasErrors() {
		return nil
	}
	body := file.Body.(*hclsyntax.Body)
	l.diags = append(l.diags, hclsyntax.VisitAll(body, repeatedKeys)...)
	l.effort.limit(body)
	l.bodies[path] = body
	return body
}

// siteFile is never part of an experiment.
const siteFile = "site.hcl"

// Besides returns the files that belong to the source but not to the experiment.
func (s Source) Besides() []string {
	return append(slices.Clone(s.VarFiles), cmp.Or(s.Site, EnvValue(s.Env, "RCGRPO_SITE")))
}

// ExperimentFiles returns the files of the experiment at path, with its name and folder. Files in besides are
// excluded.
func ExperimentFiles(path string, besides []string) (paths []string, name, dir string, err error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, "", "", fmt.Errorf("there is no file or folder %q", path)
	case err != nil:
		return nil, "", "", err
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, "", "", err
	}
	if !info.IsDir() {
		return []string{path}, strings.TrimSuffix(filepath.Base(abs), ".hcl"), filepath.Dir(abs), nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, "", "", err
	}
	for _, e := range entries {
		if filepath.Ext(e.Name()) == ".hcl" && e.Name() != siteFile && !e.IsDir() {
			paths = append(paths, filepath.Join(path, e.Name()))
		}
	}
	if paths = without(paths, besides); len(paths) == 0 {
		return nil, "", "", fmt.Errorf("folder %q has no .hcl file of an experiment", path)
	}
	return paths, filepath.Base(abs), abs, nil
}

// without removes the paths that refer to one of the files, also under another name.
func without(paths, files []string) []string {
	var infos []fs.FileInfo
	for _, file := range files {
		if info, err := os.Stat(file); err == nil {
			infos = append(infos, info)
		}
	}
	return slices.DeleteFunc(paths, func(path string) bool {
		info, err := os.Stat(path)
		return err == nil && slices.ContainsFunc(infos, func(file fs.FileInfo) bool { return os.SameFile(file, info) })
	})
}

// FindExperiment returns the path of the only experiment in a folder: the file with an experiment block, or the
// folder itself if it contains more files. The error lists the choices. It considers all files, so that commands
// with and without --var-file find the same experiment under the same name. unsaved is as in Source.
func FindExperiment(dir string, unsaved map[string][]byte) (string, error) {
	paths, _, _, err := ExperimentFiles(dir, nil)
	if err != nil {
		return "", fmt.Errorf("no experiment named, and %w", err)
	}
	experiment := regexp.MustCompile(`(?m)^\s*experiment\b`) // also a malformed block
	var with []string
	for _, path := range paths {
		text, err := readSource(path, unsaved)
		if err != nil {
			return "", err
		}
		if experiment.Match(text) {
			with = append(with, path)
		}
	}
	switch {
	case len(with) == 0:
		return "", fmt.Errorf("no experiment named, and no file in %s has an experiment block", dir)
	case len(with) > 1:
		return "", fmt.Errorf("several experiments here: name one of %s", strings.Join(with, ", "))
	case len(paths) == 1:
		return paths[0], nil
	}
	return dir, nil
}

func hasExperiment(b *hclsyntax.Body) bool {
	return slices.ContainsFunc(b.Blocks, func(bl *hclsyntax.Block) bool { return bl.Type == "experiment" })
}

func (l *scope) warnUnused() {
	for _, v := range l.variables {
		if !v.used {
			l.errorf(v.block.DefRange(), "Unused variable", "No expression uses var.%s.", v.name).Severity = hcl.DiagWarning
		}
	}
}

// sortDiagnostics sorts by position and removes duplicates, which the instances of one stage produce.
func sortDiagnostics(diags hcl.Diagnostics) hcl.Diagnostics {
	order := func(a, b *hcl.Diagnostic) int {
		at, other := *cmp.Or(a.Subject, &hcl.Range{}), *cmp.Or(b.Subject, &hcl.Range{})
		return cmp.Or(cmp.Compare(at.Filename, other.Filename), cmp.Compare(at.Start.Byte, other.Start.Byte),
			cmp.Compare(at.End.Byte, other.End.Byte), cmp.Compare(a.Summary, b.Summary), cmp.Compare(a.Detail, b.Detail))
	}
	sorted := slices.SortedStableFunc(slices.Values(diags), order)
	return slices.CompactFunc(sorted, func(a, b *hcl.Diagnostic) bool { return order(a, b) == 0 })
}

// Place formats a range as "file.hcl:14".
func Place(r hcl.Range) string { return fmt.Sprintf("%s:%d", r.Filename, r.Start.Line) }
