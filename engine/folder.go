package engine

import (
	"os"
	"path/filepath"
	"slices"
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
	for _, path := range x.Paths {
		files[filepath.Base(path)] = x.Files[path].Bytes
	}
	source := lang.Source{Vars: x.Vars, Base: x.Dir, Name: x.Name, Digests: x.Digests,
		Env: slices.DeleteFunc(slices.Clone(x.Source.Env), omitFromFolder)}
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
