package proc

import (
	"bytes"
	"strings"
	"testing"
)

func TestSecretsAreMaskedInTheLog(t *testing.T) {
	for name, tc := range map[string]struct {
		secrets       []string
		printed, want string
	}{
		"whole":                {[]string{"geheim"}, "a geheim b geheim\n", "a *** b ***\n"},
		"one within another":   {[]string{"abc", "abcdef"}, "abcdef abc\n", "*** ***\n"},
		"several lines":        {[]string{"first\nsecond\n"}, "second\nfirst\n", "***\n***\n"},
		"no end of line":       {[]string{"geheim"}, "geheim", "***"},
		"empty hides nothing":  {[]string{""}, "text\n", "text\n"},
		"carriage returns too": {[]string{"geheim"}, "1 geheim\r2 geheim\r", "1 ***\r2 ***\r"},
	} {
		t.Run(name, func(t *testing.T) {
			for cut := range len(tc.printed) { // at every split of the writes
				var log bytes.Buffer
				m := newMask(&log, tc.secrets)
				m.Write([]byte(tc.printed[:cut]))
				m.Write([]byte(tc.printed[cut:]))
				m.Flush()
				if log.String() != tc.want {
					t.Errorf("cut at %d: got %q, want %q", cut, log.String(), tc.want)
				}
			}
		})
	}
	var log bytes.Buffer
	m := newMask(&log, []string{"geheim"})
	for range maxPending {
		m.Write([]byte("x geheim "))
	}
	m.Flush()
	if strings.Contains(log.String(), "geheim") || len(log.String()) != maxPending*len("x *** ") {
		t.Errorf("a line without end: %d bytes, want all secrets hidden", log.Len())
	}
}
