package proc

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"net/url"
	"strings"
	"testing"
	"time"

	"rcgrpo/internal/must"
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
			m := &mask{to: &log, secrets: NewSecrets(tc.secrets...)}
			m.Write([]byte(tc.printed[:cut]))
			m.Write([]byte(tc.printed[cut:]))
			m.Flush()
			if log.String() != tc.want {
				t.Errorf("%s, split at %d: got %q, want %q", name, cut, log.String(), tc.want)
			}
		}
	}
	var log bytes.Buffer
	m := &mask{to: &log, secrets: NewSecrets("secret")}
	for range maxPending {
		m.Write([]byte("x secret "))
	}
	m.Flush()
	if strings.Contains(log.String(), "secret") || len(log.String()) != maxPending*len("x *** ") {
		t.Errorf("a line without end: got %d bytes, want every secret masked", log.Len())
	}
}

func TestSecretsAreMaskedInEveryEncoding(t *testing.T) {
	const secret = "sk-a/b+\"Ü9\\z\t&<😀 a"
	raw := must.Get(json.Marshal(secret))(t)
	each := func(format string) (out string) {
		for _, b := range []byte("sk-a/b+") {
			out += fmt.Sprintf(format, b)
		}
		return out
	}
	secrets := NewSecrets(secret, "sk-a/b+longer")
	for name, text := range map[string]string{
		"as it is":       secret,
		"JSON":           string(raw),
		"JSON twice":     string(must.Get(json.Marshal(string(raw)))(t)),
		"Go":             fmt.Sprintf("%q", secret),
		"Go, ASCII":      fmt.Sprintf("%+q", secret),
		"a query":        url.QueryEscape("sk-a/b+longer"),
		"HTML":           html.EscapeString(secret),
		"HTML twice":     html.EscapeString(html.EscapeString(secret)),
		"HTML in JSON":   string(must.Get(json.Marshal(html.EscapeString(secret)))(t)),
		"JSON in a URL":  url.QueryEscape(string(raw[1 : len(raw)-1])),
		"UTF-16 in JSON": strings.ReplaceAll(string(raw[1:len(raw)-1]), "😀", `\ud83d\uDE00`),
		"base64":         base64.StdEncoding.EncodeToString([]byte(secret)),
		"base64, URL":    base64.RawURLEncoding.EncodeToString([]byte(secret)),
		"hexadecimal":    strings.ToUpper(hex.EncodeToString([]byte(secret))),
		"\\u of all":     each(`\u%04X`) + "longer",
		"\\\\u of all":   each(`\\u%04x`) + "longer",
		"decimal of all": each("&#%d;") + "longer",
		"hex of all":     each("&#x%02X") + "longer",
		"\\x of all":     each(`\\X%02x`) + "longer",
		"octal of all":   each(`\%03o`) + "longer",
		"braces of all":  each(`\u{%x}`) + "longer",
	} {
		got := secrets.Mask("<" + text + ">")
		if rest := strings.Trim(got, `"\`); strings.NewReplacer(`"`, "", `\`, "").Replace(rest) != "<***>" {
			t.Errorf("%s: %s became %s", name, text, got)
		}
	}
	if got := secrets.Mask("sk-a/b"); got != "sk-a/b" {
		t.Errorf("another text became %s", got)
	}
	wrapped := secrets.Error(fmt.Errorf("malformed header %q: %w", secret, io.ErrUnexpectedEOF))
	if strings.Contains(wrapped.Error(), "sk-a") || !errors.Is(wrapped, io.ErrUnexpectedEOF) {
		t.Errorf("the error is %q", wrapped)
	}
}

// A private key has 51 lines, each of which is a secret. A MiB took more than a minute.
func TestTheWorkForATextDoesNotDependOnTheNumberOfSecrets(t *testing.T) {
	key := ""
	for i := range 51 {
		key += fmt.Sprintf("%x\n", sha256.Sum256([]byte{byte(i)}))
	}
	secrets, first := NewSecrets(key), key[:64]
	for _, piece := range []string{`{"a":[0,"b\n"]},`, first[:60], `\\`, "&#", "%2"} {
		text, start := strings.Repeat(piece, (4<<20)/len(piece)), time.Now()
		got := secrets.Mask(text + first)
		if took := time.Since(start); !strings.HasSuffix(got, "***") || strings.Contains(got, first) || took > time.Minute {
			t.Errorf("%q: the secret at the end is not masked, or took long: %v", piece, took)
		}
	}
}

func TestReaderReturnsLinesWithoutSecretsAtOnce(t *testing.T) {
	out, in := io.Pipe()
	lines := bufio.NewReader(NewSecrets("secret").Reader(out))
	read := make(chan bool)
	go func() {
		for _, text := range []string{"a sec", "ret b\n", "secret\n"} {
			io.WriteString(in, text)
		}
		<-read
		io.WriteString(in, "last secret")
		in.Close()
	}()
	for _, want := range []string{"a *** b\n", "***\n"} {
		if got := must.Get(lines.ReadString('\n'))(t); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	close(read)
	if got := string(must.Get(io.ReadAll(lines))(t)); got != "last ***" {
		t.Errorf("got %q at the end", got)
	}
}
