package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"rcgrpo/bench/fixtures"
	"rcgrpo/internal/must"
)

// Folders of strangers are refused with a reason, soon, and without much memory: each of these blocked, panicked or
// took gigabytes. A link to a file outside would put that file into checkpoints.
func TestHostileModelFoldersAreRefused(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "secret")
	must.OK(t, os.WriteFile(outside, []byte("{}"), 0o600))
	fifo := func(t testing.TB, path string) { must.OK(t, syscall.Mkfifo(path, 0o600)) }
	endless := func(t testing.TB, path string) { must.OK(t, os.Symlink("/dev/zero", path)) }
	sparse := func(t testing.TB, path string) {
		must.OK(t, os.WriteFile(path, nil, 0o600))
		must.OK(t, os.Truncate(path, 1<<40))
	}
	link := func(t testing.TB, path string) { must.OK(t, os.Symlink(outside, path)) }
	write := func(text string) func(testing.TB, string) {
		return func(t testing.TB, path string) { must.OK(t, os.WriteFile(path, []byte(text), 0o600)) }
	}
	edit := func(old, text string) func(testing.TB, string) {
		return func(t testing.TB, path string) {
			from := string(fixtures.Read(t, "hf/models/qwen2-tiny/"+filepath.Base(path)))
			if !strings.Contains(from, old) {
				t.Fatalf("%s has no %s", path, old)
			}
			write(strings.Replace(from, old, text, 1))(t, path)
		}
	}
	tokenizer := func(vocab, added string) func(testing.TB, string) {
		return write(fmt.Sprintf(`{"added_tokens": [%s], "pre_tokenizer": {"type": "ByteLevel"},
			"model": {"type": "BPE", "vocab": %s, "merges": []}}`, added, vocab))
	}
	var far, many strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&far, `{"id": %d, "content": "x%d"}, `, 60000*(i+1), i)
	}
	for i := range 1 << 14 {
		fmt.Fprintf(&many, `{"id": %d, "content": "x%d"}, `, i+1, i)
	}
	const last = `{"id": 1, "content": "last"}`
	const index = "model.safetensors.index.json"
	nested := strings.Repeat("[", 9000) + strings.Repeat("]", 9000) // a checkpoint indents each level
	header := func(text string, more int) func(testing.TB, string) {
		text += strings.Repeat(" ", more)
		return write(string(binary.LittleEndian.AppendUint64(nil, uint64(len(text)))) + text)
	}
	for name, tc := range map[string]struct {
		file    string
		replace func(t testing.TB, path string)
		want    string
	}{
		"weights are a FIFO":                    {"model.safetensors", fifo, "must be a plain file"},
		"weights are a link":                    {"model.safetensors", link, "is a link to"},
		"the header of the weights is too long": {"model.safetensors", header("{}", 20<<20), "its header of"},
		"the index is a FIFO":                   {index, fifo, "must be a plain file"},
		"the index is huge":                     {index, sparse, "must be a plain file"},
		"the index is endless":                  {index, endless, "is a link to"},
		"the record of a checkpoint is a FIFO":  {MetaFile, fifo, "must be a plain file"},
		"the record of a checkpoint is huge":    {MetaFile, sparse, "must be a plain file"},
		"the record names a wrong layout":       {MetaFile, write(`{"family": "drill"}`), "has no token"},
		"the settings are a link":               {"tokenizer_config.json", link, "is a link to"},
		"the tokenizer is a link":               {TokenizerFile, link, "is a link to"},
		"the highest id that a number can be": {TokenizerFile, tokenizer(fmt.Sprintf(`{"a": %d}`, math.MaxInt32), ""),
			"the highest id is"},
		"ids far from each other": {TokenizerFile, tokenizer(`{"a": 0}`, far.String()+last), "an id that follows"},
		"a tokenizer of many levels": {TokenizerFile, edit(`"decoder": `, `"x": `+nested+`, "decoder": `),
			"nested deeper than"},
		"a shape of many levels": {"config.json", edit(`"use_cache": `, `"_name_or_path": `+nested+`, "use_cache": `),
			"nested deeper than"},
		"too many added tokens": {TokenizerFile, tokenizer(`{"a": 0}`, many.String()+last), "added tokens; at most"},
		"a token of megabytes":  {TokenizerFile, tokenizer(`{"`+strings.Repeat("丁", 1<<20)+`": 0}`, ""), "vocab:"},
		"an unknown family of megabytes": {"config.json",
			edit(`"qwen2"`, `"`+strings.Repeat("x", 900_000)+`"`), "model_type"},
		"rotary angles of gigabytes": {"config.json",
			edit(`"max_position_embeddings": 512`, `"max_position_embeddings": 8388609`), "more than 512 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := fixtures.Dir(t, "hf/models/qwen2-tiny")
			if tc.file == index {
				must.OK(t, os.Remove(filepath.Join(dir, "model.safetensors")))
			}
			path := filepath.Join(dir, tc.file)
			must.OK(t, os.RemoveAll(path))
			tc.replace(t, path)
			read := make(chan *Folder, 1)
			go func() { read <- ReadFolder(dir, "") }()
			select {
			case f := <-read:
				err := f.Err()
				must.Match(t, err, tc.want)
				if f.Codec != nil && f.Refused[0].Part == PartLayout {
					t.Error("a refused layout can be used")
				}
				if err != nil && len(err.Error()) > 10_000 {
					t.Errorf("the reason has %d bytes", len(err.Error()))
				}
			case <-time.After(10 * time.Second):
				t.Fatal("still reading after 10 s")
			}
		})
	}
}

// Each file of an index is opened once, and an unknown tensor refuses the first of them: a folder of links to one file
// with a million tensors took all memory.
func TestAnUnknownTensorIsFoundBeforeTheNextFile(t *testing.T) {
	dir := fixtures.Dir(t, "hf/models/qwen2-sharded")
	last := filepath.Join(dir, "model-00003-of-00003.safetensors")
	must.OK(t, os.Remove(last)) // opening it would be another error
	first := filepath.Join(dir, "model-00001-of-00003.safetensors")
	file := must.Get(os.ReadFile(first))(t)
	n := binary.LittleEndian.Uint64(file)
	text := `{"stranger":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},` + string(file[9:8+n])
	out := append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
	must.OK(t, os.WriteFile(first, append(out, file[8+n:]...), 0o600))
	second := filepath.Join(dir, "model-00002-of-00003.safetensors")
	must.OK(t, os.Remove(second))
	must.Match(t, ReadFolder(dir, "").Err(), `tensor "stranger" belongs to no part`)
}

// The cache of Hugging Face's hub keeps files as links.
func TestLinksOfTheHubsCacheAreFollowed(t *testing.T) {
	hub := t.TempDir()
	blobs, dir := filepath.Join(hub, "blobs"), filepath.Join(hub, "snapshots", "main")
	must.OK(t, os.Rename(fixtures.Dir(t, "hf/models/qwen2-tiny"), blobs))
	must.OK(t, os.MkdirAll(dir, 0o700))
	for _, e := range must.Get(os.ReadDir(blobs))(t) {
		must.OK(t, os.Symlink("../../blobs/"+e.Name(), filepath.Join(dir, e.Name())))
	}
	must.OK(t, ReadFolder(dir, "").Err())
}
