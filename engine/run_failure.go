package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Causes of failures that a retry may name (`retry { on = ["oom"] }`). A failure without a cause is deterministic, as
// far as anyone knows, and never retried unless a pattern of the user's matches its text.
// WithCause marks an error of a stage with one of the causes, for the engine's retry rules.
func WithCause(cause string, err error) error { return &causeError{cause, err} }

type causeError struct {
	cause string
	err   error
}

func (e *causeError) Error() string { return e.err.Error() }
func (e *causeError) Unwrap() error { return e.err }

// Failure says why a stage failed and where to look.
type Failure struct {
	Text  string   `json:"text"`            // the error, once
	Cause string   `json:"cause,omitempty"` // one of the Cause constants; "" is deterministic
	Log   string   `json:"log,omitempty"`   // path of its log
	Lines []string `json:"lines,omitempty"` // the last of it
	Work  string   `json:"work,omitempty"`  // scratch folder it left
}

// err is the failure as the error it was.
func (f *Failure) err() error { return keepCause(f.Cause, errors.New(f.Text)) }

// RunError says that stages failed. Each failure was told by an event already.
type RunError struct {
	Failed  []string // addresses
	Skipped []string // because of them
}

func (e *RunError) Error() string {
	text := fmt.Sprintf("%s failed", Plural(len(e.Failed), "stage"))
	if len(e.Failed) == 1 {
		text = e.Failed[0] + " failed"
	}
	if len(e.Skipped) > 0 {
		text += fmt.Sprintf("; %s skipped because of it", Plural(len(e.Skipped), "stage"))
	}
	return text
}

// ErrInterrupted says that a run stopped because its context ended; what was committed stays.
var ErrInterrupted = errors.New("interrupted")

var errTimeout = errors.New("ran longer than its timeout")

// oomText is how allocators and the kernel say that memory ran out.
var oomText = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)out of memory|can(no|')t allocate memory|not enough memory|bad_alloc|CUDA_ERROR_OUT_OF_MEMORY`)
})

// causeOf sorts an error of a stage under one of the causes, or "".
func causeOf(err error) string {
	var marked *causeError
	switch {
	case errors.As(err, &marked):
		return marked.cause
	case errors.Is(err, errTimeout) || errors.Is(err, context.DeadlineExceeded):
		return CauseTimeout
	case oomText().MatchString(err.Error()):
		return CauseOOM
	}
	return ""
}

// failureCause is causeOf, or what the last lines of the log say when the error itself does not: of a program it only gives
// an exit code.
func failureCause(err error, lines []string) string {
	cause := causeOf(err)
	if cause == "" && slices.ContainsFunc(lines, oomText().MatchString) {
		return CauseOOM
	}
	return cause
}

// retries says whether a failure is one of those that the retry block names.
func (r Retry) retries(cause, text string) bool {
	return slices.ContainsFunc(r.On, func(on string) bool {
		switch on {
		case CauseOOM, CauseNaN, CausePreempted, CauseTimeout:
			return on == cause
		}
		pattern, err := regexp.Compile(on)
		return err == nil && pattern.MatchString(text)
	})
}

// failureLines is how much of a log is shown with a failure.
const failureLines = 12

// lastLines returns the last n lines of a file, reading at most 64 KiB of it.
func lastLines(path string, n int) []string {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	const most = 64 << 10
	info, err := f.Stat()
	if err != nil {
		return nil
	}
	from := max(0, info.Size()-most)
	b, err := io.ReadAll(io.NewSectionReader(f, from, most))
	if err != nil {
		return nil
	}
	text := strings.TrimRight(string(b), "\n")
	if text == "" {
		return nil
	}
	lines := strings.Split(text, "\n")
	if from > 0 && len(lines) > 1 { // the first one is torn
		lines = lines[1:]
	}
	return lines[max(0, len(lines)-n):]
}

// shownOfLine is how many bytes of a line are shown with a failure: the last ones.
const shownOfLine = 1000

// withShortLines returns the lines with the beginnings of long ones replaced by "… ".
func withShortLines(lines []string) []string {
	short := slices.Clone(lines)
	for i, line := range short {
		if len(line) > shownOfLine {
			short[i] = "… " + strings.ToValidUTF8(line[len(line)-shownOfLine:], "")
		}
	}
	return short
}
