package reports

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"rcgrpo/engine/artifact"
)

// Reproduction compares one cell of a page with what other artifacts give for it.
type Reproduction struct {
	Cell     string   `json:"cell"`
	Name     string   `json:"name"` // of row and column: "SFT + GRPO | Overall"
	Shown    string   `json:"shown"`
	Got      string   `json:"got"` // "" where the artifacts give no such cell
	Source   Source   `json:"source"`
	Differs  []string `json:"differs,omitempty"` // ports whose content is not that of the page's
	Artifact int      `json:"artifacts"`         // that were read
}

// Equal says that the cell came out as shown.
func (r *Reproduction) Equal() bool { return r.Shown == r.Got }

// Reproduce computes one cell of a page from the results that made names for the addresses of the stages that it rests
// on, and from nothing else.
func Reproduce(page []byte, cell string, store *artifact.Store, made func(address string) (*artifact.Manifest, error)) (*Reproduction, error) {
	ev, err := ReadEvidence(page)
	if err != nil {
		return nil, err
	}
	source, err := ev.SourceOf(cell)
	if err != nil {
		return nil, err
	}
	shown := readPage(page)
	r := &Reproduction{Cell: strings.TrimPrefix(cell, "#"), Source: source}
	if r.Name, err = shown.name(r.Cell); err != nil {
		return nil, err
	}
	part := ev.part(source)
	for i := range part.Inputs {
		in := &part.Inputs[i]
		m, err := made(in.Address)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", in.Address, err)
		}
		if digest := m.Outputs[in.Ref.Port].Digest; digest != in.Digest {
			r.Differs = append(r.Differs, in.port())
		}
		in.Key = m.Key
		r.Artifact++
	}
	for i := range part.Records {
		m, err := made(part.Records[i].Address)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", part.Records[i].Address, err)
		}
		part.Records[i].Key = m.Key
	}
	again, err := part.recompute(store)
	if err != nil {
		return nil, err
	}
	table, _, _ := cutLast(r.Cell, ".")
	r.Shown, _ = shown.find(table, r.Name)
	r.Got, _ = again.find(table, r.Name)
	return r, nil
}

// part is the evidence without what a source does not read.
func (ev *Evidence) part(source Source) *Evidence {
	part := *ev
	part.Failures = nil
	part.Inputs = slices.DeleteFunc(slices.Clone(ev.Inputs), func(in Input) bool { return !slices.Contains(source.From, in.port()) })
	part.Records = slices.DeleteFunc(slices.Clone(ev.Records), func(r StageEvidence) bool { return !slices.Contains(source.From, manifestOf(r.Address)) })
	return &part
}

// recompute makes a part of the page from a store and takes it apart.
func (ev *Evidence) recompute(store *artifact.Store) (*pageText, error) {
	study, err := gather(ev, opener(store), store)
	if err != nil {
		return nil, err
	}
	study.Part = true
	var b bytes.Buffer
	if err := ev.page(study).HTML(&b); err != nil {
		return nil, err
	}
	return readPage(b.Bytes()), nil
}

// opener opens inputs by their keys.
func opener(store *artifact.Store) func(*Input) (*artifact.Artifact, error) {
	return func(in *Input) (*artifact.Artifact, error) {
		m, err := store.Manifest(in.Key)
		if err != nil {
			return nil, fmt.Errorf("%s, key %s: %w", in.Address, prefix(in.Key, 16), err)
		}
		return store.Open(m, in.Ref.Port)
	}
}
