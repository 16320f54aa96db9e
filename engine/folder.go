package engine

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
	"rcgrpo/engine/runs"
)

// createRunFolder creates and locks the folder of a run of the plan, with everything that the process of a stage
// needs.
func createRunFolder(p *plan.Plan) (runs.Folder, *os.File, error) {
	x := p.Experiment
	files := map[string][]byte{} // as they were loaded, even if they have changed since
	copyInto := func(folder string, paths []string) {
		for _, path := range paths {
			files[filepath.Join(folder, filepath.Base(path))] = x.Files[path].Bytes
		}
	}
	source := lang.Source{Path: "files", Vars: x.Vars, Base: x.Dir, Name: x.Name, Digests: x.Digests,
		Since: x.Source.Since,
		Sets:  x.Source.Sets, Targets: x.Source.Targets, Modules: map[string]string{},
		Env: slices.DeleteFunc(slices.Clone(x.Source.Env), omitFromFolder)}
	copyInto("files", x.Paths)
	if len(x.Paths) == 1 {
		source.Path = filepath.Join("files", filepath.Base(x.Paths[0]))
	}
	for i, m := range x.Modules {
		folder := filepath.Join("modules", strconv.Itoa(i))
		copyInto(folder, m.Files)
		if source.Modules[m.Path] = folder; !m.Folder {
			source.Modules[m.Path] = filepath.Join(folder, filepath.Base(m.Path))
		}
	}
	if x.Site != nil && x.Site.Path != "" {
		site, err := filepath.Abs(x.Site.Path)
		if err != nil {
			return "", nil, err
		}
		source.Site = site
	}
	record := runs.Record{Experiment: x.Name, Path: x.Source.Path, Revision: Revision()}
	for _, n := range p.Nodes {
		record.Nodes = append(record.Nodes, runs.NodeRecord{Address: n.Address, Verb: string(n.Verb), Cause: n.Cause.Text,
			Key: n.Key, Expect: n.Estimate.Seconds()})
	}
	return runs.Create(p.Store, source, files, record)
}

// omitFromFolder reports whether a run folder omits an environment variable: those that Load does not read may be
// secret, and the values of the experiment's variables are in Vars.
func omitFromFolder(v string) bool {
	name, _, _ := strings.Cut(v, "=")
	return name != "HOME" && !strings.HasPrefix(name, "RCGRPO_") || strings.HasPrefix(name, "RCGRPO_VAR_")
}
