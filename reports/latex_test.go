package reports

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"rcgrpo/internal/must"
	"rcgrpo/reports/page"
)

// compileLaTeX puts tables into a document of the class article and returns the log of pdflatex.
func compileLaTeX(t *testing.T, tables []byte) string {
	t.Helper()
	program, err := exec.LookPath("pdflatex")
	if err != nil {
		t.Skip("pdflatex is not installed (Debian: texlive-latex-recommended, lmodern)")
	}
	dir := t.TempDir()
	document := `\documentclass{article}
\usepackage[T1]{fontenc}
\usepackage{lmodern}
\usepackage{array,booktabs,longtable}
\begin{document}
\input{page.tex}
\end{document}
`
	for name, text := range map[string][]byte{"document.tex": []byte(document), "page.tex": tables} {
		must.OK(t, os.WriteFile(filepath.Join(dir, name), text, 0o644))
	}
	for range 2 { // longtable needs two
		c := exec.Command(program, "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "document.tex")
		c.Dir, c.Env = dir, append(os.Environ(), "max_print_line=1000")
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("pdflatex: %v\n%s", err, out[max(0, len(out)-2000):])
		}
	}
	log := must.Get(os.ReadFile(filepath.Join(dir, "document.log")))(t)
	return string(log)
}

func TestLaTeXCompiles(t *testing.T) {
	for name, p := range map[string]*page.Page{
		"invented numbers": synthetic(3, 80, 150).Page(),
		"one seed":         synthetic(1, 40, 30).Page(),
		"hostile names":    hostile("\\input{/etc/passwd} $x^2 & #1 {% ~_ 中文 \u202e `|<>\"' [6pt]* ü").Page(),
	} {
		t.Run(name, func(t *testing.T) {
			var tables bytes.Buffer
			must.OK(t, p.LaTeX(&tables))
			log := compileLaTeX(t, tables.Bytes())
			for _, problem := range []string{"Missing character", "LaTeX Error", "float too large", "Reference"} {
				if at := strings.Index(log, problem); at >= 0 {
					t.Errorf("the log has %q: %.200s", problem, log[at:])
				}
			}
		})
	}
}

func TestLaTeXTablesAreWhole(t *testing.T) {
	s := synthetic(2, 40, 30)
	s.Arms[0].Label = `a_b & \c`
	p := s.Page()
	var b bytes.Buffer
	must.OK(t, p.LaTeX(&b))
	text := b.String()
	begins, ends := strings.Count(text, `\begin{longtable}`), strings.Count(text, `\end{longtable}`)
	if want := len(p.Tables()); begins != want || ends != begins {
		t.Errorf("got %d begins and %d ends, want %d tables", begins, ends, want)
	}
	// Braces that are not escaped open and close in turn, and every line of a table has its columns.
	depth := 0
	bare := strings.NewReplacer(`\\`, "", `\{`, "", `\}`, "", `\&`, "").Replace(text)
	for _, r := range bare {
		switch r {
		case '{':
			depth++
		case '}':
			depth--
		}
		if depth < 0 {
			t.Fatal("a brace closes what none opened")
		}
	}
	equal(t, "open braces", depth, 0)
	for _, table := range strings.Split(bare, `\begin{longtable}`)[1:] {
		layout, _, _ := strings.Cut(strings.TrimPrefix(table, "{@{}"), "@{}}\n")
		columns := len(strings.ReplaceAll(layout, `p{0.3\linewidth}`, "p"))
		body := table[strings.Index(table, `\endfoot`)+len(`\endfoot`) : strings.Index(table, `\end{longtable}`)]
		for i, line := range strings.Split(strings.TrimSpace(body), "\n") {
			if got, want := strings.Count(line, "&"), columns-1; got != want && !strings.HasPrefix(line, `\multicolumn`) {
				t.Errorf("row %d of %.60s: got %d separators, want %d", i, table, got, want)
			}
		}
	}
}
