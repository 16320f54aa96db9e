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
exec rcgrpo init --model folder own
env RCGRPO_VAR_drills=2
env RCGRPO_VAR_test=1
env RCGRPO_VAR_updates=1
exec rcgrpo run own/model.hcl
exec rcgrpo verify own/model.html
exec rcgrpo plan own/model.hcl --detailed-exitcode`)
	s.run("data {\n  bfcl = \""+benchmark+"\"\n}\n", func(work string) error {
		return longContext(reference, filepath.Join(work, "folder"))
	})
}

// The experiment for a real model plans as it is and runs with few tasks.
func TestInitWritesAnExperimentForSmolLM2(t *testing.T) {
	must.Long(t)
	benchmark, model := fixtures.Benchmark(t), fixtures.SmolLM2(t)
	s := &session{T: t}
	s.line(`exec rcgrpo init --model %s own
grep 'layout = "signatures"' own/model.hcl
grep 'the template drops calls' own/model.hcl
exec rcgrpo plan own/model.hcl
stdout '^model: 9 to run'
exec rcgrpo run own/model.hcl --var drills=8 --var test=1 --var updates=1
exec rcgrpo verify own/model.html
exec rcgrpo plan own/model.hcl --var drills=8 --var test=1 --var updates=1 --detailed-exitcode`, model)
	s.run("data {\n  bfcl = \""+benchmark+"\"\n}\n", func(string) error { return nil })
}
