package runs

import (
	"io"
	"os"
	"strings"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/internal/disk"
)

// Failure is the error of a failed stage.
type Failure struct {
	Text  string   `json:"text"`
	Cause string   `json:"cause,omitempty"` // one of the Cause constants; "": deterministic
	Log   string   `json:"log,omitempty"`   // path
	Lines []string `json:"lines,omitempty"` // the last lines of the log
	Work  string   `json:"work,omitempty"`  // scratch folder that the stage left
}

func (f *Failure) Error() string { return f.Text }

// Locate adds the log of the stage with its last lines, and its scratch folder if there is one. key is "" where the
// stage has none: a report whose output is only shown, or a stage that failed before all its inputs were known.
func (f *Failure) Locate(log string, store *artifact.Store, key string) {
	f.Log, f.Lines = log, LastLines(log)
	if work := store.Work(key); key != "" && disk.Exists(work) {
		f.Work = work
	}
}

// Details returns lines about a failure: the end of the log, its path, and the scratch folder. f may be nil.
func (f *Failure) Details() (lines []string) {
	if f == nil {
		return nil
	}
	for _, line := range f.Lines {
		if line != f.Text { // the log of a process ends with the error
			lines = append(lines, "| "+line)
		}
	}
	if f.Log != "" {
		lines = append(lines, "log:     "+f.Log)
	}
	if f.Work != "" {
		lines = append(lines, "scratch: "+f.Work)
	}
	return lines
}

// failureLines is the number of log lines shown with a failure.
const failureLines = 12

// LastLines returns the last lines of a log, of the last 64 KiB. Long lines are reduced to "… " and their end.
func LastLines(path string) []string {
	const mostBytes, mostLine = 64 << 10, 1000
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	size, _ := f.Seek(0, io.SeekEnd)
	from := max(0, size-mostBytes)
	b, _ := io.ReadAll(io.NewSectionReader(f, from, mostBytes))
	lines := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	if from > 0 && len(lines) > 1 || lines[0] == "" { // the first line is incomplete, or the log is empty
		lines = lines[1:]
	}
	lines = lines[max(0, len(lines)-failureLines):]
	for i, line := range lines {
		if len(line) > mostLine {
			lines[i] = "… " + strings.ToValidUTF8(line[len(line)-mostLine:], "")
		}
	}
	return lines
}
