package lm

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"

	"rcgrpo/stages/internal/token"
)

// Files of weights: one, or several with an index of tensors.
const (
	weightsFile = "model.safetensors"
	indexFile   = "model.safetensors.index.json"
)

// CheckFolder reports whether Load can read a folder, from the headers of its files.
func CheckFolder(dir string) (Config, error) {
	cfg, _, err := readConfig(dir)
	if err != nil {
		return Config{}, err
	}
	return cfg, eachWeight(dir, cfg, func(r *weightsReader, w weight) error { return r.has(w.name, w.shape) })
}

// eachWeight calls f with every weight of a decoder and its file, and refuses files with other tensors.
func eachWeight(dir string, cfg Config, f func(*weightsReader, weight) error) error {
	where, err := shardsOf(dir)
	if err != nil {
		return err
	}
	open, headers := map[string]*weightsReader{}, int64(0)
	defer func() {
		for _, r := range open {
			r.close()
		}
	}()
	weights, _ := layout(cfg)
	known := map[string]bool{headName: cfg.TiedEmbeddings} // some writers also store the tied head
	for _, w := range weights {
		known[w.name] = true
	}
	for _, w := range weights {
		file := weightsFile
		if where != nil {
			if file = where[w.name]; file == "" {
				return fmt.Errorf("%s: tensor %q is missing", filepath.Join(dir, indexFile), w.name)
			}
		}
		if open[file] == nil {
			r, err := openWeights(filepath.Join(dir, file))
			if err != nil {
				return err
			}
			open[file] = r
			if headers += r.body; headers > maxHeader {
				return fmt.Errorf("%s: the headers of its files have more than %d bytes together", dir, maxHeader)
			}
			for name := range r.tensors {
				if !known[name] {
					return fmt.Errorf("%s: tensor %.200q belongs to no part of a %s decoder", r.path, name, cfg.Decoder)
				}
			}
		}
		if err := f(open[file], w); err != nil {
			return fmt.Errorf("%s: %w", open[file].path, err)
		}
	}
	return nil
}

// shardsOf returns the file of each tensor, or nil if all tensors are in one file.
func shardsOf(dir string) (map[string]string, error) {
	if _, err := os.Stat(filepath.Join(dir, weightsFile)); err == nil {
		return nil, nil
	}
	path := filepath.Join(dir, indexFile)
	text, err := token.ReadSmall(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s holds neither %s nor %s; a pickle (*.bin, *.pt) can run any program when it is opened: "+
			"convert it with save_pretrained of transformers", dir, weightsFile, indexFile)
	case err != nil:
		return nil, err
	}
	var index struct {
		Where map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(text, &index); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for name, file := range index.Where {
		if filepath.Base(file) != file || filepath.Ext(file) != ".safetensors" {
			return nil, fmt.Errorf("%s: tensor %q is said to lie in %q, which is no safetensors file of the folder", path,
				name, file)
		}
	}
	return index.Where, nil
}

// refuseNonFinite refuses NaN and infinite weights, which would make every result NaN.
func refuseNonFinite(w weight, from int, values []float32) error {
	i := slices.IndexFunc(values, func(x float32) bool { return x-x != 0 })
	if i < 0 {
		return nil
	}
	return fmt.Errorf("tensor %q holds %v at index %d of %d: weights must be finite, so the file is damaged or comes "+
		"from a training that diverged", w.name, values[i], from+i, w.len())
}

// WriteConfig writes config.json of a decoder into dir.
func WriteConfig(dir string, c Config) error { return configFile(nil).write(dir, c) }

// WeightShapes lists the names and shapes of the weights of a decoder, as its files have them.
func WeightShapes(c Config) iter.Seq2[string, []int] {
	return func(yield func(string, []int) bool) {
		weights, _ := layout(c)
		for _, w := range weights {
			if !yield(w.name, w.shape) {
				return
			}
		}
	}
}

// WriteWeights writes the weights of a decoder in float32 into model.safetensors in dir. read reads whole rows of a
// weight from a row on, as many as into holds; a vector is one row. Weights that are not finite are refused.
func WriteWeights(dir string, c Config, read func(name string, from int, into []float32) error) error {
	weights, _ := layout(c)
	tensors := map[string]writtenTensor{}
	for _, w := range weights {
		row := w.shape[len(w.shape)-1]
		tensors[w.name] = writtenTensor{w.shape, func(write func(int, []float32) error) error {
			buffer := make([]float32, min(w.len(), max(1, pieceLen/row)*row))
			return eachPiece(w.len(), row, func(at, n int) error {
				into := buffer[:n]
				if err := read(w.name, at/row, into); err != nil {
					return err
				}
				if err := refuseNonFinite(w, at, into); err != nil {
					return err
				}
				return write(at, into)
			})
		}}
	}
	return writeSafetensors(nil, filepath.Join(dir, weightsFile), tensors, map[string]string{"format": "pt"})
}
