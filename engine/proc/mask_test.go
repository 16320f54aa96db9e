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
		"a secret in a line":            {[]string{"secret"}, "a secret b secret\n", "a *** b ***\n"},
		"a secret in another one":       {[]string{"abc", "abcdef"}, "abcdef abc\n", "*** ***\n"},
		"each line of a secret":         {[]string{"first\nsecond\n"}, "second\nfirst\n", "***\n***\n"},
		"a last line without its end":   {[]string{"secret"}, "secret", "***"},
		"an empty secret hides nothing": {[]string{""}, "text\n", "text\n"},
		"lines that end with a CR":      {[]string{"secret"}, "1 secret\r2 secret\r", "1 ***\r2 ***\r"},
	} {
		for cut := range len(tc.printed) { // at every split into two writes
			var log bytes.Buffer
			m := newMask(&log, tc.secrets)
			m.Write([]byte(tc.printed[:cut]))
			m.Write([]byte(tc.printed[cut:]))
			m.Flush()
			if log.String() != tc.want {
				t.Errorf("%s, split at %d: got %q, want %q", name, cut, log.String(), tc.want)
			}
		}
	}
	var log bytes.Buffer
	m := newMask(&log, []string{"secret"})
	for range maxPending {
		m.Write([]byte("x secret "))
	}
	m.Flush()
	if strings.Contains(log.String(), "secret") || len(log.String()) != maxPending*len("x *** ") {
		t.Errorf("a line without end: got %d bytes, want every secret masked", log.Len())
	}
}
