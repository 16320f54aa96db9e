package remote

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"rcgrpo/engine/artifact"
)

// recordHead begins the first line of v1/nodes/KEY.json. The SHA-256 of the rest of the file follows, which is the
// manifest.
const recordHead = "rcgrpo-result "

func encodeRecord(m *artifact.Manifest) ([]byte, error) {
	text, err := json.MarshalIndent(m, "", "  ")
	return fmt.Appendf(nil, "%s%x\n%s", recordHead, sha256.Sum256(text), text), err
}

// parseRecord reads the record of a key. Any changed byte is an error, and so is a record that no store writes.
func parseRecord(b []byte, key string) (m *artifact.Manifest, err error) {
	head, text, _ := bytes.Cut(b, []byte("\n"))
	if string(head) != fmt.Sprintf("%s%x", recordHead, sha256.Sum256(text)) {
		return nil, errors.New("the record of the result is damaged")
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, fmt.Errorf("read the record of the result: %w", err)
	}
	if m == nil || m.Key != key {
		return nil, errors.New("the record of the result has another key")
	}
	if err := m.Check(); err != nil {
		return nil, err
	}
	m.Absent, m.Collected = nil, time.Time{} // they describe another store
	return m, nil
}

// files returns the files of a result that have bytes, with their outputs. Files without bytes have no object.
func files(m *artifact.Manifest) (all []file) {
	for _, output := range m.Outputs {
		for _, o := range output.Objects() {
			for _, f := range o.Files {
				if f.Bytes > 0 {
					all = append(all, file{f, o})
				}
			}
		}
	}
	return all
}

type file struct {
	artifact.FileInfo
	output artifact.Output
}

func nodeName(key string) string { return "v1/nodes/" + key + ".json" }

func fileName(f artifact.FileInfo) string { return "v1/files/" + f.SHA256 }
