//go:build libtorch

package main

import (
	"path/filepath"
	"testing"

	"rcgrpo/bench/fixtures"
	"rcgrpo/internal/must"
)

// The templates with trainings run as they are, apart from the number of tasks.
func TestTemplatesTrainAndWriteAPage(t *testing.T) {
	must.Long(t) // the scripts check the templates, and the tutorial's runs
	benchmark, reference := fixtures.Benchmark(t), fixtures.Dir(t, "hf/models/qwen2-tiny")
	s := &session{T: t}
	s.line(`exec rcgrpo init drills study
exec rcgrpo run study/drills.hcl --var drills=5
exec rcgrpo open study
stdout 'study/drills.html$'
grep 'Do copying exercises help' study/drills.html
exec rcgrpo verify study/drills.html
exec rcgrpo init model own
exec rcgrpo run own/model.hcl --var model=%[1]s --var tasks=1
exec rcgrpo verify own/model.html
exec rcgrpo plan own/model.hcl --var model=%[1]s --var tasks=1 --detailed-exitcode`, "$WORK/folder")
	s.run("data {\n  bfcl = \""+benchmark+"\"\n}\n", func(work string) error {
		return longContext(reference, filepath.Join(work, "folder"))
	})
}
